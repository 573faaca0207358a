"""Pairs of rows that are near each other, derived from the neighbours of each row."""

import collections
import dataclasses
from collections.abc import Sequence

import numpy as np

from sbert_core.neighbors.topk import EMPTY, ranks_of, scores_of


@dataclasses.dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of rows by rank, and how near they are; within one corpus the lower rank comes first."""

    first: np.ndarray  # (n,) uint32
    second: np.ndarray  # (n,) uint32
    scores: np.ndarray  # (n,) float32

    def __len__(self) -> int:
        return len(self.scores)

    def __getitem__(self, which: np.ndarray | slice) -> "Pairs":
        return Pairs(self.first[which], self.second[which], self.scores[which])

    def sorted(self) -> "Pairs":
        """Best first; equal ones by rank."""
        return self[np.lexsort((self.second, self.first, -self.scores))]


def join_pairs(parts: Sequence[Pairs]) -> Pairs:
    """All pairs of several parts, one after the other."""
    if not parts:
        return Pairs(np.empty(0, np.uint32), np.empty(0, np.uint32), np.empty(0, np.float32))
    return Pairs(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("first", "second", "scores")))


def pairs_of(best: np.ndarray, ranks: np.ndarray, side: str = "either") -> Pairs:
    """The pairs of rows (n,) with their best candidates (n, k).

    `side` says where the rows stand: "first" or "second" in pairs across two corpora, "either" within one corpus,
    where a pair that is found from both of its rows comes twice.
    """
    rows, places = np.nonzero(best != EMPTY)
    own, found = ranks[rows], ranks_of(best[rows, places])
    scores = scores_of(best[rows, places])
    if side == "first":
        return Pairs(own, found, scores)
    if side == "second":
        return Pairs(found, own, scores)
    return Pairs(np.minimum(own, found), np.maximum(own, found), scores)


def merge_pairs(parts: Sequence[Pairs], mutual: bool = False) -> Pairs:
    """Each pair once; with `mutual`, only those that were found from both rows. Sorted by rank."""
    pairs = join_pairs(parts)
    keys = pairs.first.astype(np.uint64) << np.uint64(32) | pairs.second
    _, where, counts = np.unique(keys, return_index=True, return_counts=True)
    return pairs[where[counts > 1] if mutual else where]


def margin_scores(pairs: Pairs, first_means: np.ndarray, second_means: np.ndarray) -> np.ndarray:
    """The ratio of each pair's cosine to the mean cosine of its two rows to their neighbours.

    Means are indexed by rank. Above 1 a pair stands out: also where everything is near everything.
    """
    around = (first_means[pairs.first] + second_means[pairs.second]) / 2
    return np.divide(pairs.scores, around, out=np.zeros_like(pairs.scores), where=around > 0)


def mean_scores(best: np.ndarray) -> np.ndarray:
    """The mean score (n,) of the candidates (n, k) of each row; 0 for a row that has none."""
    some = best != EMPTY
    total = np.where(some, scores_of(best), 0).sum(axis=1, dtype=np.float32)
    return total / np.maximum(some.sum(axis=1), 1).astype(np.float32)


def limit_per_row(pairs: Pairs, k: int, one_corpus: bool = True) -> np.ndarray:
    """Which pairs (n,) are left if they are taken in their order, but none of a row that is in `k` already.

    Ranks of two corpora are not those of the same rows.
    """
    firsts: collections.Counter[int] = collections.Counter()
    seconds = firsts if one_corpus else collections.Counter[int]()
    keep = np.zeros(len(pairs), bool)
    for number, (first, second) in enumerate(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)):
        if firsts[first] < k and seconds[second] < k:
            keep[number] = True
            firsts[first] += 1
            seconds[second] += 1
    return keep
