"""What is done already: a job that is run again does only what is missing or has changed."""

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.metrics import Metrics

from sbert_core.schema import SOURCE_KEY
from transforms.encode import EncodeSentences
from transforms.files import read_bytes
from transforms.tasks import task_of
from transforms.write import Part, part_of


def source_digest(batch: pa.RecordBatch, fingerprint: str, settings: dict[str, Any]) -> str:
    """A hash of all that decides what a batch becomes."""
    digest = hashlib.sha256(json.dumps([fingerprint, settings], sort_keys=True).encode())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema.remove_metadata()) as writer:
        writer.write_batch(batch.replace_schema_metadata(None))
    digest.update(sink.getvalue())
    return digest.hexdigest()


def finished_part(path: str, source: str, fingerprint: str) -> Part | None:
    """The part at `path`, if it is whole and was made of just this source by the encoder of this fingerprint."""
    content = read_bytes(path)
    if content is None:
        return None
    try:
        metadata = pq.read_schema(pa.BufferReader(content)).metadata or {}
    except pa.ArrowException:  # not a Parquet file: it is made again
        return None
    if metadata.get(SOURCE_KEY, b"").decode() != source:
        return None
    part = part_of(path.rsplit("/", 1)[-1], metadata, hashlib.sha256(content).hexdigest())
    return part if part.fingerprint in (None, fingerprint) else None  # rejected rows have none


@dataclasses.dataclass(kw_only=True, eq=False)
class SkipFinished(beam.PTransform):
    """Sets aside the batches whose parts are there already, made of the same rows, encoder and options.

    Input is `pa.RecordBatch` of ReadSentences. Output is a dictionary: `missing`, the batches still to encode, and
    `finished` and `finished_rejected`, the parts that are there. Whoever knows the fingerprint of the encoder spares
    the machines that look up from loading it. Counters: `resume/finished`, `resume/missing`.
    """

    encode: EncodeSentences
    encoded_folder: str
    rejected_folder: str
    fingerprint: str | None = None  # None: the encoder is asked

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, batches: beam.PCollection[pa.RecordBatch]) -> Any:
        """Looks up each batch's part where the batch is."""
        tags = ("finished", "finished_rejected")
        outputs = batches | "LookUp" >> beam.ParDo(_LookUpFn(self)).with_outputs(*tags, main="missing")
        return {tag: outputs[tag] for tag in ("missing", *tags)}


class _LookUpFn(beam.DoFn):
    def __init__(self, transform: SkipFinished) -> None:
        self._encode = transform.encode
        self._encoded_folder = transform.encoded_folder
        self._rejected_folder = transform.rejected_folder
        self._known = transform.fingerprint
        self._finished = Metrics.counter("resume", "finished")
        self._missing = Metrics.counter("resume", "missing")

    def setup(self) -> None:
        if self._known is None:
            self._encoder = self._encode.acquire()  # and held: the encoding step of this process shares it
        self._fingerprint = self._known or self._encoder.fingerprint

    def process(self, batch: pa.RecordBatch) -> Iterator[Any]:
        source = source_digest(batch, self._fingerprint, self._encode.settings)
        name = task_of(batch).part_name
        part = finished_part(f"{self._encoded_folder}/{name}", source, self._fingerprint)
        rejected = None
        if part and part.rejected:
            rejected = finished_part(f"{self._rejected_folder}/{name}", source, self._fingerprint)
        if part is None or (part.rejected and rejected is None):
            self._missing.inc()
            yield batch.replace_schema_metadata({**batch.schema.metadata, SOURCE_KEY: source.encode()})
            return
        self._finished.inc()
        yield beam.pvalue.TaggedOutput("finished", part)
        if rejected:
            yield beam.pvalue.TaggedOutput("finished_rejected", rejected)
