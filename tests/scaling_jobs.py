"""All jobs on a small corpus whose work is divided as that of a large one is: what tests of growth run and count."""

import contextlib
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.shuffles import Counts, count_moves
from pipelines import cluster, embed, folder_progress, mine, search
from pipelines.cluster_options import ClusterOptions
from pipelines.embed_options import EmbedOptions
from pipelines.mine_options import MineOptions
from pipelines.search_options import SearchOptions
from sbert_beam import Encoded
from sbert_core.clusters import two_levels
from sbert_core.clusters.algorithms import KMeans
from tests.engines import many_bundles
from transforms.clusters import label_in_levels, tally
from transforms.dataset.assign_ordinals import AssignOrdinals
from transforms.encode.encode_sentences import EncodeSentences
from transforms.neighbors import tile_tasks
from transforms.neighbors.route_rows import RoutingSettings

BLOCK_ROWS, K, CLUSTERS, QUERIES = 40, 8, 8, 20
CHUNK_ROWS, RANGE_BYTES = 80, 800  # of the sort of ids
RUNS = 3  # of blocks, in exact mining
ROUNDS = 2  # of k-means
TOPICS = 8  # as many at every size: what clusters need does not depend on the rows
SAMPLE_ROWS, EXEMPLARS = 60, 5  # of leiden in two levels, and of a cluster: as with a large corpus, all are there
FEW, MANY = "few bundles", "one bundle per element"
RUNNERS: dict[str, list[str]] = {FEW: [], MANY: ["--runner=tests.engines.many_bundles.ManyBundlesRunner"]}


class TopicEncoder:
    """Vectors of 32 dimensions near those of the topics that texts name."""

    dim = 32
    fingerprint = "topics"

    def encode(self, texts, **options) -> Encoded:
        topics = np.random.default_rng(0).normal(size=(1000, self.dim))
        rng = np.random.default_rng(zlib.crc32(texts[0].encode()))
        named = [int(text.split()[-1]) if text[-1].isdigit() else 0 for text in texts]
        vectors = topics[named] + 0.3 * rng.normal(size=(len(texts), self.dim))
        return Encoded(vectors.astype(np.float32), np.full(len(texts), 5), np.zeros(len(texts), bool))

    @classmethod
    def load(cls, model, **options) -> "TopicEncoder":
        return cls()


def write_sentences(folder: Path, topics: np.ndarray) -> Path:
    folder.mkdir(parents=True)
    rows = np.arange(len(topics))
    for part in np.array_split(rows, 4):
        texts = [f"row {row:06} is of topic {topics[row]}" for row in part]
        table = pa.table({"id": [f"r{row:06}" for row in part], "text": texts})
        pq.write_table(table, folder / f"part-{part[0]:06}.parquet")
    return folder


def run_embed(sentences: Path, output: Path, flags: list[str] | None = None) -> None:
    options = EmbedOptions(input=[str(sentences)], output=str(output), slice_rows=BLOCK_ROWS)
    embed.run(options, flags or [], encode=embed.make_encode(options, load=TopicEncoder.load))


def run_mine(folder: Path, output: Path, flags: list[str], **options: Any) -> None:
    settings = {"top_k": K, "min_score": 0.9, "block_rows": BLOCK_ROWS, **options}
    mine.run(MineOptions(input=str(folder / "embeddings"), output=str(output), **settings), flags)


def run_cluster(folder: Path, output: Path, flags: list[str], **options: Any) -> None:
    cluster.run(ClusterOptions(input=str(folder), output=str(output), block_rows=BLOCK_ROWS, **options), flags)


def run_search(folder: Path, output: Path, flags: list[str]) -> None:
    queries = folder / "queries.txt"
    queries.write_text("".join(f"about topic {topic}\n" for topic in range(QUERIES)))
    options = SearchOptions(
        queries=str(queries), corpus=str(folder / "embeddings"), output=str(output), block_rows=BLOCK_ROWS
    )
    search.run(options, flags, encode=EncodeSentences(model="topics", load=TopicEncoder.load))


@contextlib.contextmanager
def small_pieces() -> Iterator[None]:
    """Divides the work of a few hundred rows into as many pieces as that of millions; bundles are not repeated."""
    with contextlib.ExitStack() as stack:
        for name in ("LOST_SHARE", "TWIN_SHARE", "NEW_WORKER_SHARE"):
            stack.enter_context(mock.patch.object(many_bundles, name, 0))
        stack.enter_context(mock.patch.object(tile_tasks, "MIN_RUNS", RUNS))
        stack.enter_context(mock.patch.object(KMeans, "rounds", ROUNDS))
        stack.enter_context(mock.patch.object(label_in_levels, "SAMPLE_ROWS", SAMPLE_ROWS))
        stack.enter_context(mock.patch.object(tally, "EXEMPLAR_CANDIDATES", EXEMPLARS))
        # It lists a folder every second, however few rows there are.
        stack.enter_context(mock.patch.object(folder_progress, "list_folder", return_value={}))
        sort = {"chunk_rows": CHUNK_ROWS, "range_bytes": RANGE_BYTES}
        for transform, defaults in ((AssignOrdinals, sort), (RoutingSettings, {"group_rows": BLOCK_ROWS})):
            stack.enter_context(mock.patch.dict(transform.__init__.__kwdefaults__, defaults))
        yield


def _two_levels(folder: Path, output: Path, flags: list[str]) -> None:
    with mock.patch.object(two_levels, "FLAT_BYTES", 1):
        run_cluster(folder, output, flags)


def _routed(folder: Path, output: Path, flags: list[str]) -> None:
    rows = pq.ParquetDataset(folder / "sentences").read(["id"]).num_rows
    run_mine(folder, output, flags, index="routed", cells=rows // 12, probes=2, audit_rows=50)


JOBS: dict[str, Callable[[Path, Path, list[str]], None]] = {
    "embed": lambda folder, output, flags: run_embed(folder / "sentences", output, flags),
    "mine exact": run_mine,
    "mine routed": _routed,
    "cluster leiden": run_cluster,
    "cluster leiden in two levels": _two_levels,
    "cluster kmeans": lambda folder, output, flags: run_cluster(
        folder, output, flags, algorithm="kmeans", k=str(CLUSTERS)
    ),
    "search": run_search,
}


def count_jobs(folder: Path, rows: int) -> dict[tuple[str, str], Counts]:
    """What each job moves on a corpus of so many rows, by runner and job."""
    found: dict[tuple[str, str], Counts] = {}
    write_sentences(folder / "sentences", np.arange(rows) * TOPICS // rows)
    with small_pieces():
        run_embed(folder / "sentences", folder)
        # The last to mine has the output that clusters read; the others sort the ids too.
        for job, run in JOBS.items():
            for runner in (MANY, FEW):
                output = folder if (runner, job) == (FEW, "mine exact") else folder / f"{job} in {runner}"
                with count_moves() as counts:
                    run(folder, output, RUNNERS[runner])
                found[runner, job] = counts
    return found
