"""Finds the few entries of a tile of cosines that can be among the k nearest of their row or of their column."""

import dataclasses

import numpy as np
import torch

from sbert_core.neighbors.candidates import pack
from sbert_core.neighbors.topk import TopK

MAX_COMMON_HITS_PER_ROW = 16  # with more, thresholds per row and column are faster than a common one
MIN_GROUPS = 64


@dataclasses.dataclass(frozen=True, eq=False)
class TileAxis:
    """The rows of a block that a tile covers along one of its two axes.

    `topk` collects the neighbours of the block's rows. It is None if these are not wanted. `first_number` is the number
    of the block's first row among the sources of the other axis's collector.
    """

    rows: slice
    first_number: int
    topk: TopK | None

    @property
    def thresholds(self) -> np.ndarray:
        """The product (n,) that an entry must reach to be added."""
        assert self.topk is not None
        return self.topk.thresholds[self.rows] - self.topk.tolerance

    def numbers(self, places: np.ndarray) -> np.ndarray:
        """The numbers (n,) of the rows at these places (n,) of the tile; see `first_number`."""
        return places + (self.first_number + self.rows.start)


@dataclasses.dataclass(frozen=True, eq=False)
class _Hits:
    """Entries of a tile that reach their threshold, ordered by row, then by column."""

    rows: np.ndarray  # (n,), within the tile
    columns: np.ndarray  # (n,), within the tile
    scores: np.ndarray  # (n,) float32


class TileScanner:
    """Adds the entries of tiles of cosines to the collectors of their rows and columns.

    A tile has millions of entries, of which few are wanted. So it is not sorted: entries are compared with a threshold,
    and only those that reach it (the hits) are packed and added. A row that has k candidates already has a threshold
    (see TopK). For the others, the tile itself gives one, by the maxima of groups. For k = 2, a row of 8 entries and 4
    groups, in which entry i belongs to group i % 4:

        entries         .1 .7 .3 .2 .6 .4 .9 .5
        group            0  1  2  3  0  1  2  3
        group maxima    .6 .7 .9 .5    (0: .1 .6   1: .7 .4   2: .3 .9   3: .2 .5)

    The second largest of the maxima is .7. The maxima are entries themselves, so at least 2 entries reach .7, and none
    below .7 can be among the best 2. The hits are .7 and .9. Taking maxima and selecting among 4 of them is much
    cheaper than selecting among all entries.

    Masked entries are -inf and are never hits. One scanner serves tiles of at most `max_entries`, one after the other.
    """

    def __init__(self, max_entries: int) -> None:
        self._mask = np.empty(max_entries, bool)  # reused: allocating it for each tile takes time

    def scan(self, tile: np.ndarray, rows: TileAxis, columns: TileAxis) -> None:
        """Adds the hits of a tile (n, m) to the collectors of its rows and, if there is one, of its columns."""
        hits = _hits_at_common_threshold(tile, rows, columns)
        if hits is not None:
            _add_to_rows(hits, rows, columns)
            if columns.topk is not None:
                _add_to_columns(hits, rows, columns)
            return
        _add_to_rows(self._hits(tile, _thresholds(tile, rows, axis=1)[:, None]), rows, columns)
        if columns.topk is not None:
            _add_to_columns(self._hits(tile, _thresholds(tile, columns, axis=0)), rows, columns)

    def _hits(self, tile: np.ndarray, thresholds: np.ndarray) -> _Hits:
        """The entries that reach thresholds of shape (n, 1) or (m,)."""
        is_hit = np.greater_equal(tile, thresholds, out=self._mask[: tile.size].reshape(tile.shape))
        hits = np.flatnonzero(is_hit)
        return _Hits(*_rows_and_columns(hits, tile.shape[1]), tile.ravel()[hits])


def _hits_at_common_threshold(tile: np.ndarray, rows: TileAxis, columns: TileAxis) -> _Hits | None:
    """The hits if all rows and columns have the same threshold and few entries reach it, else None.

    This is the usual case when pairs above a minimum score are wanted: one pass serves both axes.
    """
    assert rows.topk is not None
    if rows.topk.common_threshold in (None, -np.inf):
        return None
    if columns.topk is not None and columns.topk.common_threshold != rows.topk.common_threshold:
        return None
    threshold = np.float32(rows.topk.common_threshold) - rows.topk.tolerance
    rows_with_hits = np.flatnonzero(torch.from_numpy(tile).amax(1).numpy() >= threshold)
    scores = tile[rows_with_hits]
    hits = np.flatnonzero(scores >= threshold)
    if len(hits) > MAX_COMMON_HITS_PER_ROW * len(tile):
        return None
    hit_rows, hit_columns = _rows_and_columns(hits, tile.shape[1])
    return _Hits(rows_with_hits[hit_rows], hit_columns, scores.ravel()[hits])


def _add_to_rows(hits: _Hits, rows: TileAxis, columns: TileAxis) -> None:
    assert rows.topk is not None
    rows.topk.add(hits.rows + rows.rows.start, pack(hits.scores, columns.numbers(hits.columns)))


def _add_to_columns(hits: _Hits, rows: TileAxis, columns: TileAxis) -> None:
    assert columns.topk is not None
    order = np.argsort(hits.columns.astype(np.uint16), kind="stable")  # 16 bits: a fast radix sort
    candidates = pack(hits.scores, rows.numbers(hits.rows))
    columns.topk.add(hits.columns[order] + columns.rows.start, candidates[order])


def _thresholds(tile: np.ndarray, side: TileAxis, axis: int) -> np.ndarray:
    """The thresholds of the tile's rows (axis 1) or columns (axis 0), raised by group maxima where that helps."""
    assert side.topk is not None
    thresholds = np.maximum(side.thresholds, np.finfo(np.float32).min)  # above -inf: masked entries are never hits
    has_fewer_than_k = side.topk.thresholds[side.rows] <= side.topk.min_score
    n_groups = max(MIN_GROUPS, 1 << side.topk.k.bit_length())
    if n_groups >= tile.shape[axis] or not has_fewer_than_k.any():
        return thresholds
    maxima = np.minimum(kth_group_maxima(tile, side.topk.k, n_groups, axis), 1)  # candidates above 1 count as 1
    # k scores are at least the k-th maximum less the tolerance; an entry whose product is another tolerance lower is
    # not among the best k.
    return np.where(has_fewer_than_k, np.maximum(thresholds, maxima - 2 * side.topk.tolerance), thresholds)


def kth_group_maxima(tile: np.ndarray, k: int, n_groups: int, axis: int) -> np.ndarray:
    """The k-th largest group maximum of each row (axis 1) or column (axis 0) of a tile; see TileScanner.

    At least k entries reach it. Entries behind the last multiple of `n_groups` are left out.
    """
    n_entries = tile.shape[axis]
    grouped = torch.from_numpy(tile).narrow(axis, 0, n_entries - n_entries % n_groups).unflatten(axis, (-1, n_groups))
    maxima = grouped.amax(axis).numpy()
    return np.partition(maxima, n_groups - k, axis=axis).take(n_groups - k, axis=axis)


def _rows_and_columns(entries: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows and columns of entries (n,) of a flattened tile. Most widths are powers of two: no division needed."""
    if width & (width - 1) == 0:
        return entries >> (width.bit_length() - 1), entries & (width - 1)
    return np.divmod(entries, width)
