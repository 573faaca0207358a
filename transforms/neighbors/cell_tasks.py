"""How the comparison of cells is divided into tasks of about the same work."""

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sbert_core.neighbors.cells import default_cells

CELLS_PER_TASK = 16
MAX_SIZE_RATIO = 32  # a cell with more rows than this times the mean is divided
MIN_DIVIDED_ROWS = 16_384  # a cell with fewer rows is never divided


class CellTask(NamedTuple):
    """The cells from `first` to before `end`; or one part of a single cell that is too large for one task.

    The rows of part p of n are those whose ordinal is p modulo n.
    """

    first: int
    end: int
    part: int = 0
    n_parts: int = 1

    @property
    def file_name(self) -> str:
        """The name of the work file that holds what was found."""
        cells = f"cell-task-{self.first:06d}-{self.end:06d}"
        return f"{cells}.npz" if self.n_parts == 1 else f"{cells}-{self.part:06d}-of-{self.n_parts:06d}.npz"


def plan_cell_tasks(
    sizes: np.ndarray, n_cells: int = 0, min_divided_rows: int = MIN_DIVIDED_ROWS
) -> Iterator[CellTask]:
    """Tasks that cover all cells, from the number of rows (n,) in each cell.

    `n_cells` is the number of cells that was asked for, 0 for the default: cells were split since, so there may be
    more. A large cell is divided by ordinal. It is large because its rows are nearly identical: splitting it by
    vectors did not help. A row is then compared with a part of them only, which are more than it can have neighbours.
    """
    if not len(sizes):  # no row has a direction
        return
    sizes = sizes.astype(np.float64)
    max_rows = max(MAX_SIZE_RATIO * sizes.sum() / (n_cells or default_cells(int(sizes.sum()))), min_divided_rows)
    large = np.flatnonzero(sizes > max_rows)
    work = np.cumsum(sizes * np.minimum(sizes, max_rows))
    n_tasks = max(1, len(sizes) // CELLS_PER_TASK)
    ends = np.searchsorted(work, np.linspace(0, work[-1], n_tasks + 1)[1:-1]) + 1
    bounds = np.unique(np.concatenate([[0], ends, large, large + 1, [len(sizes)]]))
    for first, end in itertools.pairwise(bounds[bounds <= len(sizes)].tolist()):
        n_parts = math.ceil(sizes[first] / max_rows) if first in large else 1
        yield from (CellTask(first, end, part, n_parts) for part in range(n_parts))
