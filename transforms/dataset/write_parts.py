"""Batches to Parquet parts, each committed whole."""

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
from transforms.dataset.slices import Task, task_of, without_task

ROW_GROUP_ROWS = 16_384
PAGE_BYTES = 256 * 1024  # a page that fits the cache is written faster


def write_parquet(batch: pa.RecordBatch, file: IO[bytes]) -> None:
    """Writes a Parquet file of one batch; the same batch gives the same bytes. Every page has a checksum.

    Columns are zstd but for vectors: their floats hardly repeat, and compressing them by a tenth would cost every
    writer a third more time, and every reader too.
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
    """The paths of the columns that Parquet stores a schema as."""
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
    """A table as one batch; one without rows too."""
    columns = [column.chunk(0) if column.num_chunks == 1 else column.combine_chunks() for column in table.columns]
    return pa.record_batch(columns, schema=table.schema)


def source_digest(batch: pa.RecordBatch, fingerprint: str = "", settings: dict[str, Any] | None = None) -> str:
    """A hash of all that decides what a batch becomes: its rows, the encoder, and the options."""
    digest = hashlib.sha256(json.dumps([fingerprint, settings], sort_keys=True).encode())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema.remove_metadata()) as writer:
        writer.write_batch(batch.replace_schema_metadata(None))
    digest.update(sink.getvalue())
    return digest.hexdigest()


def task_label(task: Task) -> str:
    """What the parts of an input file are called; files of one name in two folders differ."""
    stem = task.name.rsplit("/", 1)[-1].split(".", 1)[0]
    return part_label(f"{stem}-{hashlib.sha256(task.name.encode()).hexdigest()[:8]}")


def task_part_name(task: Task, source: str) -> str:
    """The name of the part that a slice of an input file becomes."""
    return part_name(task_label(task), task.first_row, source)


def part_of(part: Part, metadata: dict[bytes, bytes]) -> Part:
    """A part with what its own metadata says of it."""
    totals = {"rows": part.rows, **json.loads(metadata.get(TOTALS_KEY, b"{}"))}
    source = metadata.get(SOURCE_KEY)
    return dataclasses.replace(part, source=source.decode() if source else None, **totals)


def write_part(batch: pa.RecordBatch, folder: str) -> Part:
    """Commits a batch as the part of its task."""
    metadata = {SOURCE_KEY: source_digest(batch).encode(), **without_task(batch.schema.metadata)}
    name = task_part_name(task_of(batch), metadata[SOURCE_KEY].decode())
    return part_of(write_rows(batch.replace_schema_metadata(metadata), folder, name), metadata)


@dataclasses.dataclass(kw_only=True, eq=False)
class WriteEmbeddings(beam.PTransform):
    """Writes batches as parts of a dataset, to be published with PublishDatasets.

    Input is `pa.RecordBatch` of tasks (also the rejected ones); output is one `Draft`. Each batch becomes one file
    named by its task and its content, there whole or not at all; a task done twice writes the same bytes to the same
    name. `manifest` says what the dataset is; `finished` holds parts that are there already.
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
        return parts | "AllParts" >> beam.combiners.ToList() | "Draft" >> beam.Map(self._draft)

    def _draft(self, parts: Iterable[Part]) -> Draft:
        whole = self.manifest.with_parts(parts)
        whole = dataclasses.replace(
            whole,
            source=digest_of(whole.fingerprint, whole.settings, [[part.name, part.source] for part in whole.parts]),
            n_tokens=sum(part.n_tokens or 0 for part in whole.parts),
            truncated=sum(part.truncated or 0 for part in whole.parts),
        )
        return Draft(self.folder, whole)


def fingerprint_of(metadata: dict[bytes, bytes] | None) -> str | None:
    """The encoder that a part says its vectors are of."""
    found = (metadata or {}).get(FINGERPRINT_KEY)
    return found.decode() if found else None
