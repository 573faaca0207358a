"""Cosines of blocks of rows, and the few of them that matter.

The product of two blocks is computed tile by tile, and a tile is not sorted: one pass takes the maximum of each group
of its entries, and only groups whose maximum reaches the floor of their row are looked into.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F

from sbert_core.errors import DataError
from sbert_core.neighbors.topk import TopK, pack

TILE_ROWS = 2048  # of two measured neighbours (1024, 4096) and itself the fastest
_MULTIPLE = 64  # rows of a product are filled up to a multiple of this


@dataclasses.dataclass(frozen=True, eq=False)
class Block:
    """Rows to compare: unit vectors (n, dim), and the rank of each among all rows.

    With `groups` (n,), `same_group` of the comparison says which pairs count.
    """

    vectors: torch.Tensor
    ranks: np.ndarray  # uint32
    groups: np.ndarray | None = None  # integers

    def __len__(self) -> int:
        return len(self.ranks)


def unit_rows(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows scaled to length 1 in float32, and which rows have a length at all (n,).

    A row of zeros has no direction: it stays as it is. A row that is not finite is an error.
    """
    rows = np.ascontiguousarray(vectors, dtype=np.float32)
    lengths = np.sqrt(np.einsum("nd,nd->n", rows, rows))
    if len(rows) and not 1e-15 < lengths.min() <= lengths.max() < 1e15:  # squares may be past what float32 can tell
        lengths = np.sqrt(np.einsum("nd,nd->n", rows, rows, dtype=np.float64))
        bad = np.flatnonzero(~np.isfinite(lengths))
        if len(bad):
            raise DataError(f"row {bad[0]} has a vector that is not finite")
    some = lengths > 0
    return (rows / np.where(some, lengths, 1)[:, None]).astype(np.float32, copy=False), some


def compare(
    left: Block,
    right: Block,
    left_best: TopK,
    right_best: TopK | None = None,
    same_group: bool | None = None,
) -> None:
    """Adds to the best of each row of `left` the rows of `right`, and the other way round.

    A block compared with itself is one block and has one `left_best`: each pair is computed once, and no row is its
    own neighbour. `right_best` may be None if only the left is of interest.
    """
    memory, mask = torch.empty(TILE_ROWS * TILE_ROWS), np.empty(TILE_ROWS * TILE_ROWS, bool)
    for rows in _tiles(left):
        for columns in _tiles(right, rows.start if left is right else 0):
            shape = rows.stop - rows.start, columns.stop - columns.start
            product = memory[: shape[0] * shape[1]].view(shape)
            _multiply(left.vectors[rows], right.vectors[columns], product)
            tile = product.numpy()
            diagonal = left is right and rows == columns
            if diagonal:
                np.fill_diagonal(tile, -np.inf)
            if same_group is not None:
                tile[(_groups(left)[rows, None] == _groups(right)[columns]) != same_group] = -np.inf
            reached = mask[: tile.size].reshape(shape)
            other = left_best if left is right else right_best
            if diagonal:
                other = None
            if not _add_few(tile, left_best, rows, right.ranks[columns], other, columns, left.ranks[rows]):
                _add_to_rows(tile, reached, left_best, rows, right.ranks[columns])
                if other is not None:
                    _add_to_columns(tile, reached, other, columns, left.ranks[rows])


def _multiply(left: torch.Tensor, right: torch.Tensor, product: torch.Tensor) -> None:
    """All cosines of two tiles, with the same bits whatever the tiles.

    On some processors a product with few rows, or what a thread has left over, adds up in another order than a large
    one: rows of zeros fill it up.
    """
    if not any(size % _MULTIPLE for size in product.shape):
        torch.mm(left, right.T, out=product)
        return
    left, right = (F.pad(side, (0, 0, 0, -len(side) % _MULTIPLE)) for side in (left, right))
    product.copy_((left @ right.T)[: product.shape[0], : product.shape[1]])


def _tiles(block: Block, start: int = 0) -> Iterator[slice]:
    for first in range(start, len(block), TILE_ROWS):
        yield slice(first, min(first + TILE_ROWS, len(block)))


def _groups(block: Block) -> np.ndarray:
    if block.groups is None:
        raise ValueError("same_group needs blocks with groups")
    return block.groups


def _add_to_rows(tile: np.ndarray, reached: np.ndarray, best: TopK, rows: slice, ranks: np.ndarray) -> None:
    """Adds to the best of each of the tile's rows the entries that reach its floor."""
    floors = _floors(tile, best, rows, axis=1)
    hits = np.flatnonzero(np.greater_equal(tile, floors[:, None], out=reached))
    hit_rows, hit_columns = _split(hits, tile.shape[1])
    best.add(hit_rows + rows.start, pack(tile.ravel()[hits], ranks[hit_columns]))


def _add_to_columns(tile: np.ndarray, reached: np.ndarray, best: TopK, columns: slice, ranks: np.ndarray) -> None:
    """Adds to the best of each of the tile's columns the entries that reach its floor."""
    floors = _floors(tile, best, columns, axis=0)
    hits = np.flatnonzero(np.greater_equal(tile, floors, out=reached))
    hit_rows, hit_columns = _split(hits, tile.shape[1])
    order = _order(hit_columns)
    candidates = pack(tile.ravel()[hits], ranks[hit_rows])
    best.add(hit_columns[order] + columns.start, candidates[order])


def _add_few(
    tile: np.ndarray,
    row_best: TopK,
    rows: slice,
    column_ranks: np.ndarray,
    column_best: TopK | None,
    columns: slice,
    row_ranks: np.ndarray,
) -> bool:
    """Adds to the best of rows and columns at once, if all floors are one level and few entries reach it."""
    level = row_best.level
    if level is None or level == -np.inf or (column_best is not None and column_best.level != level):
        return False
    some = np.flatnonzero(torch.from_numpy(tile).amax(1).numpy() >= level)
    scores = tile[some]
    hits = np.flatnonzero(scores >= level)
    if len(hits) > 16 * len(tile):
        return False
    hit_rows, hit_columns = _split(hits, tile.shape[1])
    hit_rows, scores = some[hit_rows], scores.ravel()[hits]
    row_best.add(hit_rows + rows.start, pack(scores, column_ranks[hit_columns]))
    if column_best is not None:
        order = _order(hit_columns)
        column_best.add(hit_columns[order] + columns.start, pack(scores, row_ranks[hit_rows])[order])
    return True


def _split(hits: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows and columns of entries of a tile; most tiles are whole, and then no division is needed."""
    if width == TILE_ROWS:
        return hits >> (TILE_ROWS.bit_length() - 1), hits & (TILE_ROWS - 1)
    return np.divmod(hits, width)


def _order(columns: np.ndarray) -> np.ndarray:
    """Sorts columns of a tile; numbers of 16 bits are sorted by radix."""
    return np.argsort(columns.astype(np.uint16), kind="stable")


def _floors(tile: np.ndarray, best: TopK, rows: slice, axis: int) -> np.ndarray:
    """What an entry must reach; for rows that have not found k yet, a floor is found in the tile itself.

    The entries of a row fall into groups. As many of them as there are groups reach the maxima of the groups, so the
    k-th of the maxima is reached by at least k.
    """
    floors = np.maximum(best.floors[rows], np.finfo(np.float32).min)  # what is masked is -inf and never a hit
    unsettled = best.floors[rows] <= best.min_score
    size = tile.shape[axis]
    groups = max(64, 1 << best.k.bit_length())
    if groups >= size or not unsettled.any():
        return floors
    whole = torch.from_numpy(tile).narrow(axis, 0, size - size % groups)
    maxima = whole.unflatten(axis, (-1, groups)).amax(axis).numpy()
    found = np.partition(maxima, groups - best.k, axis=axis).take(groups - best.k, axis=axis)
    # Candidates past 1 count as 1, so a floor must not be past it.
    return np.where(unsettled, np.maximum(floors, np.minimum(found, 1)), floors)
