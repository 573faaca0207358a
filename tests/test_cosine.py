"""Tiles of cosines against a plain product and sort."""

import itertools

import numpy as np
import pytest
import torch

from sbert_core.neighbors import cosine
from sbert_core.neighbors.candidates import EMPTY, merge_candidates, ordinals_of, scores_of
from sbert_core.neighbors.cosine import Block, compare, unit_rows
from sbert_core.neighbors.topk import TopK

SMALL_TILE = 64  # rows


def random_rows(n: int, dim: int = 24, seed: int = 0) -> np.ndarray:
    """Unit rows, half of them near another."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, dim))
    rows[n // 2 :] = rows[: n - n // 2] + 0.3 * rng.normal(size=(n - n // 2, dim))
    return unit_rows(rows)[0]


def exact_rows(n: int, seed: int = 0, different: int = 150) -> np.ndarray:
    """Unit rows, most of them several times, whose products have no rounding and few different values."""
    rng = np.random.default_rng(seed)
    return rng.choice(np.float32([-0.25, 0.25]), (different, 16))[rng.integers(0, different, n)]


def block_of(rows: np.ndarray, first_ordinal: int = 0, groups: np.ndarray | None = None) -> Block:
    return Block(torch.from_numpy(rows), np.arange(first_ordinal, first_ordinal + len(rows), dtype=np.uint32), groups)


def brute_force(left: np.ndarray, right: np.ndarray, k: int, min_score=-np.inf, counts=None) -> tuple:
    """Indices (n, k) and scores (n, k) of the best; -1 and nan behind. `counts` (n, m): which pairs count."""
    scores = np.clip(left.astype(np.float64) @ right.astype(np.float64).T, None, 1)
    scores[(scores < min_score) | (False if counts is None else ~counts)] = -np.inf
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    found = np.take_along_axis(scores, order, axis=1)
    padding = (0, 0), (0, k - order.shape[1])
    order, found = np.pad(order, padding, constant_values=-1), np.pad(found, padding, constant_values=-np.inf)
    return np.where(found == -np.inf, -1, order), np.where(found == -np.inf, np.nan, found)


def assert_best(topk: TopK, indices: np.ndarray, scores: np.ndarray, first_ordinal: int = 0) -> None:
    found = topk.candidates()
    np.testing.assert_allclose(scores_of(found), scores, atol=1e-5)
    ours = np.where(found == EMPTY, -1, ordinals_of(found).astype(int) - first_ordinal)
    close = np.abs(np.diff(scores, axis=1)) < 1e-6  # two whose order is up to rounding
    either = np.pad(close, ((0, 0), (1, 0))) | np.pad(close, ((0, 0), (0, 1)))
    np.testing.assert_array_equal(np.where(either, 0, ours), np.where(either, 0, indices))
    assert either.mean() < 0.01


def neighbors(rows: np.ndarray, k: int, cuts=(), min_score=-np.inf, seed: int | None = None, **options) -> np.ndarray:
    """The best (n, k) of the rows, in blocks cut at `cuts`, compared in an order that depends on the seed."""
    edges = [0, *cuts, len(rows)]
    blocks = [block_of(rows[start:stop], start) for start, stop in itertools.pairwise(edges)]
    topks = [TopK(len(block), k, min_score) for block in blocks]
    block_pairs = list(itertools.combinations_with_replacement(range(len(blocks)), 2))
    if seed is not None:
        rng = np.random.default_rng(seed)
        rng.shuffle(block_pairs)
        block_pairs = [pair[:: rng.choice([1, -1])] for pair in block_pairs]
    for i, j in block_pairs:
        compare(blocks[i], blocks[j], topks[i], topks[j], **options)
    return np.concatenate([topk.candidates() for topk in topks])


SIZES = [1, 63, 64, 65, 129, 300]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("min_score", [-np.inf, 0.25])
def test_a_block_and_itself(n, min_score):
    rows = random_rows(n)
    topk = TopK(n, 5, min_score)
    block = block_of(rows, 7)
    compare(block, block, topk, tile_rows=SMALL_TILE)
    assert_best(topk, *brute_force(rows, rows, 5, min_score, ~np.eye(n, dtype=bool)), first_ordinal=7)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("m", [1, 64, 200])
@pytest.mark.parametrize("min_score", [-np.inf, 0.25])
def test_two_blocks(n, m, min_score):
    left, right = random_rows(n), random_rows(m, seed=1)
    left_topk, right_topk, only_left = TopK(n, 5, min_score), TopK(m, 5, min_score), TopK(n, 5, min_score)
    compare(block_of(left, 1000), block_of(right), left_topk, right_topk, tile_rows=SMALL_TILE)
    assert_best(left_topk, *brute_force(left, right, 5, min_score))
    assert_best(right_topk, *brute_force(right, left, 5, min_score), first_ordinal=1000)
    compare(block_of(left, 1000), block_of(right), only_left, tile_rows=SMALL_TILE)
    np.testing.assert_array_equal(only_left.candidates(), left_topk.candidates())


@pytest.mark.parametrize("n", [1, 50, 333])
def test_default_tiles(n):
    rows, others = random_rows(n), random_rows(210, seed=1)
    topk, other_topk = TopK(n, 4), TopK(210, 4)
    block = block_of(rows)
    compare(block, block, topk)
    assert_best(topk, *brute_force(rows, rows, 4, counts=~np.eye(n, dtype=bool)))
    topk = TopK(n, 4)
    compare(block, block_of(others), topk, other_topk)
    assert_best(topk, *brute_force(rows, others, 4))
    assert_best(other_topk, *brute_force(others, rows, 4))


def test_more_than_one_default_tile():
    rows = random_rows(cosine.TILE_ROWS + 3, dim=8)
    block, topk = block_of(rows), TopK(len(rows), 3)
    compare(block, block, topk)
    assert_best(topk, *brute_force(rows, rows, 3, counts=~np.eye(len(rows), dtype=bool)))


@pytest.mark.parametrize("k", [1, 40, 70, 200, 1000])
def test_many_neighbors(k):
    rows = random_rows(200, dim=6)
    block, topk = block_of(rows), TopK(200, k)
    compare(block, block, topk, tile_rows=SMALL_TILE)
    assert_best(topk, *brute_force(rows, rows, k, counts=~np.eye(200, dtype=bool)))


def test_sides_with_different_thresholds():
    left, right = random_rows(90), random_rows(80, seed=1)
    left_topk, right_topk = TopK(90, 5, 0.1), TopK(80, 3, 0.3)
    compare(block_of(left), block_of(right), left_topk, right_topk)
    assert_best(left_topk, *brute_force(left, right, 5, 0.1))
    assert_best(right_topk, *brute_force(right, left, 3, 0.3))


@pytest.mark.parametrize("same_group", [True, False])
@pytest.mark.parametrize("min_score", [-np.inf, 0.2])
def test_groups(same_group, min_score):
    rng = np.random.default_rng(3)
    left, right = random_rows(150), random_rows(100, seed=1)
    left_groups, right_groups = rng.integers(0, 4, 150), rng.integers(0, 5, 100)
    left_block, right_block = block_of(left, groups=left_groups), block_of(right, groups=right_groups)

    counts = (left_groups[:, None] == right_groups) == same_group
    left_topk, right_topk = TopK(150, 30, min_score), TopK(100, 30, min_score)
    compare(left_block, right_block, left_topk, right_topk, same_group, SMALL_TILE)
    assert_best(left_topk, *brute_force(left, right, 30, min_score, counts))
    assert_best(right_topk, *brute_force(right, left, 30, min_score, counts.T))

    counts = ((left_groups[:, None] == left_groups) == same_group) & ~np.eye(150, dtype=bool)
    topk = TopK(150, 30, min_score)
    compare(left_block, left_block, topk, same_group=same_group, tile_rows=SMALL_TILE)
    assert_best(topk, *brute_force(left, left, 30, min_score, counts))


def test_groups_are_used_only_with_same_group():
    rows = random_rows(20)
    block, topk, plain = block_of(rows, groups=np.zeros(20, int)), TopK(20, 3), TopK(20, 3)
    compare(block, block, topk)
    without = block_of(rows)
    compare(without, without, plain)
    np.testing.assert_array_equal(topk.candidates(), plain.candidates())
    with pytest.raises(ValueError, match="groups"):
        compare(without, without, plain, same_group=True)


CUTS = [(), (1,), (37, 100, 101, 166), tuple(range(20, 200, 20))]


@pytest.mark.parametrize("min_score", [-np.inf, 0.5])
@pytest.mark.parametrize("k", [3, 33])
def test_blocks_tiles_and_order_have_no_effect(k, min_score):
    rows = exact_rows(200)
    indices, scores = brute_force(rows, rows, k, min_score, ~np.eye(200, dtype=bool))
    for (tile_rows, cuts), seed in zip(itertools.product((2048, 128, 32), CUTS), itertools.cycle((None, 0, 1))):
        best = neighbors(rows, k, cuts, min_score, seed, tile_rows=tile_rows)
        np.testing.assert_array_equal(np.where(best == EMPTY, -1, ordinals_of(best).astype(int)), indices)
        np.testing.assert_array_equal(scores_of(best), scores.astype(np.float32))


def test_the_rows_of_these_tests_have_many_ties():
    rows = exact_rows(200)
    scores = brute_force(rows, rows, 4, counts=~np.eye(200, dtype=bool))[1]
    assert (scores[:, 2] == scores[:, 3]).mean() > 0.5  # the last of three could be another


def test_partial_results_can_be_merged():
    rows, others = exact_rows(100), exact_rows(300, seed=1)
    whole, parts = TopK(100, 9), [TopK(100, 9) for _ in range(3)]
    compare(block_of(rows), block_of(others), whole)
    for number, part in enumerate(parts):
        compare(block_of(rows), block_of(others[number * 100 : number * 100 + 100], number * 100), part)
    np.testing.assert_array_equal(merge_candidates([part.candidates() for part in parts], 9), whole.candidates())


@pytest.mark.parametrize("copies", [20, 200])
def test_a_cosine_just_above_one_is_no_better_than_one(copies):
    above = np.nextafter(np.float32(1), np.float32(2))
    topk = TopK(1, 3)
    compare(block_of(np.ones((1, 1), np.float32)), block_of(np.array([[1]] + [[above]] * copies, np.float32)), topk)
    assert ordinals_of(topk.candidates()).tolist() == [[0, 1, 2]]


def test_empty_blocks():
    nothing, rows = block_of(np.empty((0, 24), np.float32)), block_of(random_rows(5))
    none, some = TopK(0, 3), TopK(5, 3)
    compare(nothing, rows, none, some)
    compare(rows, nothing, some, none)
    compare(nothing, nothing, none)
    assert none.candidates().shape == (0, 3)
    assert (some.candidates() == EMPTY).all()
