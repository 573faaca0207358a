"""Texts with gold topics, and their vectors of the default model."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from sbert_beam import SentenceEncoder

TOPIC_SETS = ("trec", "snips", "ag_news_test", "banking77", "clinc150")


def load_sets(data: Path) -> Iterator[tuple[str, list[str], np.ndarray]]:
    """Names, texts and gold topics; of Reuters only the titles of articles with a single topic."""
    for name in TOPIC_SETS:
        table = pq.read_table(data / f"topic_sets/{name}.parquet")
        yield name, table["text"].to_pylist(), table["label"].to_numpy(zero_copy_only=False)
    table = pq.read_table(data / "newsgroups20/newsgroups20.parquet")
    texts = [subject or "" for subject in table["subject"].to_pylist()]
    yield "newsgroups20 subjects", texts, table["label"].to_numpy(zero_copy_only=False)
    rows = pq.read_table(data / "reuters21578/reuters21578.parquet", columns=["title", "topics"]).to_pylist()
    rows = [row for row in rows if row["title"] and row["topics"] and "|" not in row["topics"]]
    yield "reuters titles", [row["title"] for row in rows], np.array([row["topics"] for row in rows])


def vectors_of(name: str, texts: list[str], cache: Path | None) -> np.ndarray:
    """The vectors (n, 384) of the texts of a set; kept in a folder, if one is given."""
    path = cache / f"{name.replace(' ', '-')}.npy" if cache else None
    if path and path.exists():
        return np.load(path)
    vectors = SentenceEncoder.load("default").encode(texts)
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, vectors)
    return vectors
