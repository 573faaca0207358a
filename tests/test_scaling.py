"""What grows with a corpus, at 2,500 and 10,000 rows: shuffles, side inputs, and what the driver reads."""

import json
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import scale_model
from benchmarks.shuffles import Counts, count_moves, step_of
from pipelines import cluster, embed, mine, search
from pipelines.cluster_options import ClusterOptions
from pipelines.embed_options import EmbedOptions
from pipelines.mine_options import MineOptions
from pipelines.search_options import SearchOptions
from sbert_beam import Encoded
from transforms.encode.encode_sentences import EncodeSentences

SIZES = (2500, 10_000)
BLOCK_ROWS, K, CLUSTERS = 625, 8, 8
MAX_GROWTH = 5  # the corpus grows 4 times; what grew with its square would grow 16 times
SIDE_INPUT_BYTES = 2**18
QUADRATIC = "FindNeighbors/Spread"  # the block pairs of exact mining


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


def run_embed(sentences: Path, output: Path, slice_rows: int) -> None:
    options = EmbedOptions(input=[str(sentences)], output=str(output), slice_rows=slice_rows)
    embed.run(options, encode=embed.make_encode(options, load=TopicEncoder.load))


def run_mine(folder: Path, index: str, **options) -> dict:
    output = folder / index
    mine.run(
        MineOptions(
            input=str(folder / "embeddings"),
            output=str(output),
            top_k=K,
            min_score=0.9,
            index=index,
            block_rows=BLOCK_ROWS,
            **options,
        )
    )
    return json.loads((output / "neighbors/_run.json").read_text())["counters"]


def run_kmeans(folder: Path, k: int = CLUSTERS) -> None:
    options = {"input": str(folder), "output": str(folder), "algorithm": "kmeans", "k": str(k)}
    cluster.run(ClusterOptions(**options, block_rows=BLOCK_ROWS))


def run_search(folder: Path) -> None:
    queries = folder / "queries.txt"
    queries.write_text("".join(f"about topic {topic}\n" for topic in range(50)))
    options = {"queries": str(queries), "corpus": str(folder / "embeddings"), "output": str(folder)}
    encode = EncodeSentences(model="topics", load=TopicEncoder.load)
    search.run(SearchOptions(**options, block_rows=BLOCK_ROWS), encode=encode)


@pytest.fixture(scope="module")
def moves(tmp_path_factory) -> dict[str, list[Counts]]:
    """What each job moves at each size. The corpus is in four parts, whatever its size."""
    found: dict[str, list[Counts]] = {}
    for rows in SIZES:
        folder = tmp_path_factory.mktemp(f"rows-{rows}")
        sentences = write_sentences(folder / "sentences", np.arange(rows) // 50)
        run_embed(sentences, folder, rows // 4)
        jobs = {
            "embed": lambda folder=folder: run_embed(folder / "sentences", folder / "sliced", 1000),
            "mine exact": lambda folder=folder: run_mine(folder, "exact"),
            "mine routed": lambda folder=folder: run_mine(folder, "routed", audit_rows=200),
            "cluster": lambda folder=folder: run_kmeans(folder),
            "search": lambda folder=folder: run_search(folder),
        }
        for job, run in jobs.items():
            with count_moves() as counts:
                run()
            found.setdefault(job, []).append(counts)
    return found


slow = pytest.mark.slow
JOBS = ("embed", "mine exact", "mine routed", "cluster", "search")


@slow
@pytest.mark.parametrize("job", JOBS)
def test_shuffles_grow_no_faster_than_the_corpus(moves, job):
    small, large = moves[job]
    assert small.shuffles.keys() == large.shuffles.keys()
    assert any(each.elements > 1 for each in large.shuffles.values())
    for step, each in large.shuffles.items():
        if (job, step) != ("mine exact", QUADRATIC):
            assert each.elements <= MAX_GROWTH * small.shuffles[step].elements, step
            assert each.bytes <= MAX_GROWTH * small.shuffles[step].bytes, step


@slow
def test_exact_mining_shuffles_a_few_bytes_per_block_pair(moves):
    for rows, counts in zip(SIZES, moves["mine exact"], strict=True):
        blocks = rows // BLOCK_ROWS
        block_pairs = counts.shuffles[QUADRATIC]
        assert block_pairs.elements == blocks * (blocks + 1) // 2
        assert block_pairs.bytes <= 40 * block_pairs.elements
        assert counts.shuffles["FindNeighbors/GroupByBlock"].bytes <= 1.02 * rows * K * 8


@slow
def test_routed_mining_shuffles_candidates_not_vectors(moves):
    for rows, counts in zip(SIZES, moves["mine routed"], strict=True):
        assert counts.shuffles["FindNeighbors/GroupByBlockRange"].bytes <= 1.1 * rows * (K * 8 + 4)


@slow
@pytest.mark.parametrize("job", JOBS)
def test_side_inputs_are_small(moves, job):
    for counts in moves[job]:
        assert {step: size for step, size in counts.side_inputs.items() if size > SIDE_INPUT_BYTES} == {}


@slow
@pytest.mark.parametrize("job", JOBS)
def test_one_worker_gets_no_more_than_its_step_needs(moves, job):
    """Parts of a dataset, near pairs, and samples, which have a maximum size."""
    grows = {"MineParaphrases/AllPairs", "GroupDuplicates/AllPairs", "ClusterCorpus/AllSamples"}
    small, large = moves[job]
    for step, size in large.gathered.items():
        assert size <= (MAX_GROWTH if step in grows else 2.2) * small.gathered[step] + 16_000, step


@slow
@pytest.mark.parametrize("job", JOBS[1:])
def test_the_driver_reads_parts_not_rows(moves, job):
    small, large = moves[job]
    assert small.driver_bytes > 0
    assert large.driver_bytes <= 1.1 * small.driver_bytes + 10_000


@pytest.fixture(scope="module")
def skewed(tmp_path_factory) -> Path:
    """Nine of ten rows are of one topic."""
    folder = tmp_path_factory.mktemp("skewed")
    topics = np.where(np.arange(1250) % 10, 0, np.arange(1250) // 50)
    run_embed(write_sentences(folder / "sentences", topics), folder, BLOCK_ROWS)
    return folder


@slow
def test_skew_does_not_change_what_kmeans_shuffles(skewed, moves):
    with count_moves() as counts:
        run_kmeans(skewed)
    for step in ("ClusterCorpus/AllSums3", "ClusterCorpus/Sizes", "ClusterCorpus/Describe/AllBlocks"):
        assert counts.shuffles[step].bytes <= 1.05 * moves["cluster"][0].shuffles[step].bytes, step


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("ReadSentences/Spread/ReshufflePerKey/GroupByKey", "ReadSentences/Spread"),
        ("Write/AllParts/AllParts/CombinePerKey/Group", "Write/AllParts"),
        ("GroupDuplicates/AllPairs/InjectDefault", "GroupDuplicates/AllPairs"),
    ],
)
def test_steps_have_our_labels(name, step):
    assert step_of(name) == step


def test_the_document_has_the_figures_of_the_results():
    text = scale_model.DOCUMENT.read_text(encoding="utf-8")
    assert scale_model.render(text) == text
