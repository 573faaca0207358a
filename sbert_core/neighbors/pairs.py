"""Pairs of rows that are near each other, derived from the neighbours of each row."""

import collections
import dataclasses
from collections.abc import Sequence

import numpy as np

from sbert_core.neighbors.candidates import EMPTY, ordinals_of, scores_of


@dataclasses.dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of rows by their ordinals, and the score of each; within one corpus the lower ordinal comes first."""

    first: np.ndarray  # (n,) uint32
    second: np.ndarray  # (n,) uint32
    scores: np.ndarray  # (n,) float32

    def __len__(self) -> int:
        return len(self.scores)

    def __getitem__(self, which: np.ndarray | slice) -> "Pairs":
        return Pairs(self.first[which], self.second[which], self.scores[which])

    def best_first(self) -> np.ndarray:
        """The order (n,) by descending score; equal scores by ordinals."""
        return np.lexsort((self.second, self.first, -self.scores))

    def sorted(self) -> "Pairs":
        """The pairs in the order of `best_first`."""
        return self[self.best_first()]


def join_pairs(parts: Sequence[Pairs]) -> Pairs:
    """All pairs of several parts, one after the other."""
    if not parts:
        return Pairs(np.empty(0, np.uint32), np.empty(0, np.uint32), np.empty(0, np.float32))
    return Pairs(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("first", "second", "scores")))


def pairs_of(candidates: np.ndarray, ordinals: np.ndarray, side: str = "either") -> Pairs:
    """The pairs of rows (n,), given by their ordinals, with their candidates (n, k).

    `side` is the place of the rows in the pairs: "first" or "second" for pairs across two corpora, "either" within one
    corpus. There, a pair that is found from both of its rows is returned twice.
    """
    rows, slots = np.nonzero(candidates != EMPTY)
    own, neighbors = ordinals[rows], ordinals_of(candidates[rows, slots])
    scores = scores_of(candidates[rows, slots])
    if side == "first":
        return Pairs(own, neighbors, scores)
    if side == "second":
        return Pairs(neighbors, own, scores)
    return Pairs(np.minimum(own, neighbors), np.maximum(own, neighbors), scores)


def merge_pairs(parts: Sequence[Pairs], mutual: bool = False) -> Pairs:
    """Each pair once, sorted by ordinals; with `mutual`, only pairs that were found from both of their rows."""
    pairs = join_pairs(parts)
    keys = pairs.first.astype(np.uint64) << np.uint64(32) | pairs.second
    _, first_places, counts = np.unique(keys, return_index=True, return_counts=True)
    return pairs[first_places[counts > 1] if mutual else first_places]


def margin_scores(pairs: Pairs, first_means: np.ndarray, second_means: np.ndarray) -> np.ndarray:
    """The ratio (n,) of each pair's cosine to the mean cosine of its two rows to their neighbours.

    Means are indexed by ordinal; see `mean_scores`. A ratio above 1 means that a pair is nearer than its neighbourhood.
    """
    neighborhood = (first_means[pairs.first] + second_means[pairs.second]) / 2
    return np.divide(pairs.scores, neighborhood, out=np.zeros_like(pairs.scores), where=neighborhood > 0)


def mean_scores(candidates: np.ndarray) -> np.ndarray:
    """The mean score (n,) of the candidates (n, k) of each row; 0 for a row without candidates."""
    is_candidate = candidates != EMPTY
    totals = np.where(is_candidate, scores_of(candidates), 0).sum(axis=1, dtype=np.float32)
    return totals / np.maximum(is_candidate.sum(axis=1), 1).astype(np.float32)


def limit_per_row(pairs: Pairs, k: int, one_corpus: bool = True) -> np.ndarray:
    """Which pairs (n,) to keep so that no row is in more than `k`, taking pairs in their order.

    With `one_corpus`, the same ordinal is the same row on both sides of a pair; otherwise it is not.
    """
    first_counts: collections.Counter[int] = collections.Counter()
    second_counts = first_counts if one_corpus else collections.Counter[int]()
    keep = np.zeros(len(pairs), bool)
    for number, (first, second) in enumerate(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)):
        if first_counts[first] < k and second_counts[second] < k:
            keep[number] = True
            first_counts[first] += 1
            second_counts[second] += 1
    return keep
