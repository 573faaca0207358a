"""The best k candidates of each row against a plain sort."""

import numpy as np
import pytest

from sbert_core.neighbors.candidates import EMPTY, ordinals_of, pack, scores_of
from sbert_core.neighbors.topk import TopK


def candidates_of(scores, ordinals) -> np.ndarray:
    return pack(np.array(scores, np.float32), np.array(ordinals, np.uint32))


def random_candidates(seed: int, rows: int, count: int, levels: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n,) and candidates (n,) with few different scores; the ordinals of a row differ."""
    rng = np.random.default_rng(seed)
    scores = np.linspace(-1, 1, levels, dtype=np.float32)[rng.integers(0, levels, count)]
    return rng.integers(0, rows, count), pack(scores, rng.permutation(count).astype(np.uint32))


def brute_force(rows, candidates, count: int, k: int, min_score: float = -np.inf) -> np.ndarray:
    """The best (score descending, ordinal ascending) of each row, by Python's sort."""
    result = np.zeros((count, k), np.uint64)
    for row in range(count):
        own = candidates[rows == row]
        own = own[scores_of(own) >= np.float32(min_score)]
        order = sorted(range(len(own)), key=lambda n: (-scores_of(own)[n], ordinals_of(own)[n]))
        result[row, : min(k, len(own))] = own[order[:k]]
    return result


def add_in_pieces(topk: TopK, rows: np.ndarray, candidates: np.ndarray, size: int, seed: int = 0) -> None:
    """Adds pieces of `size` in a random order, without candidates below the thresholds."""
    order = np.random.default_rng(seed).permutation(len(rows))
    for start in range(0, len(rows), size):
        piece = order[start : start + size]
        piece = piece[np.argsort(rows[piece], kind="stable")]
        piece = piece[scores_of(candidates[piece]) >= topk.thresholds[rows[piece]]]
        topk.add(rows[piece], candidates[piece])


@pytest.mark.parametrize("k", [1, 8, 9, 40, 300])
@pytest.mark.parametrize("size", [3, 100, 5000])
def test_equals_a_plain_sort(k, size):
    rows, candidates = random_candidates(k, rows=13, count=2000, levels=9)
    topk = TopK(13, k)
    add_in_pieces(topk, rows, candidates, size)
    np.testing.assert_array_equal(topk.candidates(), brute_force(rows, candidates, 13, k))


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_pieces_does_not_matter(seed):
    rows, candidates = random_candidates(1, rows=5, count=3000, levels=4)
    topk = TopK(5, 10)
    add_in_pieces(topk, rows, candidates, 1 + 50 * seed, seed)
    np.testing.assert_array_equal(topk.candidates(), brute_force(rows, candidates, 5, 10))


@pytest.mark.parametrize("k", [1, 20, 500])
def test_thousands_of_candidates_for_one_row(k):
    rows, candidates = random_candidates(2, rows=3, count=9000, levels=200)
    rows = np.where(rows == 2, 1, rows)  # row 2 has none
    order = np.argsort(rows, kind="stable")
    topk = TopK(3, k)
    topk.add(rows[order], candidates[order])
    np.testing.assert_array_equal(topk.candidates(), brute_force(rows, candidates, 3, k))
    assert (topk.candidates()[2] == EMPTY).all()


@pytest.mark.parametrize("ascending", [True, False])
def test_sorted_input(ascending):
    candidates = np.sort(random_candidates(3, 1, 4000, levels=1000)[1])[:: 1 if ascending else -1]
    topk = TopK(1, 5)
    topk.add(np.zeros(4000, np.int64), candidates)
    np.testing.assert_array_equal(topk.candidates()[0], np.sort(candidates)[::-1][:5])


@pytest.mark.parametrize("min_score", [-0.5, 0.25, 1])
def test_min_score(min_score):
    rows, candidates = random_candidates(4, rows=4, count=1500, levels=9)
    topk = TopK(4, 30, min_score)
    assert (topk.thresholds == min_score).all()
    add_in_pieces(topk, rows, candidates, 64)
    expected = brute_force(rows, candidates, 4, 30, min_score)
    np.testing.assert_array_equal(topk.candidates(), expected)
    np.testing.assert_array_equal(scores_of(expected)[expected != EMPTY] >= min_score, True)


def test_min_score_applies_to_all_candidates():
    topk = TopK(1, 5, 0.5)
    topk.add(np.zeros(2, np.int64), candidates_of([0.1, 0.7], [0, 1]))
    assert ordinals_of(topk.candidates()[0, :1]).tolist() == [1]
    assert (topk.candidates()[0, 1:] == EMPTY).all()


@pytest.mark.parametrize("k", [1, 6, 50])
def test_thresholds_rise_and_never_exceed_the_kth_score(k):
    rows, candidates = random_candidates(5, rows=4, count=4000, levels=50)
    topk = TopK(4, k)
    for start in range(0, 4000, 400):
        piece = np.arange(start, start + 400)
        piece = piece[np.argsort(rows[piece], kind="stable")]
        before = topk.thresholds.copy()
        topk.add(rows[piece], candidates[piece])
        seen = brute_force(rows[: start + 400], candidates[: start + 400], 4, k)[:, -1]
        kth = np.where(seen == EMPTY, -np.inf, scores_of(seen))
        assert (topk.thresholds >= before).all()
        assert (topk.thresholds <= kth).all()
    assert (topk.thresholds > -np.inf).all()  # enough candidates to fill the buffer of each row
    assert topk.common_threshold is None


def test_the_common_threshold_is_kept_until_one_rises():
    topk = TopK(2, 1, 0.25)
    topk.add(np.array([0, 1]), candidates_of([0.5, 0.75], [0, 1]))
    assert topk.common_threshold == 0.25
    topk.add(np.zeros(100, np.int64), candidates_of(np.linspace(0.25, 1, 100), np.arange(100)))
    assert topk.common_threshold is None
    assert topk.thresholds[0] > 0.25
    assert topk.thresholds[1] == 0.25


def test_nothing_added():
    topk = TopK(3, 2)
    topk.add(np.empty(0, np.int64), np.empty(0, np.uint64))
    assert topk.candidates().tolist() == [[0, 0]] * 3
    assert TopK(0, 2).candidates().shape == (0, 2)
