"""Batches to Parquet parts, each committed whole, and the manifest that makes them a dataset."""

import dataclasses
import io
import json
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sbert_core.schema import N_TOKENS, TRUNCATED
from transforms.encode import FINGERPRINT_KEY
from transforms.files import commit, read_bytes
from transforms.read import DataError, task_of

MANIFEST = "_manifest.json"
ROW_GROUP_ROWS = 16_384


@dataclasses.dataclass(frozen=True)
class Part:
    """One committed file of a dataset."""

    name: str
    rows: int
    sha256: str
    fingerprint: str | None = None
    n_tokens: int = 0
    truncated: int = 0


def parquet_bytes(batch: pa.RecordBatch) -> bytes:
    """A Parquet file of one batch; the same batch gives the same bytes."""
    buffer = io.BytesIO()
    table = pa.Table.from_batches([batch])
    pq.write_table(table, buffer, compression="zstd", row_group_size=ROW_GROUP_ROWS)
    return buffer.getvalue()


def write_part(batch: pa.RecordBatch, folder: str) -> Part:
    """Commits a batch as the file its task names."""
    name = task_of(batch).part_name
    totals = {
        column: pc.sum(batch[column]).as_py() or 0 for column in (N_TOKENS, TRUNCATED) if column in batch.schema.names
    }
    fingerprint = (batch.schema.metadata or {}).get(FINGERPRINT_KEY)
    digest = commit(f"{folder}/{name}", parquet_bytes(batch))
    return Part(name, len(batch), digest, fingerprint.decode() if fingerprint else None, **totals)


@dataclasses.dataclass(kw_only=True, eq=False)
class WriteParts(beam.PTransform):
    """Writes each `pa.RecordBatch` of a task as one Parquet file named by the task; outputs a `Part` for each.

    A file is there whole or not at all, and a task done twice writes the same bytes to the same name.
    """

    folder: str

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, batches: beam.PCollection[pa.RecordBatch]) -> beam.PCollection[Part]:
        """One file per batch."""
        return batches | "WritePart" >> beam.Map(write_part, folder=self.folder)


@dataclasses.dataclass(kw_only=True, eq=False)
class WriteManifest(beam.PTransform):
    """Writes `_manifest.json` when every part is there; outputs its content.

    Input is `Part`. `facts` says what the dataset is: model, options, versions.
    """

    folder: str
    facts: dict[str, Any]

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, parts: beam.PCollection[Part]) -> beam.PCollection[dict[str, Any]]:
        """Waits for all parts, then commits."""
        return (
            parts
            | "AllParts" >> beam.combiners.ToList()
            | "CommitManifest" >> beam.Map(write_manifest, folder=self.folder, facts=self.facts)
        )


def write_manifest(parts: list[Part], folder: str, facts: dict[str, Any]) -> dict[str, Any]:
    """Commits the manifest of a dataset: its facts, totals and parts, in the order of their names."""
    ordered = sorted(parts, key=lambda part: part.name)
    manifest = {
        **facts,
        "fingerprints": sorted({part.fingerprint for part in ordered if part.fingerprint}),
        "rows": sum(part.rows for part in ordered),
        N_TOKENS: sum(part.n_tokens for part in ordered),
        TRUNCATED: sum(part.truncated for part in ordered),
        "parts": [{"name": part.name, "rows": part.rows, "sha256": part.sha256} for part in ordered],
    }
    commit(f"{folder}/{MANIFEST}", json.dumps(manifest, indent=2, sort_keys=True).encode())
    return manifest


def read_manifest(folder: str) -> dict[str, Any]:
    """Reads the manifest of a dataset; one that is not there means the job did not finish."""
    content = read_bytes(f"{folder}/{MANIFEST}")
    if content is None:
        raise DataError(f"{folder} has no {MANIFEST}: the job that writes it has not finished")
    manifest: dict[str, Any] = json.loads(content)
    return manifest
