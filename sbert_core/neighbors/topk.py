"""Collects the k best candidates of many rows at once."""

import numpy as np

from sbert_core.neighbors.candidates import EMPTY, merge_candidates, scores_of

INITIAL_SLOTS = 32  # per row


class TopK:
    """Collects candidates for each of `n_rows` rows and keeps the best `k` per row that score at least `min_score`.

    Each row has a buffer of more than k slots. A new candidate takes the next free slot. Only when a row's buffer is
    full is it reduced to its best k, so a row is sorted once per many candidates.

    `thresholds` (n_rows,) is the score that a further candidate of a row must reach: a caller may drop candidates below
    it. It starts at `min_score`, or at the given `thresholds`, and rises when a row's buffer is reduced. For k = 2 and
    a buffer of 4 slots:

        add .5 .9 .3 .7   buffer .5 .9 .3 .7   full
        add .8            reduced to .9 .7, threshold .7; buffer .9 .7 .8 -
        candidates()      .9 .8
    """

    def __init__(self, n_rows: int, k: int, min_score: float = -np.inf, thresholds: np.ndarray | None = None) -> None:
        self.k = k
        self.min_score = np.float32(min_score)
        self.thresholds = np.full(n_rows, min_score, np.float32) if thresholds is None else thresholds.copy()
        # The threshold of all rows as long as they have the same, else None.
        self.common_threshold: float | None = float(self.min_score) if thresholds is None else None
        self._max_slots = 2 * k + 16
        self._slots = np.zeros((n_rows, min(self._max_slots, INITIAL_SLOTS)), np.uint64)
        self._n_used = np.zeros(n_rows, np.int64)

    def add(self, rows: np.ndarray, candidates: np.ndarray) -> None:
        """Adds candidates (n,) to rows (n,), which must be in ascending order."""
        while len(rows):
            starts = np.append(0, np.flatnonzero(rows[1:] != rows[:-1]) + 1)
            distinct_rows, counts = rows[starts], np.diff(starts, append=len(rows))
            # The candidates of a row take its next free slots, one after the other.
            slots = np.arange(len(rows)) + np.repeat(self._n_used[distinct_rows] - starts, counts)
            is_late = slots >= self._slots.shape[1]
            if not is_late.any():
                self._slots[rows, slots] = candidates
                self._n_used[distinct_rows] += counts
                return
            self._slots[rows[~is_late], slots[~is_late]] = candidates[~is_late]
            self._n_used[distinct_rows] = np.minimum(self._n_used[distinct_rows] + counts, self._slots.shape[1])
            rows, candidates = rows[is_late], candidates[is_late]
            self._make_room(np.unique(rows))
            is_valid = scores_of(candidates) >= self.thresholds[rows]
            rows, candidates = rows[is_valid], candidates[is_valid]

    def _make_room(self, full_rows: np.ndarray) -> None:
        """Frees slots in rows that have none left. Buffers grow step by step: most corpora never need all slots."""
        n_slots = self._slots.shape[1]
        n_more = min(2 * n_slots, self._max_slots) - n_slots
        if n_more > 0:
            self._slots = np.pad(self._slots, ((0, 0), (0, n_more)))
        else:
            self._reduce(full_rows)

    def _reduce(self, rows: np.ndarray) -> None:
        """Keeps the best k candidates of the rows and raises their thresholds to the k-th score."""
        n_slots = self._slots.shape[1]
        best = np.partition(self._slots[rows], n_slots - self.k, axis=1)[:, n_slots - self.k :]
        self._slots[rows, : self.k] = best
        self._slots[rows, self.k :] = EMPTY
        self._n_used[rows] = np.minimum(self._n_used[rows], self.k)
        has_k = self._n_used[rows] == self.k
        if has_k.any():
            kth = scores_of(best[has_k].min(axis=1))
            self.thresholds[rows[has_k]] = np.maximum(self.thresholds[rows[has_k]], kth)
            self.common_threshold = None

    def candidates(self) -> np.ndarray:
        """The best candidates (n_rows, k) of each row so far, best first; EMPTY where a row has fewer."""
        best = merge_candidates([self._slots], self.k)
        best[scores_of(best) < self.min_score] = EMPTY
        return best
