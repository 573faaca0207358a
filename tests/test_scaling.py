"""What grows with a corpus, at 10,000 and 40,000 rows: shuffles, side inputs, and what the driver reads."""

import json
import shutil
import zlib
from collections import Counter
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
from sbert_core.clusters.communities import drop_small
from transforms.clusters.labels import number_clusters
from transforms.clusters.tally import (
    BUCKETS,
    CANDIDATES,
    Centers,
    Rows,
    deal_terms,
    join_tallies,
    merge_dealt,
    tally_block,
)
from transforms.dataset.write_parts import Part
from transforms.encode.encode_sentences import EncodeSentences
from transforms.neighbors import cell_files as cells
from transforms.neighbors import exact as neighbors
from transforms.neighbors import routed
from transforms.neighbors.cell_files import Turn, list_turns

SIZES = (10_000, 40_000)
BLOCK_ROWS, K, CLUSTERS = 2500, 8, 8
SIDE_INPUT_BYTES = 2**18
QUADRATIC = "FindNeighbors/Spread"  # of exact mining: the pairs of blocks


class TopicEncoder:
    """Vectors of 16 dimensions near those of the topics that texts name."""

    dim = 16
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


JOBS = ("embed", "mine exact", "mine routed", "cluster", "search")


@pytest.mark.parametrize("job", JOBS)
def test_shuffles_grow_no_faster_than_the_corpus(moves, job):
    small, large = moves[job]
    assert small.shuffles.keys() == large.shuffles.keys()
    assert any(each.elements > 1 for each in large.shuffles.values())
    for step, each in large.shuffles.items():
        if (job, step) != ("mine exact", QUADRATIC):
            assert each.elements <= 4.2 * small.shuffles[step].elements, step
            assert each.bytes <= 4.2 * small.shuffles[step].bytes, step


def test_exact_mining_shuffles_a_few_bytes_for_each_pair_of_blocks(moves):
    for rows, counts in zip(SIZES, moves["mine exact"], strict=True):
        blocks = rows // BLOCK_ROWS
        turns = counts.shuffles[QUADRATIC]
        assert turns.elements == blocks * (blocks + 1) // 2
        assert turns.bytes <= 40 * turns.elements
        assert counts.shuffles["FindNeighbors/MergeBest"].bytes <= 1.02 * rows * K * 8


def test_routed_mining_shuffles_candidates_not_vectors(moves):
    for rows, counts in zip(SIZES, moves["mine routed"], strict=True):
        assert counts.shuffles["FindNeighbors/MeetOnShelf"].bytes <= 1.1 * rows * (K * 8 + 4)


@pytest.mark.parametrize("job", JOBS)
def test_side_inputs_are_small(moves, job):
    for counts in moves[job]:
        assert {step: size for step, size in counts.side_inputs.items() if size > SIDE_INPUT_BYTES} == {}


@pytest.mark.parametrize("job", JOBS)
def test_one_worker_is_handed_what_its_step_needs(moves, job):
    """Parts of a dataset, pairs that count, and samples, which do not grow past a size."""
    grows = {"MineParaphrases/AllPairs", "GroupDuplicates/AllPairs", "ClusterCorpus/AllSamples"}
    small, large = moves[job]
    for step, size in large.gathered.items():
        assert size <= (4.2 if step in grows else 2.2) * small.gathered[step] + 16_000, step


@pytest.mark.parametrize("job", JOBS[1:])
def test_the_driver_reads_parts_not_rows(moves, job):
    small, large = moves[job]
    assert small.driver_bytes > 0
    assert large.driver_bytes <= 1.1 * small.driver_bytes + 10_000


@pytest.fixture(scope="module")
def skewed(tmp_path_factory) -> Path:
    """Nine of ten rows are of one topic."""
    folder = tmp_path_factory.mktemp("skewed")
    topics = np.where(np.arange(5000) % 10, 0, np.arange(5000) // 50)
    run_embed(write_sentences(folder / "sentences", topics), folder, BLOCK_ROWS)
    return folder


def test_a_crowded_cell_is_split(skewed):
    counters = run_mine(skewed, "routed", routes=1, audit_rows=10)
    assert counters["mine/cosines"] < 4500**2 / 10


@pytest.mark.parametrize("index", ["exact", "routed"])
def test_candidates_that_are_sent_on_early_are_the_same(skewed, tmp_path, monkeypatch, index):
    shutil.copytree(skewed / "embeddings", tmp_path / "embeddings")
    run_mine(skewed, index, audit_rows=10)
    monkeypatch.setattr(neighbors, "HELD_BYTES", 0)
    monkeypatch.setattr(routed, "HELD_BYTES", 0)
    with count_moves() as counts:
        run_mine(tmp_path, index, audit_rows=10)
    step = {"exact": "FindNeighbors/MergeBest", "routed": "FindNeighbors/MeetOnShelf"}[index]
    assert counts.shuffles[step].elements >= 4
    found = [pq.read_table(folder / index / "neighbors") for folder in (skewed, tmp_path)]
    assert found[0].equals(found[1])


def test_a_cell_of_rows_that_are_alike_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(TopicEncoder, "encode", lambda self, texts, **options: Encoded(
        np.repeat(np.eye(1, 16, dtype=np.float32), len(texts), 0), np.ones(len(texts), int), np.zeros(len(texts), bool)
    ))  # fmt: skip
    monkeypatch.setattr(cells, "CROWDED", 1)
    monkeypatch.setattr(cells, "MIN_CROWDED", 500)
    run_embed(write_sentences(tmp_path / "sentences", np.zeros(4000, int)), tmp_path, 1000)
    counters = run_mine(tmp_path, "routed", audit_rows=10)
    assert counters["mine/cosines"] <= 1.1 * 3 * 4000 * 500  # it is in three cells, each of 4000 rows
    manifest = json.loads((tmp_path / "routed/neighbors/_manifest.json").read_text())
    assert manifest["rows"] == 4000 * K


def test_turns_cover_all_cells_once():
    rng = np.random.default_rng(0)
    sizes = rng.integers(0, 200, 300)
    sizes[[3, 4, 299]] = 100_000
    turns = list(list_turns(sizes, cells=300))
    assert [cell for turn in turns if turn.part == 0 for cell in range(turn.low, turn.high)] == list(range(300))
    for crowded in (3, 4, 299):  # 32 times the mean are 35,000 rows
        assert [turn for turn in turns if turn.low == crowded] == [Turn(crowded, crowded + 1, n, 3) for n in range(3)]


def test_skew_does_not_change_what_kmeans_shuffles(skewed, moves):
    with count_moves() as counts:
        run_kmeans(skewed)
    for step in ("ClusterCorpus/AllSums3", "ClusterCorpus/Sizes", "ClusterCorpus/Describe/AllBlocks"):
        assert counts.shuffles[step].bytes <= 1.05 * moves["cluster"][0].shuffles[step].bytes, step


def test_clusters_are_numbered_as_if_all_labels_were_seen_at_once():
    rng = np.random.default_rng(0)
    labels = rng.choice(12, 300, p=np.array([*range(1, 9), 4, 4, 4, 4]) / 52)
    first = np.array([np.flatnonzero(labels == label)[0] for label in range(12)])
    numbers = number_clusters(np.bincount(labels, minlength=12), first, 10)
    np.testing.assert_array_equal(numbers[labels], drop_small(labels, 10))


def test_the_tally_of_blocks_is_that_of_all_rows():
    rng = np.random.default_rng(0)
    labels, ranks = rng.integers(-1, 5, 4000), rng.permutation(4000).astype(np.uint32)
    cosines, vectors = rng.random(4000, np.float32), rng.random((4000, 3), np.float32)
    centers = Centers(np.zeros((5, 3), np.float32), np.bincount(labels[labels >= 0]))
    everything = Rows(labels, ranks, cosines, vectors)
    tallies = [
        tally_block(
            Part(name=str(rows[0]), rows=len(rows), sha256=""), everything[rows], labels[rows].tolist(), centers, 4000
        )
        for rows in np.array_split(rng.permutation(4000), 7)
    ]
    found = join_tallies([join_tallies(tallies[4:]), *tallies[:4]])
    assert found.noise == (labels == -1).sum()
    assert found.truth == Counter((str(label), label) for label in labels.tolist())
    for number, size in enumerate(centers.sizes):
        own = np.flatnonzero(labels == number)
        assert found.near.of(number).ranks.tolist() == ranks[own[np.argsort(-cosines[own])[:CANDIDATES]]].tolist()
        assert found.reach(number, size) == pytest.approx(np.quantile(cosines[own], 0.01), abs=1e-6)
        assert found.cohesion(number, size) == pytest.approx(cosines[own].mean(), abs=1e-6)


def test_terms_are_added_up_by_bucket_and_the_rarest_left_out():
    parts = [{0: {"often": 3, "seldom": 1}, 1: {"often": 1}}, {0: {"often": 2}, -1: {"else": 5}}]
    dealt: dict[int, list[bytes]] = {}
    for part in parts:
        for bucket, content in deal_terms(part):
            dealt.setdefault(bucket, []).append(content)
    assert all(0 <= bucket < BUCKETS for bucket in dealt)
    merged = [merge_dealt(contents) for contents in dealt.values()]
    assert sum(found.get(0, {}).get("often", 0) for found in merged) == 5
    assert sum(found.get(-1, {}).get("else", 0) for found in merged) == 5
    many = deal_terms({0: {f"term{number}": number for number in range(200)}})
    assert 0 < sum(len(merge_dealt([content], limit=1)[0]) for _, content in many) <= BUCKETS


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("ReadSentences/Spread/ReshufflePerKey/GroupByKey", "ReadSentences/Spread"),
        ("Write/AllParts/AllParts/CombinePerKey/Group", "Write/AllParts"),
        ("GroupDuplicates/AllPairs/InjectDefault", "GroupDuplicates/AllPairs"),
    ],
)
def test_steps_are_told_by_our_labels(name, step):
    assert step_of(name) == step


def test_the_document_has_the_figures_of_the_results():
    text = scale_model.DOCUMENT.read_text(encoding="utf-8")
    assert scale_model.render(text) == text
