"""The k best candidates of many rows at once.

A candidate is one unsigned 64-bit number: its score above, its rank below, so that the greater number is the better
candidate and equal scores are ordered by rank. All selection is then selection among integers, and the outcome does
not depend on the order in which candidates come.
"""

from collections.abc import Iterable

import numpy as np

MAX_RANK = 2**32 - 1
EMPTY = np.uint64(0)  # less than any candidate

_SIGN = np.uint32(0x80000000)


def pack(scores: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Candidates (n,) of float32 scores and uint32 ranks; a lower rank is better. A cosine past 1 is 1."""
    bits = (np.minimum(scores, np.float32(1)) + np.float32(0)).view(np.uint32)  # adding 0 makes -0 into 0
    ordered = np.where(bits & _SIGN, ~bits, bits | _SIGN)  # as integers they sort like the floats
    return ordered.astype(np.uint64) << np.uint64(32) | (MAX_RANK - ranks.astype(np.uint64))


def scores_of(candidates: np.ndarray) -> np.ndarray:
    """The scores of candidates of any shape; that of an empty place is not a number."""
    ordered = (candidates >> np.uint64(32)).astype(np.uint32)
    return np.where(ordered & _SIGN, ordered ^ _SIGN, ~ordered).view(np.float32)


def ranks_of(candidates: np.ndarray) -> np.ndarray:
    """The ranks of candidates of any shape."""
    return (MAX_RANK - (candidates & np.uint64(MAX_RANK))).astype(np.uint32)


class TopK:
    """Collects candidates for each of `rows` rows and keeps the best `k` of each that score at least `min_score`.

    `floors` (rows,) tells what a candidate must score to be worth adding: it rises as better ones are found. It may
    start at what is known of each row's k-th best from elsewhere.
    Candidates wait in spare places behind the best k, and only a row whose places are all taken is sorted.
    """

    def __init__(self, rows: int, k: int, min_score: float = -np.inf, floors: np.ndarray | None = None) -> None:
        self.k = k
        self.min_score = np.float32(min_score)
        self.floors = np.full(rows, min_score, np.float32) if floors is None else floors.copy()
        # What all floors are, until one rises.
        self.level: float | None = float(self.min_score) if floors is None else None
        self._places = np.zeros((rows, min(2 * k + 16, 32)), np.uint64)
        self._taken = np.zeros(rows, np.int64)

    def add(self, rows: np.ndarray, candidates: np.ndarray) -> None:
        """Adds candidates (n,) to rows (n,), which must be in ascending order."""
        while len(rows):
            starts = np.append(0, np.flatnonzero(rows[1:] != rows[:-1]) + 1)
            touched, counts = rows[starts], np.diff(starts, append=len(rows))
            # A row's candidates go to its next free places, one after the other.
            place = np.arange(len(rows)) + np.repeat(self._taken[touched] - starts, counts)
            late = place >= self._places.shape[1]
            if not late.any():
                self._places[rows, place] = candidates
                self._taken[touched] += counts
                return
            self._places[rows[~late], place[~late]] = candidates[~late]
            self._taken[touched] = np.minimum(self._taken[touched] + counts, self._places.shape[1])
            rows, candidates = rows[late], candidates[late]
            self._make_room(np.unique(rows))
            good = scores_of(candidates) >= self.floors[rows]
            rows, candidates = rows[good], candidates[good]

    def _make_room(self, rows: np.ndarray) -> None:
        """Frees places in rows that have none: most corpora never need all of them, so they come bit by bit."""
        width = self._places.shape[1]
        more = min(2 * width, 2 * self.k + 16) - width
        if more > 0:
            self._places = np.pad(self._places, ((0, 0), (0, more)))
        else:
            self._sort_out(rows)

    def _sort_out(self, rows: np.ndarray) -> None:
        """Keeps the best k of the rows, and raises their floors to the worst of these."""
        width = self._places.shape[1]
        best = np.partition(self._places[rows], width - self.k, axis=1)[:, width - self.k :]
        self._places[rows, : self.k] = best
        self._places[rows, self.k :] = EMPTY
        self._taken[rows] = np.minimum(self._taken[rows], self.k)
        full = self._taken[rows] == self.k
        if full.any():
            self.floors[rows[full]] = np.maximum(self.floors[rows[full]], scores_of(best[full].min(axis=1)))
            self.level = None

    def best(self) -> np.ndarray:
        """The best candidates (rows, k) of each row, best first; places without one are EMPTY."""
        best = merge_best([self._places], self.k)
        best[scores_of(best) < self.min_score] = EMPTY
        return best


def floors_of(best: np.ndarray, min_score: float = -np.inf) -> np.ndarray:
    """What a further candidate of each row must score to be among its best (rows, k)."""
    last = best[:, -1]
    return np.where(last == EMPTY, np.float32(min_score), scores_of(last))


def merge_best(found: Iterable[np.ndarray], k: int) -> np.ndarray:
    """The best k (rows, k) of several arrays of candidates (rows, any), best first; one found twice counts once."""
    places = np.sort(np.concatenate(list(found), axis=1), axis=1)[:, ::-1]
    twice = np.zeros(places.shape, bool)
    twice[:, 1:] = (places[:, 1:] == places[:, :-1]) & (places[:, 1:] != EMPTY)
    if twice.any():
        places = np.sort(np.where(twice, EMPTY, places), axis=1)[:, ::-1]
    if places.shape[1] < k:
        places = np.pad(places, ((0, 0), (0, k - places.shape[1])))
    return np.ascontiguousarray(places[:, :k])
