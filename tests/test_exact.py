"""Exact neighbours by block pairs."""

import pytest

from benchmarks.shuffles import count_moves
from sbert_core.errors import DataError
from tests.corpora import clustered, write_vectors
from tests.mined_outputs import read_neighbors, run_transforms
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
