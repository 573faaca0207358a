"""Which of near-identical rows are kept, beside the rule as it is written."""

import numpy as np
import pytest

from sbert_core.neighbors.duplicate_groups import (
    assign_by_chains,
    assign_to_kept,
    choose_kept,
    index_pairs,
    keep_order,
)
from sbert_core.neighbors.pairs import Pairs


def random_pairs(rows: int, count: int, seed: int) -> Pairs:
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, rows, (count, 2))
    ends = np.sort(ends[ends[:, 0] != ends[:, 1]], axis=1).astype(np.uint32)
    keys, where = np.unique(ends, axis=0, return_index=True)
    scores = rng.integers(950, 960, len(keys)).astype(np.float32) / 1000  # many are equal
    return Pairs(ends[where, 0], ends[where, 1], scores)


def by_the_rule(pairs: Pairs, order: list[int]) -> dict[int, tuple[int, float]]:
    """Row by row: kept unless near a kept row; joined to the nearest kept row, of equal ones the first in order."""
    near: dict[int, dict[int, float]] = {row: {} for row in order}
    for first, second, score in zip(
        *(each.tolist() for each in (pairs.first, pairs.second, pairs.scores)), strict=True
    ):
        near[first][second] = near[second][first] = score
    kept: list[int] = []
    for row in order:
        if not any(other in near[row] for other in kept):
            kept.append(row)
    result = {row: (row, 1.0) for row in kept}
    for row in set(order) - set(kept):
        others = [other for other in kept if other in near[row]]
        best = max(others, key=lambda other: (near[row][other], -order.index(other)))
        result[row] = (best, near[row][best])
    return result


@pytest.mark.parametrize("seed", range(6))
def test_kept_rows_are_those_of_the_rule(seed):
    rows, pairs = index_pairs(random_pairs(80, 150, seed))
    values = np.random.default_rng(seed).integers(0, 5, len(rows))
    order = keep_order(values)
    kept = choose_kept(pairs, order)
    kept_rows, scores = assign_to_kept(pairs, order, kept)
    expected = by_the_rule(pairs, order.tolist())
    assert np.flatnonzero(kept).tolist() == sorted(row for row, (best, _) in expected.items() if row == best)
    assert kept_rows.tolist() == [expected[row][0] for row in range(len(rows))]
    assert scores.tolist() == pytest.approx([expected[row][1] for row in range(len(rows))])


def test_order_of_the_pairs_and_repeats_have_no_effect():
    pairs = random_pairs(200, 600, 0)
    shuffled = pairs[np.random.default_rng(1).permutation(np.tile(np.arange(len(pairs)), 2))]
    results = []
    for each in (pairs, shuffled):
        rows, placed = index_pairs(each)
        order = keep_order(np.zeros(len(rows)))
        results.append(assign_to_kept(placed, order, choose_kept(placed, order)))
    for found, expected in zip(*results, strict=True):
        assert found.tolist() == expected.tolist()


def test_equal_values_are_ordered_by_row():
    assert keep_order(np.array([1, 3, 1, 3])).tolist() == [1, 3, 0, 2]


def test_chains():
    rows, pairs = index_pairs(
        Pairs(np.array([1, 2, 7], np.uint32), np.array([2, 5, 9], np.uint32), np.ones(3, np.float32))
    )
    assert rows.tolist() == [1, 2, 5, 7, 9]
    assert assign_by_chains(pairs, np.arange(5)).tolist() == [0, 0, 0, 3, 3]
    assert assign_by_chains(pairs, np.array([4, 3, 2, 1, 0])).tolist() == [2, 2, 2, 4, 4]


def test_no_pairs():
    rows, pairs = index_pairs(Pairs(np.empty(0, np.uint32), np.empty(0, np.uint32), np.empty(0, np.float32)))
    order = keep_order(np.zeros(0))
    kept = choose_kept(pairs, order)
    assert [
        len(each) for each in (rows, kept, *assign_to_kept(pairs, order, kept), assign_by_chains(pairs, order))
    ] == [0] * 5
