"""Candidates of some rows, wherever in the corpus these rows are."""

import dataclasses
from collections.abc import Iterable

import numpy as np

from sbert_core.neighbors.candidates import merge_candidates


@dataclasses.dataclass(frozen=True, eq=False)
class RowCandidates:
    """Rows (n,) uint32, each once, and their candidates (n, k), best first."""

    rows: np.ndarray
    candidates: np.ndarray

    @classmethod
    def empty(cls, k: int) -> "RowCandidates":
        """No rows."""
        return cls(np.empty(0, np.uint32), np.empty((0, k), np.uint64))

    def __getitem__(self, which: np.ndarray) -> "RowCandidates":
        return RowCandidates(self.rows[which], self.candidates[which])


def merge_row_candidates(parts: Iterable[RowCandidates], k: int) -> RowCandidates:
    """The rows of all parts, each once and in ascending order, with the best k candidates of each."""
    parts = list(parts)
    rows = np.unique(np.concatenate([np.empty(0, np.uint32), *(part.rows for part in parts)]))
    candidates = np.zeros((len(rows), k), np.uint64)
    for part in parts:
        merge_into(candidates, np.searchsorted(rows, part.rows), part.candidates)
    return RowCandidates(rows, candidates)


def merge_into(target: np.ndarray, places: np.ndarray, candidates: np.ndarray) -> None:
    """Merges candidates (m, k) into the rows `places` (m,), each at most once, of `target` (n, k)."""
    target[places] = merge_candidates([target[places], candidates], target.shape[1])
