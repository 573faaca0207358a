"""Which pairs of neighbours are results, and how they are scored: one policy, in memory and on workers.

The stages, in this order:

1. `pairs_of_rows`  neighbours of some rows become pairs; those below the minimum score are dropped
2. `merge`          each pair once, from all rows that may have found it
3. `score`          scores, and the order of the pairs: best first
4. `select`         limits that need all pairs in their order: lexical overlap, pairs per row, number of pairs
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from sbert_core.errors import DataError
from sbert_core.neighbors.pairs import Pairs, join_pairs, limit_per_row, margin_scores, merge_pairs, pairs_of


@dataclasses.dataclass(frozen=True, eq=False)
class ScoredPairs:
    """Pairs in the order of their scores, which may be margins, and the cosine of each."""

    pairs: Pairs
    cosines: np.ndarray  # (n,) float32

    def __getitem__(self, which: np.ndarray | slice) -> "ScoredPairs":
        return ScoredPairs(self.pairs[which], self.cosines[which])


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairPolicy:
    """Settings that select pairs of neighbours."""

    min_score: float = -np.inf  # minimum cosine
    max_pairs: int = 500_000
    mutual: bool = False  # keep a pair only if each row is among the k nearest of the other
    strict: bool = False  # no row is in more than k pairs
    margin: bool = False  # score by the ratio of the cosine to those of the neighbourhood
    max_lexical_overlap: float = 1.0  # maximum share of common words

    def __post_init__(self) -> None:
        if self.max_pairs < 0:
            raise DataError(f"max_pairs must not be negative, got {self.max_pairs}")
        if not 0 <= self.max_lexical_overlap <= 1:
            raise DataError(f"max_lexical_overlap must be between 0 and 1, got {self.max_lexical_overlap}")

    @property
    def min_neighbor_score(self) -> float:
        """The minimum cosine of the neighbours to find. Margins need all neighbours, also those below `min_score`."""
        return -np.inf if self.margin else self.min_score

    @property
    def _drops_after_ordering(self) -> bool:
        return self.max_lexical_overlap < 1 or self.strict

    def pairs_of_rows(self, candidates: np.ndarray, ordinals: np.ndarray, side: str = "either") -> Pairs:
        """The pairs of rows (n,) with their candidates (n, k); see `pairs_of` for `side`."""
        pairs = pairs_of(candidates, ordinals, side)
        return pairs[pairs.scores >= self.min_score]

    def merge(self, parts: Sequence[Pairs]) -> Pairs:
        """Each pair of the parts once, in no particular order.

        All finds of a pair must be among the parts. If the highest cosines decide which pairs are results, only the
        best `max_pairs` are kept.
        """
        pairs = merge_pairs(parts, self.mutual)
        if len(pairs) > self.max_pairs and not (self._drops_after_ordering or self.margin):
            return pairs[pairs.best_first()[: self.max_pairs]]
        return pairs

    def score(
        self, parts: Sequence[Pairs], first_means: np.ndarray | None = None, second_means: np.ndarray | None = None
    ) -> ScoredPairs:
        """The merged pairs with their scores, best first; equal scores by ordinals.

        A margin needs the mean score of the neighbours of each row, by ordinal, for both sides of the pairs.
        """
        pairs = join_pairs(parts)
        cosines = pairs.scores
        if self.margin:
            if first_means is None or second_means is None:
                raise ValueError("a margin needs the mean scores of both sides")
            pairs = dataclasses.replace(pairs, scores=margin_scores(pairs, first_means, second_means))
        order = pairs.best_first()
        if not self._drops_after_ordering:
            order = order[: self.max_pairs]
        return ScoredPairs(pairs[order], cosines[order])

    def select(self, pairs: Pairs, k: int, one_corpus: bool, overlaps: np.ndarray | None = None) -> np.ndarray:
        """The places (n,) of the pairs to keep, of pairs that are ordered best first.

        `k` is the number of neighbours of a row; `overlaps` is the share (n,) of common words of each pair.
        """
        keep = np.arange(len(pairs))
        if self.max_lexical_overlap < 1:
            if overlaps is None:
                raise ValueError("max_lexical_overlap needs the overlaps of the pairs")
            keep = np.flatnonzero(overlaps <= self.max_lexical_overlap)
        if self.strict:
            keep = keep[limit_per_row(pairs[keep], k, one_corpus)]
        return keep[: self.max_pairs]
