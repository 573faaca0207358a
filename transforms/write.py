"""Batches to Parquet parts, each committed whole, and the manifest that makes them a dataset."""

import dataclasses
import io
import json
from collections.abc import Iterable, Sequence
from functools import partial
from typing import IO, Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq

from sbert_core.errors import DataError
from sbert_core.schema import FINGERPRINT_KEY, SOURCE_KEY, TOTALS_KEY
from transforms.files import MANIFEST, commit
from transforms.tasks import task_of, without_task

ROW_GROUP_ROWS = 16_384
PAGE_BYTES = 256 * 1024  # a page that fits the cache is written faster


@dataclasses.dataclass(frozen=True)
class Part:
    """One committed file of a dataset, and what came of its slice of the input."""

    name: str
    sha256: str
    rows: int
    n_tokens: int = 0
    truncated: int = 0
    rejected: int = 0
    fingerprint: str | None = None
    source: str | None = None


def part_of(name: str, metadata: dict[bytes, bytes], sha256: str) -> Part:
    """The part that a file with this metadata is."""
    fingerprint, source = (metadata[key].decode() if key in metadata else None for key in (FINGERPRINT_KEY, SOURCE_KEY))
    return Part(name, sha256, fingerprint=fingerprint, source=source, **json.loads(metadata[TOTALS_KEY]))


def write_parquet(batch: pa.RecordBatch, file: IO[bytes]) -> None:
    """Writes a Parquet file of one batch; the same batch gives the same bytes.

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
    )


def _leaves(schema: pa.Schema) -> list[str]:
    """The paths of the columns that Parquet stores a schema as."""
    sink = io.BytesIO()
    pq.write_metadata(schema, sink)
    stored = pq.ParquetFile(sink).schema
    return [stored.column(number).path for number in range(len(stored.names))]


def write_part(batch: pa.RecordBatch, folder: str) -> Part:
    """Commits a batch as the file its task names."""
    name = task_of(batch).part_name
    metadata = {TOTALS_KEY: json.dumps({"rows": len(batch)}).encode(), **without_task(batch.schema.metadata)}
    digest = commit(f"{folder}/{name}", partial(write_parquet, batch.replace_schema_metadata(metadata)))
    return part_of(name, metadata, digest)


@dataclasses.dataclass(kw_only=True, eq=False)
class WriteEmbeddings(beam.PTransform):
    """Writes batches as a dataset: Parquet parts, and `_manifest.json` when every part is there.

    Input is `pa.RecordBatch` of tasks (also the rejected ones); output is the manifest. Each batch becomes one file
    named by its task, there whole or not at all; a task done twice writes the same bytes to the same name.

    `facts` says what the dataset is: options, versions. `finished` holds parts that are there already. `problems`
    holds what makes the dataset wrong: if there is any, the job fails and there is no manifest.
    """

    folder: str
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    finished: beam.PCollection[Part] | None = None
    problems: beam.PCollection[str] | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, batches: beam.PCollection[pa.RecordBatch]) -> beam.PCollection[dict[str, Any]]:
        """Waits for all parts and all problems, then commits."""
        parts = batches | "WritePart" >> beam.Map(write_part, folder=self.folder)
        if self.finished is not None:
            parts = (parts, self.finished) | "AddFinished" >> beam.Flatten()
        problems = () if self.problems is None else beam.pvalue.AsIter(self.problems)
        return (
            parts
            | "AllParts" >> beam.combiners.ToList()
            | "Commit" >> beam.Map(write_manifest, problems, folder=self.folder, facts=self.facts)
        )


def write_manifest(
    parts: list[Part],
    problems: Iterable[str] = (),
    *,
    folder: str,
    facts: dict[str, Any],
    totals: Sequence[str] = ("rows", "n_tokens", "truncated"),
) -> dict[str, Any]:
    """Commits the manifest of a dataset: its facts, totals and parts, in the order of their names."""
    for problem in problems:
        raise DataError(problem)
    ordered = sorted(parts, key=lambda part: part.name)
    manifest = {
        **facts,
        **{name: sum(getattr(part, name) for part in ordered) for name in totals},
        "fingerprint": next((part.fingerprint for part in ordered if part.fingerprint), None),
        "parts": [
            {"name": part.name, "rows": part.rows, "sha256": part.sha256, "source": part.source} for part in ordered
        ],
    }
    commit(f"{folder}/{MANIFEST}", json.dumps(manifest, indent=2, sort_keys=True).encode())
    return manifest
