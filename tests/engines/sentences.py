"""The corpus that engines and object stores are tried with."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ROWS, SHARDS = 124, 4
TOPICS = (
    "where is my parcel",
    "the quick brown fox jumps over the lazy dog",
    "a man is playing the flute",
    "query: what does it cost",
)


def make_texts(rows: int) -> list[str | None]:
    """Texts of a few topics, with duplicates."""
    return [f"{TOPICS[row % 4]} {'abcdefgh'[row // 4 % 8] * (1 + row % 3)}" for row in range(rows)]


def make_sentences(folder: Path) -> Path:
    """Writes a corpus of a few topics with duplicates, an empty text and a null."""
    texts = make_texts(ROWS)
    texts[7], texts[11] = "", None
    table = pa.table({"id": [f"r{row:03}" for row in range(ROWS)], "text": texts})
    folder.mkdir()
    for shard in range(SHARDS):
        part = table.slice(shard * ROWS // SHARDS, ROWS // SHARDS)
        pq.write_table(part, folder / f"part-{shard}.parquet", row_group_size=16)
    return folder
