"""Collects the k best candidates of many rows at once."""

import numpy as np

from sbert_core.neighbors.candidates import EMPTY, MAX_ORDINAL, merge_candidates, ordinals_of, pack, scores_of
from sbert_core.neighbors.unit_vectors import Block, exact_scores, product_error

INITIAL_SLOTS = 32  # per row
MAX_SOURCE_ROWS = 65_536  # rows of sources that are kept in memory before their candidates are scored


class TopK:
    """Collects candidates for each of `n_rows` rows and keeps the best `k` per row that score at least `min_score`.

    Candidates are added with the float32 product of the two rows, which differs from their exact score by at most
    `tolerance`. Products only select: what they leave is scored by `exact_scores`, and the best k are chosen among
    that. So a result does not depend on the bits of products, which differ from processor to processor.

    Each row has a buffer of more than k slots. A new candidate takes the next free slot. Only when a row's buffer is
    full is it reduced, so a row is sorted once per many candidates. A reduced buffer has the best k, and those that
    could be as good: k scores are at least the k-th product less `tolerance`, so a candidate whose product is another
    `tolerance` lower is not among the best k. If such near-ties fill the buffer, the row is scored at once: its exact
    scores and ordinals leave no more than k.

    `thresholds` (n_rows,) is the score that a further candidate of a row must reach: a caller may drop those whose
    product is below it by more than `tolerance`. It starts at `min_score`, or at the given `thresholds`, and rises when
    a row is reduced or scored. For k = 2, a buffer of 4 slots and a tolerance of 0:

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
        self.tolerance = np.float32(0)
        self._max_slots = 2 * k + 16
        # Slots hold a product and the number of a row among those of all sources; `_best` scores and ordinals.
        self._slots = np.zeros((n_rows, min(self._max_slots, INITIAL_SLOTS)), np.uint64)
        self._n_used = np.zeros(n_rows, np.int64)
        self._best = np.zeros((n_rows, k), np.uint64)
        self._block: Block | None = None
        self._sources: list[Block] = []

    def open_source(self, block: Block, source: Block) -> int:
        """Prepares for candidates from `source` for the rows of `block`; returns the number of the first of them.

        Both blocks are kept until the candidates are scored.
        """
        n_source_rows = sum(map(len, self._sources))
        if block is not self._block or n_source_rows + len(source) > MAX_SOURCE_ROWS:
            self._score_all()
            n_source_rows = 0
        self._block = block
        self._sources.append(source)
        self.tolerance = product_error(source.vectors.shape[1])
        return n_source_rows

    def add(self, rows: np.ndarray, candidates: np.ndarray) -> None:
        """Adds candidates (n,), packed from products and numbers, to rows (n,), which must be in ascending order."""
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
            is_valid = candidates >= self._lowest(rows)
            rows, candidates = rows[is_valid], candidates[is_valid]

    def reduce(self) -> None:
        """Raises the thresholds of the rows that have k candidates in their buffers."""
        rows = np.flatnonzero(self._n_used >= self.k)
        if len(rows):
            self._reduce(rows)

    def candidates(self) -> np.ndarray:
        """The best candidates (n_rows, k) of each row so far, best first; EMPTY where a row has fewer."""
        self._score_all()
        return self._best.copy()

    def _make_room(self, full_rows: np.ndarray) -> None:
        """Frees slots in rows that have none left. Buffers grow step by step: most corpora never need all slots."""
        n_slots = self._slots.shape[1]
        n_more = min(2 * n_slots, self._max_slots) - n_slots
        if n_more > 0:
            self._slots = np.pad(self._slots, ((0, 0), (0, n_more)))
        else:
            self._reduce(full_rows)

    def _reduce(self, rows: np.ndarray) -> None:
        """Keeps the candidates of full rows that can be among the best k, and raises the rows' thresholds."""
        slots = np.sort(self._slots[rows], axis=1)[:, ::-1]
        self._raise_thresholds(rows, scores_of(slots[:, self.k - 1]) - self.tolerance)
        is_kept = slots >= self._lowest(rows)[:, None]
        self._slots[rows] = np.where(is_kept, slots, EMPTY)
        self._n_used[rows] = n_kept = is_kept.sum(axis=1)
        is_crowded = n_kept > self.k + 8
        if is_crowded.any():
            self._score(rows[is_crowded])

    def _score_all(self) -> None:
        """Scores all candidates. Their sources are then no longer needed."""
        self._score(np.flatnonzero(self._n_used))
        self._sources = []

    def _score(self, rows: np.ndarray) -> None:
        """Scores what rows (n,) have in their slots, and keeps the best k."""
        if not len(rows):
            return
        slots = self._slots[rows, : self._n_used[rows].max()]
        if slots.shape[1] >= self.k:
            kth = np.partition(slots, slots.shape[1] - self.k, axis=1)[:, slots.shape[1] - self.k]
            has_k = kth != EMPTY
            self._raise_thresholds(rows[has_k], scores_of(kth[has_k]) - self.tolerance)
        places, columns = np.nonzero(slots >= self._lowest(rows)[:, None])
        scores, ordinals = self._exact(rows[places], ordinals_of(slots[places, columns]))
        found = np.zeros(slots.shape, np.uint64)
        found[places, columns] = np.where(scores >= self.min_score, pack(scores, ordinals), EMPTY)
        best = merge_candidates([self._best[rows], found], self.k)
        self._best[rows] = best
        has_k = best[:, -1] != EMPTY
        self._raise_thresholds(rows[has_k], scores_of(best[has_k, -1]))
        self._slots[rows] = EMPTY
        self._n_used[rows] = 0

    def _exact(self, rows: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The exact scores (n,) of rows (n,) and those with the given numbers (n,), and the ordinals (n,) of these."""
        assert self._block is not None
        scores, ordinals = np.empty(len(rows), np.float32), np.empty(len(rows), np.uint32)
        first = 0
        for source in self._sources:
            chosen = np.flatnonzero((numbers >= first) & (numbers < first + len(source)))
            source_rows = numbers[chosen] - np.uint32(first)
            scores[chosen] = exact_scores(
                self._block.vectors.numpy(), source.vectors.numpy(), rows[chosen], source_rows
            )
            ordinals[chosen] = source.ordinals[source_rows]
            first += len(source)
        return scores, ordinals

    def _lowest(self, rows: np.ndarray) -> np.ndarray:
        """The least candidates (n,), as packed numbers, that rows (n,) need to keep. It is greater than EMPTY."""
        return pack(self.thresholds[rows] - self.tolerance, np.full(len(rows), MAX_ORDINAL, np.uint32))

    def _raise_thresholds(self, rows: np.ndarray, scores: np.ndarray) -> None:
        if len(rows):
            self.thresholds[rows] = np.maximum(self.thresholds[rows], scores)
            self.common_threshold = None
