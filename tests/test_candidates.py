"""Candidates as integers: packing, order and merging."""

import numpy as np

from sbert_core.neighbors.candidates import (
    EMPTY,
    MAX_ORDINAL,
    drop_empty,
    kth_scores,
    merge_candidates,
    ordinals_of,
    pack,
    restore_empty,
    scores_of,
)


def candidates_of(scores, ordinals) -> np.ndarray:
    return pack(np.array(scores, np.float32), np.array(ordinals, np.uint32))


def random_candidates(seed: int, count: int, levels: int) -> np.ndarray:
    """Candidates (n,) with few distinct scores and distinct ordinals."""
    rng = np.random.default_rng(seed)
    scores = np.linspace(-1, 1, levels, dtype=np.float32)[rng.integers(0, levels, count)]
    return pack(scores, rng.permutation(count).astype(np.uint32))


def test_round_trip():
    scores = np.array([1, 0.5, 1e-40, 0, -1e-40, -0.25, -1, -np.inf], np.float32)
    ordinals = np.array([0, 1, 7, MAX_ORDINAL, MAX_ORDINAL - 1, 2**31, 2**31 - 1, 3], np.uint32)
    candidates = pack(scores, ordinals)
    assert candidates.dtype == np.uint64
    assert scores_of(candidates).dtype == np.float32
    assert ordinals_of(candidates).dtype == np.uint32
    np.testing.assert_array_equal(scores_of(candidates), scores)
    np.testing.assert_array_equal(ordinals_of(candidates), ordinals)
    np.testing.assert_array_equal(scores_of(candidates.reshape(2, 4)), scores.reshape(2, 4))
    np.testing.assert_array_equal(ordinals_of(candidates.reshape(2, 4)), ordinals.reshape(2, 4))


def test_minus_zero_is_zero():
    assert candidates_of([-0.0], [5])[0] == candidates_of([0.0], [5])[0]
    assert not np.signbit(scores_of(candidates_of([-0.0], [5])))[0]


def test_scores_above_one_count_as_one():
    assert scores_of(candidates_of([1.0000001, 1.5, 1], [0, 1, 2])).tolist() == [1, 1, 1]
    assert np.argsort(candidates_of([1.0000001, 1.5, 1], [2, 1, 0])).tolist() == [0, 1, 2]  # the ordinal decides


def test_the_greater_integer_is_the_better_candidate():
    rng = np.random.default_rng(0)
    scores = np.concatenate([rng.uniform(-1, 1, 500), [0, -0.0, 1, -1, 1e-45, -1e-45], np.repeat([0.5, -0.5], 50)])
    scores = scores.astype(np.float32)
    ordinals = np.concatenate([rng.integers(0, 2**32, len(scores) - 2), [0, MAX_ORDINAL]]).astype(np.uint32)
    candidates = pack(scores, ordinals)
    np.testing.assert_array_equal(np.argsort(candidates)[::-1], np.lexsort((ordinals, -scores)))


def test_an_empty_slot_is_less_than_any_candidate():
    assert candidates_of([-np.inf], [MAX_ORDINAL])[0] > EMPTY
    assert np.isnan(scores_of(np.zeros((2, 3), np.uint64))).all()


def test_merge_counts_repeated_candidates_once():
    a, b, c = candidates_of([0.9, 0.5, 0.5], [3, 1, 2])
    merged = merge_candidates([np.array([[a, c, EMPTY]]), np.array([[a, b]]), np.array([[a, EMPTY]])], 4)
    assert merged.tolist() == [[a, b, c, EMPTY]]
    assert merge_candidates([np.array([[a, a, b, b, c]])], 2).tolist() == [[a, b]]
    assert merge_candidates([np.array([[b]])], 3).tolist() == [[b, EMPTY, EMPTY]]


def test_merge_is_associative_and_commutative():
    rng = np.random.default_rng(6)
    pool = random_candidates(6, 40, levels=5)
    parts = [np.where(rng.random((20, 8)) < 0.2, EMPTY, rng.choice(pool, (20, 8))) for _ in range(3)]
    at_once = merge_candidates(parts, 6)
    left = merge_candidates([merge_candidates(parts[:2], 6), parts[2]], 6)
    right = merge_candidates([parts[0], merge_candidates(parts[1:], 6)], 6)
    np.testing.assert_array_equal(left, at_once)
    np.testing.assert_array_equal(right, at_once)
    np.testing.assert_array_equal(merge_candidates(parts[::-1], 6), at_once)
    for row, found in enumerate(at_once):
        expected = sorted({int(c) for part in parts for c in part[row]} - {0}, reverse=True)[:6]
        assert found.tolist() == expected + [0] * (6 - len(expected))


def test_kth_scores_are_those_of_the_last_slot():
    candidates = np.stack([candidates_of([0.5, 0.25], [1, 2]), np.append(candidates_of([0.75], [3]), EMPTY)])
    assert kth_scores(candidates).tolist() == [0.25, -np.inf]
    assert kth_scores(candidates, min_score=0.125).tolist() == [0.25, 0.125]


def test_empty_slots_can_be_dropped_and_restored():
    candidates = np.sort(random_candidates(5, 60, 7).reshape(12, 5), axis=1)[:, ::-1].copy()
    for row, n_filled in enumerate([0, 5, 1, 0, 3, 5, 2, 4, 0, 0, 1, 5]):
        candidates[row, n_filled:] = EMPTY
    counts, filled = drop_empty(candidates)
    assert counts.nbytes == 12
    assert len(filled) == 26
    np.testing.assert_array_equal(restore_empty(counts, filled, 5), candidates)
    assert restore_empty(*drop_empty(np.zeros((0, 300), np.uint64)), 300).shape == (0, 300)
