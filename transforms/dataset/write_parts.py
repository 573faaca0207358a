"""Writes batches as Parquet parts, each completely or not at all."""

import dataclasses
import hashlib
import io
import json
from collections.abc import Iterable
from functools import partial
from typing import IO, Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq

from sbert_core.data.manifest import Manifest, Part, digest_of, part_label, part_name
from sbert_core.data.schema import FINGERPRINT_KEY, SOURCE_KEY, TOTALS_KEY
from transforms.dataset.files import commit
from transforms.dataset.published import Draft
from transforms.dataset.slices import InputSlice, slice_of, without_slice

ROW_GROUP_ROWS = 16_384
PAGE_BYTES = 256 * 1024  # a page that fits the cache is written faster


def write_parquet(batch: pa.RecordBatch, file: IO[bytes]) -> None:
    """Writes a Parquet file of one batch; the same batch gives the same bytes. Every page has a checksum.

    All columns but vectors are compressed with zstd. Floats of vectors hardly repeat: compression would save a tenth
    of their size and take a third more time, for writers and readers.
    """
    vectors = {field.name for field in batch.schema if pa.types.is_fixed_size_list(field.type)}
    leaves = _leaves(batch.schema)
    others = [leaf for leaf in leaves if leaf.split(".")[0] not in vectors]
    pq.write_table(
        pa.Table.from_batches([batch]),
        file,
        compression={leaf: "zstd" if leaf in others else "none" for leaf in leaves},
        row_group_size=ROW_GROUP_ROWS,
        use_dictionary=others,
        write_statistics=others,
        data_page_size=PAGE_BYTES,
        write_page_checksum=True,
    )


def _leaves(schema: pa.Schema) -> list[str]:
    """The paths of the Parquet columns of a schema: nested fields become several."""
    sink = io.BytesIO()
    pq.write_metadata(schema, sink)
    stored = pq.ParquetFile(sink).schema
    return [stored.column(number).path for number in range(len(stored.names))]


def write_rows(rows: pa.RecordBatch | pa.Table, folder: str, name: str) -> Part:
    """Commits rows as one part."""
    batch = one_batch(rows) if isinstance(rows, pa.Table) else rows
    written = commit(f"{folder}/{name}", partial(write_parquet, batch))
    return Part(name=name, rows=len(rows), bytes=written.bytes, sha256=written.sha256)


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table as one batch, even if it has no rows."""
    columns = [column.chunk(0) if column.num_chunks == 1 else column.combine_chunks() for column in table.columns]
    return pa.record_batch(columns, schema=table.schema)


def source_digest(batch: pa.RecordBatch, fingerprint: str = "", settings: dict[str, Any] | None = None) -> str:
    """A hash of everything that determines the part of a batch: its rows, the encoder, and the options."""
    digest = hashlib.sha256(json.dumps([fingerprint, settings], sort_keys=True).encode())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema.remove_metadata()) as writer:
        writer.write_batch(batch.replace_schema_metadata(None))
    digest.update(sink.getvalue())
    return digest.hexdigest()


def slice_label(input_slice: InputSlice) -> str:
    """What the names of all parts of an input file begin with; files of one name in two folders differ."""
    stem = input_slice.name.rsplit("/", 1)[-1].split(".", 1)[0]
    return part_label(f"{stem}-{hashlib.sha256(input_slice.name.encode()).hexdigest()[:8]}")


def slice_part_name(input_slice: InputSlice, source: str) -> str:
    """The name of the part that a slice of an input file becomes."""
    return part_name(slice_label(input_slice), input_slice.first_row, source)


def part_of(part: Part, metadata: dict[bytes, bytes]) -> Part:
    """A part with the fields that its Parquet metadata records."""
    totals = {"rows": part.rows, **json.loads(metadata.get(TOTALS_KEY, b"{}"))}
    source = metadata.get(SOURCE_KEY)
    return dataclasses.replace(part, source=source.decode() if source else None, **totals)


def write_part(batch: pa.RecordBatch, folder: str) -> Part:
    """Commits a batch as the part of its slice."""
    metadata = {SOURCE_KEY: source_digest(batch).encode(), **without_slice(batch.schema.metadata)}
    name = slice_part_name(slice_of(batch), metadata[SOURCE_KEY].decode())
    return part_of(write_rows(batch.replace_schema_metadata(metadata), folder, name), metadata)


@dataclasses.dataclass(kw_only=True, eq=False)
class WriteEmbeddings(beam.PTransform):
    """Writes batches as parts of a dataset, to be published with PublishDatasets.

    Input is `pa.RecordBatch` of slices, encoded or rejected; output is one `Draft`. Each batch becomes one file, named
    by its slice and its content, and written completely or not at all: a slice that is processed twice writes the same
    bytes to the same name. `manifest` describes the dataset; `finished` holds parts that an earlier run has written.
    """

    folder: str
    manifest: Manifest = dataclasses.field(default_factory=Manifest)
    finished: beam.PCollection[Part] | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, batches: beam.PCollection[pa.RecordBatch]) -> beam.PCollection[Draft]:
        """Waits for all parts."""
        parts = batches | "WritePart" >> beam.Map(write_part, folder=self.folder)
        if self.finished is not None:
            parts = (parts, self.finished) | "AddFinished" >> beam.Flatten()
        return (
            parts
            | "AllParts" >> beam.combiners.ToList()
            | "Draft" >> beam.Map(draft_embeddings, folder=self.folder, manifest=self.manifest)
        )


def draft_embeddings(parts: Iterable[Part], folder: str, manifest: Manifest) -> Draft:
    """The dataset of these parts, with totals over them."""
    complete = manifest.with_parts(parts)
    sources = [[part.name, part.source] for part in complete.parts]
    complete = dataclasses.replace(
        complete,
        source=digest_of(complete.fingerprint, complete.settings, sources),
        n_tokens=sum(part.n_tokens or 0 for part in complete.parts),
        truncated=sum(part.truncated or 0 for part in complete.parts),
    )
    return Draft(folder, complete)


def fingerprint_of(metadata: dict[bytes, bytes] | None) -> str | None:
    """The fingerprint of the encoder that the metadata of a part records."""
    found = (metadata or {}).get(FINGERPRINT_KEY)
    return found.decode() if found else None
