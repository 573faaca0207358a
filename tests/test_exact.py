"""Exact neighbours by runs of blocks."""

import itertools
from pathlib import Path

import pytest

from benchmarks.shuffles import count_moves
from sbert_core.errors import DataError
from sbert_core.process_cache import ByteCache
from tests.corpora import clustered, write_vectors
from tests.mined_outputs import read_neighbors, run_transforms
from transforms.neighbors import exact
from transforms.neighbors.block_cache import load_block
from transforms.neighbors.exact import FindNeighbors
from transforms.neighbors.mining_plan import check_row_count
from transforms.neighbors.write_neighbors import WriteNeighbors


@pytest.mark.slow
def test_candidates_that_are_emitted_early_give_the_same_result(tmp_path):
    pattern = write_vectors(tmp_path / "in", clustered(200), 2)
    emitted = {}
    for name, options in (("late", {}), ("early", {"max_held_bytes": 0})):
        find = FindNeighbors(corpus=pattern, work=str(tmp_path / f"_{name}"), k=8, block_rows=50, **options)
        with count_moves() as counts:
            run_transforms(find, {"Write": WriteNeighbors(folder=str(tmp_path / name / "neighbors"))})
        emitted[name] = counts.shuffles["FindNeighbors/GroupByBlock"].elements
    assert emitted["late"] < emitted["early"]
    assert read_neighbors(tmp_path / "early").equals(read_neighbors(tmp_path / "late"))


def sent_bytes(folder: Path, rows: int, **options) -> int:
    """The bytes of candidates that are shuffled if each task is a bundle of its own, as on a large cluster."""
    pattern = write_vectors(folder / "in", clustered(rows), 1)
    find = FindNeighbors(corpus=pattern, work=str(folder / "_work"), k=8, max_held_bytes=0, **options)
    with count_moves() as counts:
        run_transforms(find, {"Write": WriteNeighbors(folder=str(folder / "neighbors"))})
    return counts.shuffles["FindNeighbors/GroupByBlock"].bytes


@pytest.mark.slow
def test_what_is_sent_grows_with_the_corpus_and_not_with_its_square(tmp_path):
    sizes = (480, 960, 1920)  # 24, 48 and 96 blocks in 12 runs
    sent = [sent_bytes(tmp_path / str(rows), rows, block_rows=20) for rows in sizes]
    for smaller, larger in itertools.pairwise(sent):
        assert larger <= 2.1 * smaller
    for rows, each in zip(sizes, sent, strict=True):
        assert each <= 1.25 * rows * 8 * 8 * 12  # rows * k * 8 bytes * runs, and a byte per row, and keys


@pytest.mark.slow
def test_empty_slots_are_not_sent(tmp_path):
    all_slots = sent_bytes(tmp_path / "all", 960, block_rows=80)
    assert sent_bytes(tmp_path / "few", 960, block_rows=80, min_score=0.999) < 0.2 * all_slots


@pytest.mark.slow
@pytest.mark.parametrize("cache_bytes", [0, 2**20])
def test_a_small_cache_gives_the_same_result(tmp_path, monkeypatch, cache_bytes):
    pattern = write_vectors(tmp_path / "in", clustered(400), 2)
    cache = ByteCache(cache_bytes)

    def cached_block(corpus, number, group_column):
        return cache.get(number, lambda: load_block(corpus, corpus.blocks[number], group_column))

    for name in ("usual", "small"):
        if name == "small":
            monkeypatch.setattr(exact, "cached_block", cached_block)
        find = FindNeighbors(corpus=pattern, work=str(tmp_path / f"_{name}"), k=8, block_rows=10)
        run_transforms(find, {"Write": WriteNeighbors(folder=str(tmp_path / name / "neighbors"))})
    assert read_neighbors(tmp_path / "small").equals(read_neighbors(tmp_path / "usual"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "at least 1"),
        ({"block_rows": 0}, "at least 1"),
        ({"pairing": "some"}, "one of all, within, across"),
        ({"pairing": "within"}, "belong together"),
        ({"group_column": "lang"}, "belong together"),
    ],
)
def test_impossible_settings(options, message):
    with pytest.raises(DataError, match=message):
        FindNeighbors(corpus="unused", work="unused", **options)


def test_a_corpus_with_more_rows_than_ordinals():
    class Huge:
        name, rows = "huge", 2**32

    with pytest.raises(DataError, match=r"huge has 4,294,967,296 rows, the limit is 4,294,967,295"):
        check_row_count(Huge())
