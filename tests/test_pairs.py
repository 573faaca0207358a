"""Pairs by hand."""

import numpy as np
import pytest

from sbert_core.neighbors.candidates import EMPTY, pack
from sbert_core.neighbors.pairs import (
    Pairs,
    join_pairs,
    limit_per_row,
    margin_scores,
    mean_scores,
    merge_pairs,
    pairs_of,
)


def make(*pairs: tuple[int, int, float]) -> Pairs:
    first, second, scores = zip(*pairs, strict=True) if pairs else ((), (), ())
    return Pairs(np.array(first, np.uint32), np.array(second, np.uint32), np.array(scores, np.float32))


def listed(pairs: Pairs) -> list[tuple[int, int, float]]:
    return list(zip(pairs.first.tolist(), pairs.second.tolist(), pairs.scores.tolist(), strict=True))


def candidates_of(*rows: list[tuple[float, int]], k: int = 2) -> np.ndarray:
    """Candidates (n, k) of rows of scores and ordinals."""
    candidates = np.zeros((len(rows), k), np.uint64)
    for number, row in enumerate(rows):
        for slot, (score, ordinal) in enumerate(row):
            candidates[number, slot] = pack(np.array([score], np.float32), np.array([ordinal], np.uint32))[0]
    return candidates


CANDIDATES = candidates_of([(0.75, 9), (0.5, 2)], [], [(-0.25, 4)])
ORDINALS = np.array([4, 7, 9], np.uint32)


@pytest.mark.parametrize(
    ("side", "expected"),
    [
        ("first", [(4, 9, 0.75), (4, 2, 0.5), (9, 4, -0.25)]),
        ("second", [(9, 4, 0.75), (2, 4, 0.5), (4, 9, -0.25)]),
        ("either", [(4, 9, 0.75), (2, 4, 0.5), (4, 9, -0.25)]),
    ],
)
def test_sides(side, expected):
    pairs = pairs_of(CANDIDATES, ORDINALS, side)
    assert listed(pairs) == expected
    assert (pairs.first.dtype, pairs.second.dtype, pairs.scores.dtype) == (np.uint32, np.uint32, np.float32)


def test_either_is_the_default():
    assert listed(pairs_of(CANDIDATES, ORDINALS)) == listed(pairs_of(CANDIDATES, ORDINALS, "either"))


def test_length_and_choice():
    pairs = make((0, 1, 0.5), (0, 2, 0.25), (1, 2, 0.75))
    assert len(pairs) == 3
    assert listed(pairs[1:]) == [(0, 2, 0.25), (1, 2, 0.75)]
    assert listed(pairs[np.array([True, False, False])]) == [(0, 1, 0.5)]


def test_sorted_by_score_then_ordinals():
    pairs = make((3, 4, 0.5), (1, 9, 0.5), (1, 2, 0.5), (7, 8, -1), (5, 6, 0.75))
    assert listed(pairs.sorted()) == [(5, 6, 0.75), (1, 2, 0.5), (1, 9, 0.5), (3, 4, 0.5), (7, 8, -1)]


def test_join():
    assert listed(join_pairs([make((1, 2, 0.5)), make(), make((0, 1, 0.25))])) == [(1, 2, 0.5), (0, 1, 0.25)]


def test_merge_has_each_pair_once():
    parts = [make((5, 6, 0.5), (0, 1, 0.25), (5, 6, 0.5)), make((0, 2, 0.75), (0, 1, 0.25))]
    assert listed(merge_pairs(parts)) == [(0, 1, 0.25), (0, 2, 0.75), (5, 6, 0.5)]
    assert listed(merge_pairs(parts, mutual=True)) == [(0, 1, 0.25), (5, 6, 0.5)]


def test_the_order_within_a_pair_is_kept():
    top = 2**32 - 1
    assert listed(merge_pairs([make((1, 0, 0.5), (0, 1, 0.5), (top, 0, 0.5), (0, top, 0.5))])) == [
        (0, 1, 0.5),
        (0, top, 0.5),
        (1, 0, 0.5),
        (top, 0, 0.5),
    ]


def test_mutual_across_two_corpora():
    first = pairs_of(candidates_of([(0.5, 1)], [(0.75, 1)], k=1), np.arange(2, dtype=np.uint32), "first")
    second = pairs_of(candidates_of([], [(0.75, 1)], k=1), np.arange(2, dtype=np.uint32), "second")
    assert listed(merge_pairs([first, second])) == [(0, 1, 0.5), (1, 1, 0.75)]
    assert listed(merge_pairs([first, second], mutual=True)) == [(1, 1, 0.75)]


def test_mean_scores():
    means = mean_scores(candidates_of([(0.75, 1), (0.25, 2)], [], [(0.5, 3)], [(-0.5, 3), (-1, 4)]))
    assert means.dtype == np.float32
    assert means.tolist() == [0.5, 0, 0.5, -0.75]
    assert mean_scores(np.full((0, 3), EMPTY)).shape == (0,)


def test_margin_by_hand():
    pairs = make((0, 1, 0.75), (1, 0, 0.75), (2, 2, 0.5), (2, 1, -0.25))
    first, second = np.array([0.5, 1, 0], np.float32), np.array([0.25, 0.25, -0.5], np.float32)
    scores = margin_scores(pairs, first, second)
    assert scores.dtype == np.float32
    # 0.75 / 0.375, 0.75 / 0.625, a neighbourhood of -0.25 has no ratio, -0.25 / 0.125
    np.testing.assert_allclose(scores, [2, 1.2, 0, -2], rtol=1e-6)


@pytest.mark.parametrize(
    ("k", "expected"),
    [
        (1, [(0, 1), (2, 3)]),
        (2, [(0, 1), (0, 2), (1, 3), (2, 3)]),
        (3, [(0, 1), (0, 2), (0, 3), (1, 3), (2, 3)]),
        (9, [(0, 1), (0, 2), (0, 3), (1, 3), (2, 3)]),
    ],
)
def test_limit_by_hand(k, expected):
    pairs = make((0, 1, 0.9), (0, 2, 0.8), (0, 3, 0.7), (1, 3, 0.6), (2, 3, 0.5))
    limited = pairs[limit_per_row(pairs, k)]
    assert [(first, second) for first, second, _ in listed(limited)] == expected


@pytest.mark.parametrize("k", [1, 3, 10])
def test_limit_is_greedy_and_leaves_nothing_out_without_need(k):
    rng = np.random.default_rng(k)
    first, second = np.triu_indices(40, 1)
    scores = rng.random(len(first)).astype(np.float32)
    pairs = Pairs(first.astype(np.uint32), second.astype(np.uint32), scores).sorted()
    kept = set(listed(pairs[limit_per_row(pairs, k)]))
    counts = np.zeros(40, int)
    for pair in listed(pairs):
        assert (pair in kept) == (counts[list(pair[:2])] < k).all()
        counts[list(pair[:2])] += pair in kept
    assert counts.max() == k


def test_nothing():
    nothing = join_pairs([])
    assert listed(nothing) == listed(nothing.sorted()) == []
    assert listed(merge_pairs([])) == listed(merge_pairs([make()], mutual=True)) == []
    assert listed(nothing[limit_per_row(nothing, 3)]) == []
    assert listed(pairs_of(np.zeros((0, 4), np.uint64), np.empty(0, np.uint32))) == []
    assert listed(pairs_of(np.zeros((2, 4), np.uint64), np.arange(2, dtype=np.uint32))) == []
    assert len(margin_scores(nothing, np.zeros(0, np.float32), np.zeros(0, np.float32))) == 0
    assert (nothing.first.dtype, nothing.scores.dtype) == (np.uint32, np.float32)
