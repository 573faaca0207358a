"""Candidates packed into integers: a neighbour's score and its ordinal in one unsigned 64-bit number.

The ordinal of a row is its position in the order of ids. The score is in the upper 32 bits and the ordinal, inverted,
in the lower 32 bits. So the greater number is the better candidate, and of equal scores the lower ordinal is better.
Selecting neighbours is then selecting the largest integers, and the result does not depend on the order in which
candidates are found.
"""

from collections.abc import Iterable

import numpy as np

MAX_ORDINAL = 2**32 - 1
EMPTY = np.uint64(0)  # a slot without a candidate; less than any candidate

_SIGN_BIT = np.uint32(0x80000000)


def pack(scores: np.ndarray, ordinals: np.ndarray) -> np.ndarray:
    """Candidates (n,) uint64 from scores (n,) float32 and ordinals (n,) uint32.

    Scores above 1, which rounding of a cosine can produce, count as 1.
    """
    bits = (np.minimum(scores, np.float32(1)) + np.float32(0)).view(np.uint32)  # adding 0 turns -0 into 0
    # The bits of floats sort like integers once the sign bit is flipped, or all bits if the float is negative.
    sortable = np.where(bits & _SIGN_BIT, ~bits, bits | _SIGN_BIT)
    return sortable.astype(np.uint64) << np.uint64(32) | (MAX_ORDINAL - ordinals.astype(np.uint64))


def scores_of(candidates: np.ndarray) -> np.ndarray:
    """The float32 scores of candidates, in the same shape; NaN for an empty slot."""
    sortable = (candidates >> np.uint64(32)).astype(np.uint32)
    return np.where(sortable & _SIGN_BIT, sortable ^ _SIGN_BIT, ~sortable).view(np.float32)


def ordinals_of(candidates: np.ndarray) -> np.ndarray:
    """The uint32 ordinals of candidates, in the same shape; not meaningful for an empty slot."""
    return (MAX_ORDINAL - (candidates & np.uint64(MAX_ORDINAL))).astype(np.uint32)


def merge_candidates(parts: Iterable[np.ndarray], k: int) -> np.ndarray:
    """The best k (n, k) of several arrays of candidates (n, any) per row, best first.

    A candidate that is in several arrays counts once. Missing candidates are EMPTY.
    """
    merged = np.sort(np.concatenate(list(parts), axis=1), axis=1)[:, ::-1]
    is_repeated = np.zeros(merged.shape, bool)
    is_repeated[:, 1:] = (merged[:, 1:] == merged[:, :-1]) & (merged[:, 1:] != EMPTY)
    if is_repeated.any():
        merged = np.sort(np.where(is_repeated, EMPTY, merged), axis=1)[:, ::-1]
    if merged.shape[1] < k:
        merged = np.pad(merged, ((0, 0), (0, k - merged.shape[1])))
    return np.ascontiguousarray(merged[:, :k])


def kth_scores(candidates: np.ndarray, min_score: float = -np.inf) -> np.ndarray:
    """The score (n,) of the last of each row's candidates (n, k), best first; `min_score` if the row has fewer.

    A further candidate of a row must reach this score to be among the row's best k.
    """
    last = candidates[:, -1]
    return np.where(last == EMPTY, np.float32(min_score), scores_of(last))


def drop_empty(candidates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Candidates (n, k), best first, without empty slots: their number in each row (n,), and they themselves (m,)."""
    is_filled = candidates != EMPTY
    counts = is_filled.sum(axis=1).astype(np.min_scalar_type(candidates.shape[1]))
    return counts, candidates[is_filled]


def restore_empty(counts: np.ndarray, filled: np.ndarray, k: int) -> np.ndarray:
    """The candidates (n, k) that `drop_empty` was given."""
    candidates = np.zeros((len(counts), k), np.uint64)
    candidates[np.arange(k) < counts[:, None]] = filled
    return candidates
