"""The jobs as the tests of engines run them: one small corpus, the command of each job, and what it writes."""

import contextlib
import functools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines import mine
from pipelines.cli import main
from sbert_core.clusters import two_levels
from tests.tiny_models import make_classifier, make_transformer

ROWS, SHARDS = 124, 4
ROWS_PER_GROUP = 16  # of routed mining
TOPICS = (
    "where is my parcel",
    "the quick brown fox jumps over the lazy dog",
    "a man is playing the flute",
    "query: what does it cost",
)


def make_sentences(folder: Path) -> Path:
    """Writes a corpus of a few topics with duplicates, an empty text and a null."""
    texts: list[str | None] = [f"{TOPICS[row % 4]} {'abcdefgh'[row // 4 % 8] * (1 + row % 3)}" for row in range(ROWS)]
    texts[7], texts[11] = "", None
    table = pa.table({"id": [f"r{row:03}" for row in range(ROWS)], "text": texts})
    folder.mkdir()
    for shard in range(SHARDS):
        part = table.slice(shard * ROWS // SHARDS, ROWS // SHARDS)
        pq.write_table(part, folder / f"part-{shard}.parquet", row_group_size=16)
    return folder


class Commands:
    """Runs commands with the flags of an engine; several blocks and cells take part, so that there is work to share.

    What a command reads, besides the sentences, is always made without flags: engines share no mistakes.
    """

    def __init__(self, new_folder: Callable[[str], Path]) -> None:
        self._new_folder = new_folder
        self.sentences = make_sentences(new_folder("corpus") / "sentences")
        self.model = make_transformer(new_folder("model"))  # any process can load it
        self._cross_encoder = make_classifier(new_folder("cross-encoder"))
        self.output = functools.cache(self._new_output)

    def _new_output(self, command: str, flags: tuple[str, ...] = ()) -> Path:
        output = self._new_folder(command)
        assert self.run(command, output, flags) == 0
        return output

    def run(self, command: str, output: Path, flags: tuple[str, ...]) -> int:
        """Runs a command; returns its exit code."""
        arguments = [*self._arguments(command), "--output", str(output), *flags]
        with _small_limits(command):
            return main(arguments)

    def _arguments(self, command: str) -> list[str]:
        sentences, cross_encoder = str(self.sentences), ["--cross_encoder", str(self._cross_encoder)]
        if command in ("run", "embed"):
            return [command, "--input", sentences, "--model", str(self.model)]
        done = str(self.output("run"))
        if command == "search":
            corpus = ["--corpus", f"{done}/embeddings", "--block_rows=16", "--top_k=5"]
            return ["search", "--queries", f"{sentences}/part-0.parquet", *corpus, *cross_encoder]
        cluster = ["cluster", "--input", done, "--block_rows=32"]
        mining = ["mine", "--input", f"{done}/embeddings", "--top_k=8", "--block_rows=32"]
        return {
            "exact": mining,
            "routed": [*mining, "--index=routed", "--cells=6", "--probes=2"],
            "scored": [*mining, *cross_encoder],
            "leiden": cluster,
            "two levels": cluster,
            "hdbscan": [*cluster, "--algorithm=hdbscan"],
            "kmeans": [*cluster, "--algorithm=kmeans", "--k=4"],
            "existing": [*cluster, "--clusters", f"{done}/clusters"],
        }[command]


@contextlib.contextmanager
def _small_limits(command: str) -> Iterator[None]:
    """Has a small corpus divided as a large one is; both limits take effect where a job is started."""
    find = functools.partial(mine.FindRoutedNeighbors, group_rows=ROWS_PER_GROUP)
    limit = 1 if command == "two levels" else two_levels.FLAT_BYTES
    with mock.patch.object(mine, "FindRoutedNeighbors", find), mock.patch.object(two_levels, "FLAT_BYTES", limit):
        yield


def contents(folder: Path, counters: bool = True) -> dict[str, bytes]:
    """All files below a folder, but for how long things took, and perhaps what was counted."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): _timeless(path, counters) for path in paths}


def _timeless(path: Path, counters: bool) -> bytes:
    content = path.read_bytes()
    if path.name == "_run.json":
        figures = json.loads(content)
        figures.pop("seconds", None)
        figures["counters"].pop("encode/batch_latency_ms", None)
        if not counters:
            del figures["counters"]
            figures.pop("parts kept", None)
        return json.dumps(figures, sort_keys=True).encode()
    return re.sub(rb"(<dt>seconds to embed</dt><dd>)[\d.]+", rb"\1", content) if path.name == "report.html" else content
