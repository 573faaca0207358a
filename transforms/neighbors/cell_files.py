"""Work files with the rows of a block, ordered by cell, so that a task reads its cells in one piece.

A file holds: the number of cells (int64), the place of the first record of each cell and of the end (int64), and one
record per row and cell.
"""

import itertools
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
import torch

from sbert_core.neighbors.cosine import Block
from transforms.dataset.files import open_file, store
from transforms.neighbors.cell_tasks import CellTask
from transforms.neighbors.mining_plan import MiningPlan

_RECORDS_PER_WRITE = 1024
_INT_BYTES = 8


def _record_type(plan: MiningPlan) -> np.dtype:
    dim = plan.corpora[0].dim
    return np.dtype([("cell", "<u4"), ("ordinal", "<u4"), ("group", "<u8"), ("vector", "<f4", (dim,))])


def _path(plan: MiningPlan, number: int) -> str:
    return f"{plan.work}/cells-of-block-{number:06d}.bin"


def write_cells(plan: MiningPlan, number: int, block: Block, cells: np.ndarray, n_cells: int) -> np.ndarray:
    """Writes each row of a block once for each of its cells (n, routes); returns the sizes (n_cells,) of the cells."""
    order = np.argsort(cells.ravel(), kind="stable")
    rows, cell_of_record = order // max(cells.shape[1], 1), cells.ravel()[order]
    starts = np.searchsorted(cell_of_record, np.arange(n_cells + 1))

    def write(file: BinaryIO) -> None:
        file.write(np.concatenate([[n_cells], starts]).astype("<i8").data)
        for start in range(0, len(rows), _RECORDS_PER_WRITE):
            part = rows[start : start + _RECORDS_PER_WRITE]
            records = np.zeros(len(part), _record_type(plan))
            records["cell"] = cell_of_record[start : start + _RECORDS_PER_WRITE]
            records["ordinal"] = block.ordinals[part]
            records["vector"] = block.vectors.numpy()[part]
            if block.groups is not None:
                records["group"] = block.groups[part]
            file.write(records.data)

    store(_path(plan, number), write)
    return np.diff(starts)


def read_cells(plan: MiningPlan, task: CellTask) -> Iterator[Block]:
    """The rows of each cell of a task, from the files of all blocks, ordered by ordinal."""
    parts = [_read_records(plan, number, task) for number in range(len(plan.corpora[0].blocks))]
    records = np.concatenate([np.empty(0, _record_type(plan)), *parts])
    order = np.lexsort((records["ordinal"], records["cell"]))
    bounds = np.searchsorted(records["cell"][order], np.arange(task.first, task.end + 1))
    for start, end in itertools.pairwise(bounds.tolist()):
        rows = order[start:end]
        yield Block(
            torch.from_numpy(records["vector"][rows]),
            records["ordinal"][rows],
            records["group"][rows] if plan.group_column else None,
        )


def _read_records(plan: MiningPlan, number: int, task: CellTask) -> np.ndarray:
    """The records of a task's cells in the file of one block."""
    record = _record_type(plan)
    with open_file(_path(plan, number)) as file:
        (n_cells,) = np.frombuffer(file.read(_INT_BYTES), "<i8").tolist()
        file.seek(_INT_BYTES * (1 + task.first))
        starts = np.frombuffer(file.read(_INT_BYTES * (task.end - task.first + 1)), "<i8")
        start, end = int(starts[0]), int(starts[-1])
        file.seek(_INT_BYTES * (n_cells + 2) + start * record.itemsize)
        records = np.frombuffer(file.read((end - start) * record.itemsize), record)
    return records[records["ordinal"] % task.n_parts == task.part] if task.n_parts > 1 else records
