"""Cosines of blocks of rows, computed tile by tile."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F

from sbert_core.errors import DataError
from sbert_core.neighbors.tile_scan import TileAxis, TileScanner
from sbert_core.neighbors.topk import TopK

TILE_ROWS = 2048  # measured: faster than 1024 and 4096
PADDED_MULTIPLE = 64  # rows of a product are padded to a multiple of this


@dataclasses.dataclass(frozen=True, eq=False)
class Block:
    """Rows to compare: unit vectors (n, dim) and the ordinal (n,) of each row in the order of all ids.

    `groups` (n,) are needed only if the comparison is limited by `same_group`.
    """

    vectors: torch.Tensor
    ordinals: np.ndarray  # uint32
    groups: np.ndarray | None = None  # integers

    def __len__(self) -> int:
        return len(self.ordinals)


def unit_rows(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, dim) scaled to length 1 as float32, and which rows have a direction (n,).

    A row of zeros has no direction and stays as it is. A row that is not finite is a DataError.
    """
    rows = np.ascontiguousarray(vectors, dtype=np.float32)
    lengths = np.sqrt(np.einsum("nd,nd->n", rows, rows))
    if len(rows) and not 1e-15 < lengths.min() <= lengths.max() < 1e15:  # the squares may be out of float32's range
        lengths = np.sqrt(np.einsum("nd,nd->n", rows, rows, dtype=np.float64))
        not_finite = np.flatnonzero(~np.isfinite(lengths))
        if len(not_finite):
            raise DataError(f"row {not_finite[0]} has a vector that is not finite")
    has_direction = lengths > 0
    return (rows / np.where(has_direction, lengths, 1)[:, None]).astype(np.float32, copy=False), has_direction


def compare(
    left: Block,
    right: Block,
    left_topk: TopK,
    right_topk: TopK | None = None,
    same_group: bool | None = None,
    tile_rows: int = TILE_ROWS,
) -> None:
    """Adds the rows of `right` to the candidates of each row of `left`, and the other way round.

    To compare a block with itself, pass it as `left` and `right` with one `left_topk`: each pair is then computed once
    and no row is its own neighbour. Without `right_topk`, only the neighbours of `left` are collected. `same_group`
    limits pairs to rows of the same group (True) or of different groups (False). `tile_rows` has no effect on the
    result.
    """
    is_same_block = left is right
    max_entries = min(tile_rows, len(left)) * min(tile_rows, len(right))
    buffer, scanner = torch.empty(max_entries), TileScanner(max_entries)
    for rows in _slices(len(left), tile_rows):
        # Within one block, tiles below the diagonal are those above it, transposed.
        for columns in _slices(len(right), tile_rows, rows.start if is_same_block else 0):
            shape = rows.stop - rows.start, columns.stop - columns.start
            product = buffer[: shape[0] * shape[1]].view(shape)
            multiply(left.vectors[rows], right.vectors[columns], product)
            tile = product.numpy()
            on_diagonal = is_same_block and rows == columns
            if on_diagonal:
                np.fill_diagonal(tile, -np.inf)
            if same_group is not None:
                tile[(_groups(left)[rows, None] == _groups(right)[columns]) != same_group] = -np.inf
            column_topk = left_topk if is_same_block else right_topk
            scanner.scan(
                tile,
                TileAxis(left.ordinals[rows], rows.start, left_topk),
                # On the diagonal, the tile's columns are its rows.
                TileAxis(right.ordinals[columns], columns.start, None if on_diagonal else column_topk),
            )


def multiply(left: torch.Tensor, right: torch.Tensor, product: torch.Tensor) -> None:
    """Writes the products of all rows of `left` (n, dim) and `right` (m, dim) to `product` (n, m).

    The bits of a product do not depend on n and m. On some processors a small matrix product, or the remainder that a
    thread gets, adds up in another order than a large one. Padding with rows of zeros avoids that.
    """
    if not any(size % PADDED_MULTIPLE for size in product.shape):
        torch.mm(left, right.T, out=product)
        return
    left, right = (F.pad(side, (0, 0, 0, -len(side) % PADDED_MULTIPLE)) for side in (left, right))
    product.copy_((left @ right.T)[: product.shape[0], : product.shape[1]])


def _slices(n_rows: int, tile_rows: int, start: int = 0) -> Iterator[slice]:
    for first in range(start, n_rows, tile_rows):
        yield slice(first, min(first + tile_rows, n_rows))


def _groups(block: Block) -> np.ndarray:
    if block.groups is None:
        raise ValueError("same_group needs blocks with groups")
    return block.groups
