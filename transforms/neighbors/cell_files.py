"""Rows of a corpus in files where those of a cell are together, and the turns in which cells are compared."""

import itertools
import math
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import numpy as np
import torch

from sbert_core.neighbors.cells import cells_for
from sbert_core.neighbors.cosine import Block
from transforms.dataset.files import open_file, store
from transforms.neighbors.exact import Plan

CELLS_PER_TURN = 16
CROWDED = 32  # times the rows that a cell should have: one with more is cut
MIN_CROWDED = 16_384  # rows: a cell with fewer never is
_WRITTEN_ROWS = 1024  # at once


class Turn(NamedTuple):
    """A range of cells; or of a single one that is crowded the rows of one part, by rank."""

    low: int
    high: int
    part: int = 0
    parts: int = 1

    @property
    def name(self) -> str:
        """What the file of its outcome is called."""
        whole = f"turn-{self.low:06d}-{self.high:06d}"
        return whole if self.parts == 1 else f"{whole}-{self.part:06d}-of-{self.parts:06d}"


def list_turns(sizes: np.ndarray, cells: int = 0) -> Iterator[Turn]:
    """Turns of about the same work, of cells with so many rows (n,); `cells` were asked for, or as many as suit.

    Rows that are all alike stay in one cell however it is split. Such a cell is cut by rank: a row is then compared
    with only some of those, and they are more than it can have neighbours.
    """
    sizes = sizes.astype(np.float64)
    limit = max(CROWDED * sizes.sum() / (cells or cells_for(int(sizes.sum()))), MIN_CROWDED)
    crowded = np.flatnonzero(sizes > limit)
    work = np.cumsum(sizes * np.minimum(sizes, limit))
    turns = max(1, len(sizes) // CELLS_PER_TURN)
    bounds = np.searchsorted(work, np.linspace(0, work[-1], turns + 1)[1:-1]) + 1
    edges = np.unique(np.concatenate([[0], bounds, crowded, crowded + 1, [len(sizes)]]))
    for low, high in itertools.pairwise(edges[edges <= len(sizes)].tolist()):
        parts = math.ceil(sizes[low] / limit) if low in crowded else 1
        yield from (Turn(low, high, part, parts) for part in range(parts))


def _record(plan: Plan) -> np.dtype:
    """A row in the file of a block."""
    return np.dtype([("cell", "<u4"), ("rank", "<u4"), ("group", "<u8"), ("vector", "<f4", (plan.corpora[0].dim,))])


def _path(plan: Plan, number: int) -> str:
    return f"{plan.work}/route-{number:06d}.bin"


def write_cells(plan: Plan, number: int, block: Block, cells: np.ndarray, count: int) -> np.ndarray:
    """Writes a block's rows sorted by cell, each to its cells (n, routes) of `count`; returns how many each cell got.

    A file holds the number of cells, where the rows of each cell begin, and the rows: what a turn needs is together.
    """
    order = np.argsort(cells.ravel(), kind="stable")
    rows, ordered = order // max(cells.shape[1], 1), cells.ravel()[order]
    starts = np.searchsorted(ordered, np.arange(count + 1))

    def write(file: BinaryIO) -> None:
        file.write(np.concatenate([[count], starts]).astype("<i8").data)
        for start in range(0, len(rows), _WRITTEN_ROWS):
            part = rows[start : start + _WRITTEN_ROWS]
            records = np.zeros(len(part), _record(plan))
            records["cell"], records["rank"] = ordered[start : start + _WRITTEN_ROWS], block.ranks[part]
            records["vector"] = block.vectors.numpy()[part]
            if block.groups is not None:
                records["group"] = block.groups[part]
            file.write(records.data)

    store(_path(plan, number), write)
    return np.diff(starts)


def read_cells(plan: Plan, turn: Turn) -> Iterator[Block]:
    """The rows of each of a range of cells, from the files of all blocks, in the order of their ranks."""
    kind = _record(plan)
    parts = [np.empty(0, kind)]
    for number in range(len(plan.corpora[0].blocks)):
        with open_file(_path(plan, number)) as file:
            (cells,) = np.frombuffer(file.read(8), "<i8").tolist()
            file.seek(8 * (1 + turn.low))
            starts = np.frombuffer(file.read(8 * (turn.high - turn.low + 1)), "<i8")
            low, high = int(starts[0]), int(starts[-1])
            file.seek(8 * (cells + 2) + low * kind.itemsize)
            records = np.frombuffer(file.read((high - low) * kind.itemsize), kind)
            parts.append(records[records["rank"] % turn.parts == turn.part] if turn.parts > 1 else records)
    records = np.concatenate(parts)
    order = np.lexsort((records["rank"], records["cell"]))
    bounds = np.searchsorted(records["cell"][order], np.arange(turn.low, turn.high + 1))
    for low, high in itertools.pairwise(bounds.tolist()):
        rows = order[low:high]
        yield Block(
            torch.from_numpy(records["vector"][rows]),
            records["rank"][rows],
            records["group"][rows] if plan.group_column else None,
        )
