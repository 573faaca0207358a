"""What grows with a corpus: elements, bytes and opened files at three sizes, with few bundles and one per element."""

import re
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from benchmarks import scale_model
from benchmarks.shuffles import Counts, Moved, count_moves, kind_of_file, step_of
from pipelines import mine
from pipelines.mine_options import MineOptions
from sbert_core.clusters.algorithms import KMeans
from tests.corpora import make_corpus, write_vectors
from tests.scaling_jobs import (
    BLOCK_ROWS,
    CHUNK_ROWS,
    FEW,
    JOBS,
    MANY,
    RANGE_BYTES,
    RUNNERS,
    RUNS,
    TOPICS,
    K,
    count_jobs,
    run_cluster,
    run_embed,
    run_mine,
    small_pieces,
    write_sentences,
)
from transforms.clusters.micro_graph import MAX_ELEMENT_EDGES, divide_edges
from transforms.neighbors import tile_tasks

SIZES = (120, 240, 480)  # each twice the one before: 3, 6 and 12 blocks
MAX_GROWTH = 2.3  # what grew with the square would grow 4 times, with n ** 1.5 2.8 times
FEW_ELEMENTS, FEW_BYTES = 6, 3000  # as much may be added: a count of some pieces is rounded up
MAX_ELEMENT_BYTES = 4_000_000
PART_BYTES = 300  # of the description of a part or a block

slow = pytest.mark.slow

CHUNKS_BY_RANGES = re.compile(r"AssignOrdinals/(Split|GroupByRange|Sort|GroupByChunk)")
"""Each chunk sends something to each range: chunks x ranges elements. Bytes grow with the ids; see `ordinals`."""

GROUPS_BY_PARTNERS = re.compile(r"^work (across|within|group|found)$")
"""Files of routed mining: a group is compared with the groups that its rows probe, a few hundred at most."""

LISTS_OF_PARTS = re.compile(
    r"(/Plan|Draft|AllDrafts|AllParts|Publish|Summarize|GroupDuplicates)$|AssignOrdinals/\w*Chunks$"
)
"""Elements that list parts, blocks or slices: `PART_BYTES` for each."""

CELLS = re.compile(r"RouteRows/(Route|AllSizes|LayOutCells)")
"""Elements of routed mining that count the rows of each cell: 8 bytes for each of at most `MAX_CELLS` cells."""


@pytest.fixture(scope="module")
def moves(tmp_path_factory) -> dict[tuple[str, str], list[Counts]]:
    """What each job moves at each size, by runner and job."""
    found: dict[tuple[str, str], list[Counts]] = {}
    for rows in SIZES:
        for key, counts in count_jobs(tmp_path_factory.mktemp(f"rows-{rows}"), rows).items():
            found.setdefault(key, []).append(counts)
    return found


every_job = pytest.mark.parametrize("job", JOBS)
every_runner = pytest.mark.parametrize("runner", RUNNERS)


def growing_faster(
    small: dict[str, int], large: dict[str, int], allowed: int, growth: float = MAX_GROWTH
) -> dict[str, tuple[int, int]]:
    """What grew more than it may, with both values."""
    names = [name for name in large if large[name] > growth * small.get(name, 0) + allowed]
    return {name: (small.get(name, 0), large[name]) for name in names}


def values_of(moved: dict[str, Moved], name: str, but: re.Pattern[str]) -> dict[str, int]:
    return {step: getattr(each, name) for step, each in moved.items() if not but.search(step)}


@slow
@every_runner
@every_job
def test_what_goes_between_steps_grows_no_faster_than_the_corpus(moves, runner, job):
    found = [counts.moved for counts in moves[runner, job]]
    assert any(each.elements > 2 for each in found[-1].values())
    for small, large in ((found[0], found[1]), (found[1], found[2])):
        for name, allowed in (("elements", FEW_ELEMENTS), ("bytes", FEW_BYTES)):
            faster = CHUNKS_BY_RANGES.pattern if name == "elements" else "AssignOrdinals"
            small_values, large_values = (values_of(each, name, re.compile(faster)) for each in (small, large))
            assert growing_faster(small_values, large_values, allowed) == {}


@slow
@every_runner
@every_job
def test_opened_files_grow_no_faster_than_the_corpus(moves, runner, job):
    found = moves[runner, job]
    for small, large in ((found[0], found[1]), (found[1], found[2])):
        for name, allowed in (("opened", FEW_ELEMENTS), ("written", FEW_ELEMENTS), ("read_bytes", 20_000)):
            faster = growing_faster(getattr(small, name), getattr(large, name), allowed)
            assert [kind for kind in faster if not GROUPS_BY_PARTNERS.search(kind)] == [], faster
    n_groups = SIZES[-1] // BLOCK_ROWS + 1
    for kind in filter(GROUPS_BY_PARTNERS.search, found[-1].opened):
        assert found[-1].opened[kind] <= 4 * n_groups**2


@slow
@every_runner
@every_job
def test_folders_are_listed_a_few_times_however_large_the_corpus_is(moves, runner, job):
    found = moves[runner, job]
    assert found[-1].listings <= found[0].listings + FEW_ELEMENTS


@slow
@every_runner
@every_job
def test_no_element_grows_with_the_corpus(moves, runner, job):
    """Blocks have the same rows at all sizes, so an element has the same bytes unless it gathers something."""
    small, _, large = (counts.moved for counts in moves[runner, job])
    gathering = re.compile(f"{LISTS_OF_PARTS.pattern}|{CELLS.pattern}|{CHUNKS_BY_RANGES.pattern}")
    small_values, large_values = (values_of(each, "largest", gathering) for each in (small, large))
    assert growing_faster(small_values, large_values, 1000, growth=1.3) == {}
    n_blocks = SIZES[-1] // BLOCK_ROWS
    lists = {step: each.largest for step, each in large.items() if LISTS_OF_PARTS.search(step)}
    assert {step: size for step, size in lists.items() if size > PART_BYTES * n_blocks + 6000} == {}


@slow
@every_runner
def test_sorting_sends_something_from_each_chunk_to_each_range(moves, runner):
    for rows, counts in zip(SIZES, moves[runner, "mine exact"], strict=True):
        chunks, id_bytes = -(-rows // CHUNK_ROWS), rows * 11  # seven characters and an offset
        for step in ("GroupByRange", "GroupByChunk"):
            moved = counts.shuffles[f"FindNeighbors/AssignOrdinals/{step}"]
            assert 0 < moved.elements <= chunks * (2 * id_bytes // RANGE_BYTES + 1)
            assert moved.bytes <= 40 * rows + 1000 * moved.elements


def count_exact(folder: Path, rows: int, max_run_rows: int) -> Counts:
    write_sentences(folder / "sentences", np.arange(rows) * TOPICS // rows)
    with small_pieces(), mock.patch.object(tile_tasks, "MAX_RUN_ROWS", max_run_rows):
        run_embed(folder / "sentences", folder)
        with count_moves() as counts:
            run_mine(folder, folder, RUNNERS[MANY])
    return counts


@slow
def test_exact_mining_has_a_task_for_each_two_runs_and_sends_a_block_once_per_run(tmp_path, moves):
    """Past the largest run there are more of them: tasks and bytes then grow with the square of the corpus."""
    rows = SIZES[-1]
    blocks = rows // BLOCK_ROWS
    many_runs = count_exact(tmp_path, rows, max_run_rows=2 * BLOCK_ROWS)
    for runs, counts in ((RUNS, moves[MANY, "mine exact"][-1]), (blocks // 2, many_runs)):
        tasks = counts.shuffles["FindNeighbors/Spread"]
        assert tasks.elements == runs * (runs + 1) // 2
        assert tasks.bytes <= 150 * tasks.elements
        sent = counts.shuffles["FindNeighbors/GroupByBlock"]
        assert sent.elements == runs * blocks
        assert sent.bytes <= runs * rows * (K * 8 + 1) + 400 * sent.elements
        assert counts.opened["part"] < 6 * runs * blocks


@slow
@every_job
def test_the_driver_reads_parts_not_rows(moves, job):
    found = [counts.driver_bytes for counts in moves[FEW, job]]
    assert found[-1] <= MAX_GROWTH**2 * found[0] + 10_000


@pytest.fixture(scope="module")
def skewed(tmp_path_factory) -> Path:
    """Nine of ten rows are of one topic."""
    folder = tmp_path_factory.mktemp("skewed")
    rows = np.arange(SIZES[1])
    with small_pieces():
        run_embed(write_sentences(folder / "sentences", np.where(rows % 10, 0, rows // 20)), folder)
    return folder


@slow
def test_skew_does_not_change_what_kmeans_shuffles(skewed, moves):
    with small_pieces(), count_moves() as counts:
        run_cluster(skewed, skewed, [], algorithm="kmeans", k="8")
    for step in ("ClusterCorpus/AllSums1/Add", "ClusterCorpus/Sizes", "ClusterCorpus/Describe/AllTallies"):
        usual = moves[FEW, "cluster kmeans"][1].shuffles[step]
        assert counts.shuffles[step].bytes <= 1.05 * usual.bytes + 500, step


def largest_elements(run: Callable[[], None]) -> dict[str, int]:
    """The steps with elements of more than 4 MB, with no steps fused."""
    with small_pieces(), count_moves() as counts:
        run()
    assert max(each.largest for each in counts.moved.values()) > 500_000  # the corpus is as large as it has to be
    return {step: each.largest for step, each in counts.moved.items() if each.largest > MAX_ELEMENT_BYTES}


@slow
@pytest.mark.parametrize("index", ["exact", "routed"])
def test_mining_a_whole_block_with_100_neighbours_has_no_large_element(tmp_path, index):
    """All rows are near each other, so that every candidate is a pair of paraphrases and of duplicates."""
    rng = np.random.default_rng(0)
    vectors = (1 + 0.05 * rng.normal(size=(8200, 8))).astype(np.float32)
    options = {"top_k": 100, "min_score": 0.1, "duplicate_score": 0.5, "max_pairs": 1000, "index": index}
    pattern = write_vectors(tmp_path / "in", vectors, 1)
    find = MineOptions(input=pattern, output=str(tmp_path / "out"), **options)
    assert largest_elements(lambda: mine.run(find, RUNNERS[MANY]) and None) == {}


@slow
def test_a_thousand_clusters_of_1024_dimensions_have_no_large_element(tmp_path, monkeypatch):
    n_clusters = 1100
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(2 * n_clusters, 1024)).astype(np.float32)
    make_corpus(tmp_path, vectors, np.zeros(len(vectors), int), shards=1, mined=False)
    monkeypatch.setattr(KMeans, "start_centers", lambda self, sample, settings: sample[:n_clusters])
    monkeypatch.setattr("tests.scaling_jobs.BLOCK_ROWS", 8192)
    options = {"algorithm": "kmeans", "k": str(n_clusters), "min_size": 1}
    assert largest_elements(lambda: run_cluster(tmp_path, tmp_path / "out", RUNNERS[MANY], **options)) == {}


def test_weights_between_micro_clusters_come_in_pieces():
    keys = np.arange(3 * MAX_ELEMENT_EDGES, dtype=np.int64)
    pieces = list(divide_edges((keys, np.ones_like(keys)), n_micro=256))
    assert max(len(piece) for _, (piece, _) in pieces) == MAX_ELEMENT_EDGES
    assert sorted({bucket for bucket, _ in pieces}) == [0, 1]
    np.testing.assert_array_equal(np.sort(np.concatenate([piece for _, (piece, _) in pieces])), keys)


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("ReadSentences/Spread/ReshufflePerKey/GroupByKey", "ReadSentences/Spread"),
        ("Write/AllParts/AllParts/CombinePerKey/Group", "Write/AllParts"),
        ("GroupDuplicates/AllBuckets/InjectDefault", "GroupDuplicates/AllBuckets"),
    ],
)
def test_steps_have_our_labels(name, step):
    assert step_of(name) == step


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("out/embeddings/_manifest.json", "manifest"),
        ("out/_mine/0123456789abcdef/tile-000000-000001-000000-000001.npz", "work tile"),
        ("out/_ordinals/0123456789abcdef/ids-000000.arrow", "ordinals ids"),
        ("sentences/part-000000.parquet", "input"),
    ],
)
def test_files_have_a_kind(path, kind):
    assert kind_of_file(path) == kind


def test_the_document_has_the_figures_of_the_results():
    text = scale_model.DOCUMENT.read_text(encoding="utf-8")
    assert scale_model.render(text) == text
