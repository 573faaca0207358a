"""Corpora, vectors and datasets for tests, and the jobs on them without a model."""

import datetime
import decimal
import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines import embed, mine
from pipelines.embed_options import EmbedOptions
from pipelines.mine_options import MineOptions
from sbert_core.data.manifest import Manifest, Part
from sbert_core.data.schema import FINGERPRINT_KEY, AddedColumns
from tests.fake_encoder import load_fake

ADDED = ["embedding", "n_tokens", "truncated"]


def make_table(rows: int, first: int = 0) -> pa.Table:
    """Rows with a column of every type that likes to get lost on the way."""
    numbers = range(first, first + rows)
    return pa.table(
        {
            "id": [f"r{number:04}" for number in numbers],
            "text": [f"sentence number {number}" + " and more" * (number % 7) for number in numbers],
            "topic": pa.array([f"topic {number % 3}" for number in numbers]).dictionary_encode(),
            "when": pa.array([datetime.datetime(2025, 1, 1) for _ in numbers], pa.timestamp("us", "UTC")),
            "price": pa.array([decimal.Decimal("1.10")] * rows, pa.decimal128(9, 2)),
            "tags": pa.array([["a", "b"]] * rows, pa.list_(pa.string())),
            "large": pa.array(["x"] * rows, pa.large_string()),
        }
    )


def write_shards(folder, table: pa.Table, shards: int, row_group_size: int = 40) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    size = -(-len(table) // shards) if len(table) else 1
    for shard in range(shards):
        part = table.slice(shard * size, size)
        pq.write_table(part, folder / f"part-{shard:03}.parquet", row_group_size=row_group_size)
    return f"{folder}/*.parquet"


def run_fake(pattern: str, output, **options) -> dict:
    """Runs the job with the fake encoder in place of a model."""
    settings = EmbedOptions(input=[pattern], output=str(output), **options)
    return embed.run(settings, encode=embed.make_encode(settings, load=load_fake))


def read_output(output) -> pa.Table:
    """Reads the dataset the way a consumer should: by its manifest."""
    folder = output / "embeddings"
    names = [part["name"] for part in json.loads((folder / "_manifest.json").read_text())["parts"]]
    return pa.concat_tables(pq.read_table(folder / name) for name in names).sort_by("id")


def clustered(rows: int, dim: int = 16, seed: int = 0) -> np.ndarray:
    """Vectors in clumps, with a few exact copies."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(max(rows // 8, 1), dim))
    vectors = centers[rng.integers(len(centers), size=rows)] + 0.25 * rng.normal(size=(rows, dim))
    vectors[rows // 2 : rows // 2 + rows // 10] = vectors[: rows // 10]
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def write_vectors(folder: Path, vectors: np.ndarray, shards: int = 1, fingerprint: str = "m", **columns) -> str:
    """Parquet files as somebody else may have written them."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = len(vectors)
    kind = AddedColumns().fields(vectors.shape[1], str(vectors.dtype))[0].type
    table = pa.table(
        {
            "id": columns.pop("id", [f"r{row:05}" for row in range(rows)]),
            "text": columns.pop("text", [f"text {row}" for row in range(rows)]),
            "embedding": pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=kind),
            **columns,
        }
    ).replace_schema_metadata({FINGERPRINT_KEY: fingerprint})
    size = -(-rows // shards) or 1
    for shard in range(shards):
        pq.write_table(table.slice(shard * size, size), folder / f"part-{shard:03}.parquet", row_group_size=37)
    return f"{folder}/*.parquet"


def blobs(clusters: int = 8, each: int = 60, dim: int = 24, spread: float = 0.12, seed: int = 0):
    """Unit vectors around random directions, and their true clusters."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(clusters, dim))
    centers /= np.linalg.norm(centers, axis=1, keepdims=True)
    truth = rng.permutation(np.repeat(np.arange(clusters), each))
    vectors = centers[truth] + spread * rng.normal(size=(len(truth), dim))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32), truth


WORDS = ("parcel", "refund", "invoice", "password", "battery", "zipper", "coupon", "garden")


def make_corpus(
    folder: Path, vectors: np.ndarray, truth: np.ndarray, shards: int = 2, mined: bool = True, fingerprint: str = "m"
) -> Path:
    """A folder as embed and mine leave it, without a model."""
    target = folder / "embeddings"
    target.mkdir(parents=True)
    kind = AddedColumns().fields(vectors.shape[1])[0].type
    table = pa.table(
        {
            "id": [f"r{row:05}" for row in range(len(vectors))],
            "text": [f"where is the {WORDS[each % 8]} number {row}" for row, each in enumerate(truth)],
            "gold": [str(each) for each in truth],
            "day": pa.array(np.arange(len(vectors)) % 60 * 86_400, pa.timestamp("s")),
            "embedding": pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=kind),
            "truncated": [False] * len(vectors),
        }
    ).replace_schema_metadata({FINGERPRINT_KEY: fingerprint})
    size = -(-len(table) // shards) or 1
    parts = []
    for shard in range(shards if len(table) else 0):
        part = table.slice(shard * size, size)
        pq.write_table(part, target / f"part-{shard}.parquet")
        content = (target / f"part-{shard}.parquet").read_bytes()
        sha256 = hashlib.sha256(content).hexdigest()
        parts.append(Part(name=f"part-{shard}.parquet", rows=len(part), bytes=len(content), sha256=sha256))
    settings = {"text_column": "text", "embedding": "embedding"}
    manifest = Manifest(kind="embeddings", model="none", id_column="id", settings=settings, n_tokens=0, truncated=0)
    (target / "_manifest.json").write_bytes(manifest.with_parts(parts).to_json())
    if mined:
        mine.run(MineOptions(input=str(target), output=str(folder)))
    return folder


def write_manifest(folder: Path, names: list[str], **manifest) -> None:
    """A manifest of Parquet files that are there."""
    parts = []
    for name in names:
        content = (folder / name).read_bytes()
        rows = pq.read_metadata(folder / name).num_rows
        parts.append(Part(name=name, rows=rows, bytes=len(content), sha256=hashlib.sha256(content).hexdigest()))
    (folder / "_manifest.json").write_bytes(Manifest(parts=tuple(parts), **manifest).to_json())


def run_mine(pattern: str, output: Path, **options) -> dict:
    """Runs the mine job."""
    return mine.run(MineOptions(input=pattern, output=str(output), **options))
