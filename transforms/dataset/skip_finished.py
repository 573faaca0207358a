"""Finds parts that an earlier run has finished, so that a repeated job writes only those that are missing or stale."""

import base64
import dataclasses
import hashlib
import io
from collections.abc import Iterator
from typing import Any, Protocol

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.metrics import Metrics

from sbert_core.data.manifest import Part
from sbert_core.data.schema import SOURCE_KEY
from sbert_core.errors import DataError
from transforms.dataset.batch_coder import typed_batches
from transforms.dataset.files import read_bytes
from transforms.dataset.published import BEAM_DATASETS, find_manifest
from transforms.dataset.slices import slice_of
from transforms.dataset.write_parts import (
    fingerprint_of,
    one_batch,
    part_of,
    slice_part_name,
    source_digest,
    write_parquet,
)


class EncodeStep(Protocol):
    """What this step needs of the encoding step that follows it, `EncodeSentences`."""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that change the result, besides the encoder."""

    def acquire(self) -> Any:
        """Loads the encoder, which has a `fingerprint`, or returns the one that this process already has."""


def finished_part(path: str, source: str, fingerprint: str, listed: Part | None = None) -> Part | None:
    """The part at `path`, if it is intact and was made from this source by the encoder with this fingerprint.

    A part that a manifest has `listed` must have the recorded bytes. A part without a manifest, left by a job that
    died, is read completely and written again in memory: that must give the same bytes.
    """
    if listed is not None:
        return listed if listed.source == source and BEAM_DATASETS.has_content(path, listed.sha256) else None
    content = read_bytes(path)
    if content is None:
        return None
    try:
        batch = _read_batch(content)
    except (pa.ArrowException, OSError, ValueError, KeyError):  # not a Parquet file, or a damaged one
        return None
    rewritten = io.BytesIO()
    write_parquet(batch, rewritten)
    if rewritten.getvalue() != content:
        return None
    metadata = batch.schema.metadata or {}
    if metadata.get(SOURCE_KEY, b"").decode() != source or fingerprint_of(metadata) not in (None, fingerprint):
        return None  # rejected rows have no fingerprint
    name = path.rsplit("/", 1)[-1]
    part = Part(name=name, rows=len(batch), bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    return part_of(part, metadata)


def _read_batch(content: bytes) -> pa.RecordBatch:
    """The batch that a part was written from, including the names of list items, which Parquet changes."""
    file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
    stored = base64.b64decode(file.metadata.metadata[b"ARROW:schema"])
    schema = pa.ipc.read_schema(pa.BufferReader(stored))
    return one_batch(file.read().cast(schema.remove_metadata()).replace_schema_metadata(schema.metadata))


def listed_parts(folder: str) -> dict[str, Part]:
    """The parts of a published dataset by name; none if there is no manifest, or a damaged one."""
    try:
        manifest = find_manifest(folder)
    except DataError:
        return {}
    return {part.name: part for part in manifest.parts} if manifest else {}


@dataclasses.dataclass(kw_only=True, eq=False)
class SkipFinished(beam.PTransform):
    """Separates batches whose parts exist, made from the same rows with the same encoder and options.

    Input is `pa.RecordBatch` of ReadSentences. Output is a dictionary: `missing`, the batches still to encode, and
    `finished` and `finished_rejected`, the parts that exist. If the `fingerprint` of the encoder is given, this step
    does not load the encoder. Counters: `resume/finished`, `resume/missing`.
    """

    encode: EncodeStep
    encoded_folder: str
    rejected_folder: str
    fingerprint: str | None = None  # None: load the encoder to get it

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, batches: beam.PCollection[pa.RecordBatch]) -> Any:
        """Looks up each batch's part where the batch is."""
        tags = ("finished", "finished_rejected")
        outputs = batches | "LookUp" >> beam.ParDo(_LookUpFn(self)).with_outputs(*tags, main="missing")
        return {"missing": typed_batches(outputs.missing)} | {tag: outputs[tag] for tag in tags}


class _LookUpFn(beam.DoFn):
    def __init__(self, transform: SkipFinished) -> None:
        self._encode = transform.encode
        self._encoded_folder = transform.encoded_folder
        self._rejected_folder = transform.rejected_folder
        self._given_fingerprint = transform.fingerprint
        self._finished_count = Metrics.counter("resume", "finished")
        self._missing_count = Metrics.counter("resume", "missing")

    def setup(self) -> None:
        if self._given_fingerprint is None:
            self._encoder = self._encode.acquire()  # kept: the encoding step of this process shares it
        self._fingerprint = self._given_fingerprint or self._encoder.fingerprint
        self._listed = {folder: listed_parts(folder) for folder in (self._encoded_folder, self._rejected_folder)}

    def process(self, batch: pa.RecordBatch) -> Iterator[Any]:
        source = source_digest(batch, self._fingerprint, self._encode.settings)
        name = slice_part_name(slice_of(batch), source)
        part = self._finished_part(self._encoded_folder, name, source)
        rejected = None
        if part and part.rejected:
            rejected = self._finished_part(self._rejected_folder, name, source)
        if part is None or (part.rejected and rejected is None):
            self._missing_count.inc()
            yield batch.replace_schema_metadata({**batch.schema.metadata, SOURCE_KEY: source.encode()})
            return
        self._finished_count.inc()
        yield beam.pvalue.TaggedOutput("finished", part)
        if rejected:
            yield beam.pvalue.TaggedOutput("finished_rejected", rejected)

    def _finished_part(self, folder: str, name: str, source: str) -> Part | None:
        return finished_part(f"{folder}/{name}", source, self._fingerprint, self._listed[folder].get(name))
