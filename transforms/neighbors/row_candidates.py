"""Candidates of some rows, wherever in the corpus these rows are."""

import dataclasses
from collections.abc import Sequence

import numpy as np


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


def join_candidates(parts: Sequence[RowCandidates], k: int) -> RowCandidates:
    """The rows of all parts, of which no two have the same."""
    parts = [RowCandidates.empty(k), *parts]
    return RowCandidates(
        np.concatenate([part.rows for part in parts]), np.concatenate([part.candidates for part in parts])
    )
