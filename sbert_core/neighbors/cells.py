"""Cells: small regions of the vector space, and how many of them a corpus needs."""

import dataclasses
import math

import numpy as np
import torch

MIN_ROWS_PER_CELL = 150
TYPICAL_PROBES = 48
MAX_CELLS = 65_536  # their centres fit into 100 MB at 384 dimensions
SAMPLE_ROWS_PER_CELL = 16
MAX_SAMPLE_ROWS = 131_072  # 200 MB at 384 dimensions, on one worker
KMEANS_ROUNDS = 3
ROUTED_ROWS = 2048  # rows whose cells are computed at once
POWER_ROUNDS = 8

GROUP_ROWS = 32_768  # rows of consecutive cells that are compared and stored together
MAX_CELL_ROWS = 4096  # a cell with more is divided: its rows are nearly identical, or learning would have split it


def count_cells(n_rows: int) -> int:
    """The number of cells of a corpus.

    A cell has about 150 rows. In a large corpus it has more: finding the nearest of c cells costs c products a row, and
    comparing with the members of p of them n p / c, so the sum is least at the root of n / p rows in a cell.
    """
    rows_per_cell = max(MIN_ROWS_PER_CELL, math.sqrt(n_rows / TYPICAL_PROBES), n_rows / MAX_CELLS)
    return max(1, round(n_rows / rows_per_cell))


def learn_cells(sample: np.ndarray, n_cells: int) -> np.ndarray:
    """The centres (m, dim) of cells, learned from a sample of unit vectors (n, dim) in a random order.

    Fewer than `n_cells` if the sample has fewer rows. Neighbouring numbers are of near cells, see `_order_cells`.
    """
    rows = torch.from_numpy(sample)
    centers = rows[:n_cells].clone()
    if not len(centers):
        return sample
    for _ in range(KMEANS_ROUNDS):
        members = torch.from_numpy(nearest_cells(sample, centers.numpy(), 1)[:, 0])
        counts = torch.bincount(members, minlength=len(centers))
        sums = torch.zeros_like(centers).index_add_(0, members, rows)
        centers = torch.nn.functional.normalize(torch.where(counts[:, None] > 0, sums, centers))
    homes = nearest_cells(sample, centers.numpy(), 1)[:, 0]
    sizes = np.bincount(homes, minlength=len(centers))
    return centers.numpy()[_order_cells(centers.numpy(), sizes)]


def _order_cells(centers: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """An order (m,) of cells in which near ones follow each other.

    The cells are divided across their main direction into two halves with equally many rows, and so on.
    """
    order: list[np.ndarray] = []
    stack = [np.arange(len(centers))]
    while stack:
        cells = stack.pop()
        if len(cells) < 3:
            order.append(cells)
            continue
        offsets = centers[cells] - centers[cells].mean(axis=0)
        direction = offsets[np.einsum("nd,nd->n", offsets, offsets).argmax()]
        for _ in range(POWER_ROUNDS):
            direction = offsets.T @ (offsets @ direction)
            direction /= max(float(np.linalg.norm(direction)), 1e-30)
        along = cells[np.argsort(offsets @ direction, kind="stable")]
        rows = np.cumsum(sizes[along])
        middle = int(np.clip(np.searchsorted(rows, rows[-1] / 2), 1, len(along) - 1))
        stack += [along[middle:], along[:middle]]  # the last is divided next
    return np.concatenate(order)


def nearest_cells(vectors: np.ndarray, centers: np.ndarray, count: int) -> np.ndarray:
    """The numbers (n, count) int64 of the cells nearest to each of the vectors (n, dim), nearest first.

    Fewer columns if there are fewer cells.
    """
    count = min(count, len(centers))
    columns = torch.from_numpy(centers).T
    products = torch.empty(ROUTED_ROWS, len(centers))
    nearest = np.empty((len(vectors), count), np.int64)
    for start in range(0, len(vectors), ROUTED_ROWS):
        part = torch.from_numpy(vectors[start : start + ROUTED_ROWS])
        torch.mm(part, columns, out=products[: len(part)])
        nearest[start : start + ROUTED_ROWS] = products[: len(part)].topk(count, 1).indices.numpy()
    return nearest


@dataclasses.dataclass(frozen=True, eq=False)
class CellLayout:
    """How cells are divided and grouped, from the number of rows in each.

    A cell of more than `MAX_CELL_ROWS` is divided by ordinal, so numbers of cells change: see `renumber`. A row is then
    compared with a part of its cell only, which has more copies of it than it has neighbours. Groups are consecutive
    cells of together about `GROUP_ROWS` rows.
    """

    parts: np.ndarray  # (m,): into how many each learned cell is divided
    bounds: np.ndarray  # (groups + 1,): the first cell of each group, by new number, and the end

    @classmethod
    def of(cls, sizes: np.ndarray, group_rows: int = GROUP_ROWS, max_cell_rows: int = MAX_CELL_ROWS) -> "CellLayout":
        """The layout of cells with these numbers of rows (m,)."""
        parts = np.maximum(-(-sizes // max_cell_rows), 1)
        rows = np.cumsum(np.repeat(sizes / parts, parts))
        n_rows = rows[-1] if len(rows) else 0
        cuts = np.searchsorted(rows, np.linspace(0, n_rows, max(math.ceil(n_rows / group_rows), 1) + 1)[1:-1]) + 1
        bounds = np.unique(np.concatenate([[0], cuts, [len(rows)]])).astype(np.int64)
        return cls(parts, bounds)

    @property
    def n_groups(self) -> int:
        """The number of groups."""
        return len(self.bounds) - 1

    @property
    def n_cells(self) -> int:
        """The number of cells, after division."""
        return int(self.bounds[-1])

    @property
    def _firsts(self) -> np.ndarray:
        """The new number of the first part of each learned cell, and the end."""
        return np.concatenate([[0], np.cumsum(self.parts)])

    def renumber(self, cells: np.ndarray, ordinals: np.ndarray) -> np.ndarray:
        """The new numbers (n, p) of learned cells (n, p) that rows with these ordinals (n,) probe."""
        return (self._firsts[cells] + ordinals[:, None] % self.parts[cells]).astype(np.int32)

    def learned_cells(self, first: int, end: int) -> tuple[int, int]:
        """The range of learned cells of which some parts are in the groups from `first` to before `end`."""
        low, high = np.searchsorted(self._firsts, [self.bounds[first], self.bounds[end] - 1], side="right") - 1
        return int(low), int(high) + 1

    def groups_of(self, cells: np.ndarray) -> np.ndarray:
        """The group of each cell, in the same shape."""
        return np.searchsorted(self.bounds, cells, side="right") - 1
