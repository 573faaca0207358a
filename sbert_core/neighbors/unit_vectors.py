"""Unit vectors, and their cosines in arithmetic that is the same on every processor.

The components of a unit vector are rounded to multiples of 2**-26. This moves a cosine by about 6e-9, less than float32
resolves. Products of two components are then multiples of 2**-52. No sum of the products of two unit vectors exceeds 2
(Cauchy-Schwarz), and all multiples of 2**-52 below 2 are float64 numbers. So every addition is exact, and the sum
does not depend on the order of additions: kernels, threads, and positions in a block have no effect on a score.
"""

import dataclasses

import numpy as np
import torch

from sbert_core.errors import DataError

GRID = np.float32(2**26)  # components are multiples of 1 / GRID
SCALED_ROWS = 512  # rows that are scaled at once, and pairs that are scored at once: their buffers fit the cache


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
    """Rows (n, dim) scaled to length 1 as float32 multiples of 2**-26, and which rows have a direction (n,).

    A row of zeros has no direction and stays as it is. A row that is not finite is a DataError. A result depends on
    nothing but its row.
    """
    rows = np.ascontiguousarray(vectors, dtype=np.float32)
    unit = np.empty_like(rows)
    lengths = np.empty(len(rows))
    for start in range(0, len(rows), SCALED_ROWS):
        part = slice(start, start + SCALED_ROWS)
        lengths[part] = _lengths(rows[part])
        divisors = np.where(lengths[part] > 0, lengths[part], 1)[:, None]
        is_far = ~((divisors > 1e-30) & (divisors < 1e30))[:, 0]  # out of the range of float32, which is faster
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):  # rows that are replaced, or not finite
            np.divide(rows[part], divisors.astype(np.float32), out=unit[part])
            unit[part][is_far] = rows[part][is_far] / divisors[is_far]
        # In float32 too this has no error but that of `rint`: a component of 1/4 or more is a multiple of 2**-26
        # already, and a smaller one gives an integer below 2**24.
        unit[part] *= GRID
        np.rint(unit[part], out=unit[part])
        unit[part] /= GRID
    not_finite = np.flatnonzero(~np.isfinite(lengths))
    if len(not_finite):
        raise DataError(f"row {not_finite[0]} has a vector that is not finite")
    return unit, lengths > 0


def _lengths(rows: np.ndarray) -> np.ndarray:
    """The lengths (n,) float64 of rows (n, dim).

    The squares are added by halves: the second half of the columns to the first half, until one column is left. The
    order of additions is thus the same whatever the processor, which it is not in a library's sum.
    """
    if not rows.shape[1]:
        return np.zeros(len(rows))
    sums = rows.astype(np.float64)
    sums *= sums
    width = rows.shape[1]
    while width > 1:
        half = width // 2
        sums[:, :half] += sums[:, width - half : width]
        width -= half
    return np.sqrt(sums[:, 0])


def exact_scores(
    left: np.ndarray, right: np.ndarray, left_rows: np.ndarray | None = None, right_rows: np.ndarray | None = None
) -> np.ndarray:
    """The cosines (n,) float32, at most 1, of the rows of `left` (n, dim) and `right` (n, dim), pair by pair.

    `left_rows` (n,) and `right_rows` (n,) choose the rows of each pair; without them all rows are taken in order. Rows
    must be those of `unit_rows`. A score then depends on nothing but its two rows, and is their cosine correctly
    rounded.
    """
    n_pairs = len(left) if left_rows is None else len(left_rows)
    scores = np.empty(n_pairs)
    chosen = [_RowReader(left, left_rows), _RowReader(right, right_rows)]
    for start in range(0, n_pairs, SCALED_ROWS):
        stop = min(start + SCALED_ROWS, n_pairs)
        left_part, right_part = (each.read(start, stop) for each in chosen)
        np.matmul(left_part[:, None], right_part[:, :, None], out=scores[start:stop, None, None])
    return np.minimum(scores, 1).astype(np.float32)


class _RowReader:
    """Reads chosen rows of float32 vectors as float64 into one buffer: fresh memory takes more time than the sums."""

    def __init__(self, vectors: np.ndarray, rows: np.ndarray | None) -> None:
        self._vectors = torch.from_numpy(vectors)
        self._rows = None if rows is None else torch.from_numpy(rows.astype(np.int64, copy=False))
        self._chosen = torch.empty(SCALED_ROWS, vectors.shape[1])
        self._buffer = torch.empty(SCALED_ROWS, vectors.shape[1], dtype=torch.float64)

    def read(self, start: int, stop: int) -> np.ndarray:
        if self._rows is None:
            chosen = self._vectors[start:stop]
        else:
            chosen = self._chosen[: stop - start]
            torch.index_select(self._vectors, 0, self._rows[start:stop], out=chosen)
        return self._buffer[: stop - start].copy_(chosen).numpy()


def product_error(dim: int) -> np.float32:
    """A bound of the difference of a float32 matrix product of unit vectors (dim,) and their exact score.

    A sum of n products of floats with unit roundoff u has an error of at most n u / (1 - n u) times the sum of the
    products' absolute values, which is at most 1 here, in any order of additions and with or without fused operations.
    For float32, u is 2**-24. Four more are for the rounding of scores, and of thresholds that are compared with them.
    """
    return np.float32((dim / (1 - dim * 2**-24) + 4) * 2**-24)
