"""Candidates as numbers, and the best k of each row against a plain sort."""

import numpy as np
import pytest

from sbert_core.neighbors.topk import EMPTY, MAX_RANK, TopK, merge_best, pack, ranks_of, scores_of


def candidates_of(scores, ranks) -> np.ndarray:
    return pack(np.array(scores, np.float32), np.array(ranks, np.uint32))


def random_candidates(seed: int, rows: int, count: int, levels: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n,) and candidates (n,) with few different scores; the ranks of a row differ."""
    rng = np.random.default_rng(seed)
    scores = np.linspace(-1, 1, levels, dtype=np.float32)[rng.integers(0, levels, count)]
    return rng.integers(0, rows, count), pack(scores, rng.permutation(count).astype(np.uint32))


def brute_force(rows, candidates, count: int, k: int, min_score: float = -np.inf) -> np.ndarray:
    """The best (score descending, rank ascending) of each row, by Python's sort."""
    result = np.zeros((count, k), np.uint64)
    for row in range(count):
        own = candidates[rows == row]
        own = own[scores_of(own) >= np.float32(min_score)]
        order = sorted(range(len(own)), key=lambda n: (-scores_of(own)[n], ranks_of(own)[n]))
        result[row, : min(k, len(own))] = own[order[:k]]
    return result


def add_in_pieces(best: TopK, rows: np.ndarray, candidates: np.ndarray, size: int, seed: int = 0) -> None:
    """Adds pieces of `size`, ascending in row, in an order that depends on the seed; keeps to the floors."""
    order = np.random.default_rng(seed).permutation(len(rows))
    for start in range(0, len(rows), size):
        piece = order[start : start + size]
        piece = piece[np.argsort(rows[piece], kind="stable")]
        piece = piece[scores_of(candidates[piece]) >= best.floors[rows[piece]]]
        best.add(rows[piece], candidates[piece])


def test_round_trip():
    scores = np.array([1, 0.5, 1e-40, 0, -1e-40, -0.25, -1, -np.inf], np.float32)
    ranks = np.array([0, 1, 7, MAX_RANK, MAX_RANK - 1, 2**31, 2**31 - 1, 3], np.uint32)
    candidates = pack(scores, ranks)
    assert candidates.dtype == np.uint64
    assert scores_of(candidates).dtype == np.float32
    assert ranks_of(candidates).dtype == np.uint32
    np.testing.assert_array_equal(scores_of(candidates), scores)
    np.testing.assert_array_equal(ranks_of(candidates), ranks)
    np.testing.assert_array_equal(scores_of(candidates.reshape(2, 4)), scores.reshape(2, 4))
    np.testing.assert_array_equal(ranks_of(candidates.reshape(2, 4)), ranks.reshape(2, 4))


def test_minus_zero_is_zero():
    assert candidates_of([-0.0], [5])[0] == candidates_of([0.0], [5])[0]
    assert not np.signbit(scores_of(candidates_of([-0.0], [5])))[0]


def test_past_one_is_one():
    assert scores_of(candidates_of([1.0000001, 1.5, 1], [0, 1, 2])).tolist() == [1, 1, 1]
    assert np.argsort(candidates_of([1.0000001, 1.5, 1], [2, 1, 0])).tolist() == [0, 1, 2]  # rank decides


def test_the_greater_number_is_the_better_candidate():
    rng = np.random.default_rng(0)
    scores = np.concatenate([rng.uniform(-1, 1, 500), [0, -0.0, 1, -1, 1e-45, -1e-45], np.repeat([0.5, -0.5], 50)])
    scores = scores.astype(np.float32)
    ranks = np.concatenate([rng.integers(0, 2**32, len(scores) - 2), [0, MAX_RANK]]).astype(np.uint32)
    candidates = pack(scores, ranks)
    np.testing.assert_array_equal(np.argsort(candidates)[::-1], np.lexsort((ranks, -scores)))


def test_the_empty_place():
    assert candidates_of([-np.inf], [MAX_RANK])[0] > EMPTY
    assert np.isnan(scores_of(np.zeros((2, 3), np.uint64))).all()


@pytest.mark.parametrize("k", [1, 2, 7, 8, 9, 40, 300])
@pytest.mark.parametrize("size", [3, 100, 5000])
def test_equals_a_plain_sort(k, size):
    rows, candidates = random_candidates(k, rows=13, count=2000, levels=9)
    best = TopK(13, k)
    add_in_pieces(best, rows, candidates, size)
    np.testing.assert_array_equal(best.best(), brute_force(rows, candidates, 13, k))


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_pieces_does_not_matter(seed):
    rows, candidates = random_candidates(1, rows=5, count=3000, levels=4)
    best = TopK(5, 10)
    add_in_pieces(best, rows, candidates, 1 + 50 * seed, seed)
    np.testing.assert_array_equal(best.best(), brute_force(rows, candidates, 5, 10))


@pytest.mark.parametrize("k", [1, 20, 500])
def test_thousands_for_one_row(k):
    rows, candidates = random_candidates(2, rows=3, count=9000, levels=200)
    rows = np.where(rows == 2, 1, rows)  # row 2 has none
    order = np.argsort(rows, kind="stable")
    best = TopK(3, k)
    best.add(rows[order], candidates[order])
    np.testing.assert_array_equal(best.best(), brute_force(rows, candidates, 3, k))
    assert (best.best()[2] == EMPTY).all()


@pytest.mark.parametrize("ascending", [True, False])
def test_best_first_and_best_last(ascending):
    candidates = np.sort(random_candidates(3, 1, 4000, levels=1000)[1])[:: 1 if ascending else -1]
    best = TopK(1, 5)
    best.add(np.zeros(4000, np.int64), candidates)
    np.testing.assert_array_equal(best.best()[0], np.sort(candidates)[::-1][:5])


@pytest.mark.parametrize("min_score", [-0.5, 0.25, 1])
def test_min_score(min_score):
    rows, candidates = random_candidates(4, rows=4, count=1500, levels=9)
    best = TopK(4, 30, min_score)
    assert (best.floors == min_score).all()
    add_in_pieces(best, rows, candidates, 64)
    expected = brute_force(rows, candidates, 4, 30, min_score)
    np.testing.assert_array_equal(best.best(), expected)
    np.testing.assert_array_equal(scores_of(expected)[expected != EMPTY] >= min_score, True)


def test_min_score_without_a_look_at_the_floors():
    best = TopK(1, 5, 0.5)
    best.add(np.zeros(2, np.int64), candidates_of([0.1, 0.7], [0, 1]))
    assert ranks_of(best.best()[0, :1]).tolist() == [1]
    assert (best.best()[0, 1:] == EMPTY).all()


@pytest.mark.parametrize("k", [1, 6, 50])
def test_floors_rise_and_never_pass_the_kth_best(k):
    rows, candidates = random_candidates(5, rows=4, count=4000, levels=50)
    best = TopK(4, k)
    for start in range(0, 4000, 400):
        piece = np.arange(start, start + 400)
        piece = piece[np.argsort(rows[piece], kind="stable")]
        before = best.floors.copy()
        best.add(rows[piece], candidates[piece])
        seen = brute_force(rows[: start + 400], candidates[: start + 400], 4, k)[:, -1]
        kth = np.where(seen == EMPTY, -np.inf, scores_of(seen))
        assert (best.floors >= before).all()
        assert (best.floors <= kth).all()
    assert (best.floors > -np.inf).all()  # so many that each row has overflown
    assert best.level is None


def test_the_level_stays_until_a_floor_rises():
    best = TopK(2, 1, 0.25)
    best.add(np.array([0, 1]), candidates_of([0.5, 0.75], [0, 1]))
    assert best.level == 0.25
    best.add(np.zeros(100, np.int64), candidates_of(np.linspace(0.25, 1, 100), np.arange(100)))
    assert best.level is None
    assert best.floors[0] > 0.25
    assert best.floors[1] == 0.25


def test_nothing_added():
    best = TopK(3, 2)
    best.add(np.empty(0, np.int64), np.empty(0, np.uint64))
    assert best.best().tolist() == [[0, 0]] * 3
    assert TopK(0, 2).best().shape == (0, 2)


def test_merge_counts_once_what_is_found_twice():
    a, b, c = candidates_of([0.9, 0.5, 0.5], [3, 1, 2])
    merged = merge_best([np.array([[a, c, EMPTY]]), np.array([[a, b]]), np.array([[a, EMPTY]])], 4)
    assert merged.tolist() == [[a, b, c, EMPTY]]
    assert merge_best([np.array([[a, a, b, b, c]])], 2).tolist() == [[a, b]]
    assert merge_best([np.array([[b]])], 3).tolist() == [[b, EMPTY, EMPTY]]


def test_merge_is_associative_and_commutative():
    rng = np.random.default_rng(6)
    pool = random_candidates(6, 1, 40, levels=5)[1]
    parts = [np.where(rng.random((20, 8)) < 0.2, EMPTY, rng.choice(pool, (20, 8))) for _ in range(3)]
    at_once = merge_best(parts, 6)
    left = merge_best([merge_best(parts[:2], 6), parts[2]], 6)
    right = merge_best([parts[0], merge_best(parts[1:], 6)], 6)
    np.testing.assert_array_equal(left, at_once)
    np.testing.assert_array_equal(right, at_once)
    np.testing.assert_array_equal(merge_best(parts[::-1], 6), at_once)
    for row, found in enumerate(at_once):
        expected = sorted({int(c) for part in parts for c in part[row]} - {0}, reverse=True)[:6]
        assert found.tolist() == expected + [0] * (6 - len(expected))
