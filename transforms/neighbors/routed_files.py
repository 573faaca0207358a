"""Work files of routed mining: rows by cell as they are routed, groups of cells, and what was found for them.

Rows are routed range by range of blocks, and each range writes one file, ordered by cell. A run of groups is then read
from all these files in one piece each. Both numbers grow as the root of the corpus, up to a size that fits into memory.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple

import numpy as np
import torch

from sbert_core.neighbors.cells import CellLayout
from sbert_core.neighbors.probed_cells import CellGroup
from sbert_core.neighbors.unit_vectors import Block
from sbert_core.process_cache import process_cache
from transforms.dataset.files import open_file, store
from transforms.dataset.work_files import load_arrays, need_arrays, store_arrays
from transforms.neighbors.mining_plan import MiningPlan

CACHED_GROUPS = 16  # of each process; a group of 16,384 rows of 256 dimensions has 18 MB
CACHED_LISTS = 256
MAX_ROUTED_BLOCKS = 16  # blocks whose rows are in memory while they are routed
MAX_GATHERED_GROUPS = 4  # groups whose rows are in memory while they are written
_RECORDS_PER_WRITE = 1024
_INT_BYTES = 8


class Run(NamedTuple):
    """Consecutive blocks or groups: from `first` to before `end`."""

    first: int
    end: int


def divide(count: int, max_length: int) -> list[Run]:
    """Runs of about root(`count`), and at most `max_length`, of `count` blocks or groups."""
    length = min(max(math.isqrt(count), 1), max_length)
    return [Run(first, min(first + length, count)) for first in range(0, count, length)]


def routed_runs(plan: MiningPlan) -> list[Run]:
    """The runs of blocks that are routed together."""
    return divide(len(plan.corpora[0].blocks), MAX_ROUTED_BLOCKS)


def gathered_runs(layout: CellLayout) -> list[Run]:
    """The runs of groups that are written together."""
    return divide(layout.n_groups, MAX_GATHERED_GROUPS)


def _record_type(plan: MiningPlan, n_probes: int) -> np.dtype:
    probes, vector = ("<i4", (n_probes,)), ("<f4", (plan.corpora[0].dim,))
    return np.dtype([("ordinal", "<u4"), ("row", "<u4"), ("group", "<u8"), ("probes", *probes), ("vector", *vector)])


def _routed_path(plan: MiningPlan, run: Run) -> str:
    return f"{plan.work}/routed-{run.first:06d}.bin"


def write_routed(
    plan: MiningPlan, run: Run, blocks: Sequence[Block], rows: np.ndarray, probes: np.ndarray, n_cells: int
) -> None:
    """Writes the rows of blocks, ordered by home cell, with the cells (n, p) that they probe.

    `rows` (n,) are their numbers in the corpus. The file has the number of cells (int64), the place of the first record
    of each cell and of the end (int64), and a record for each row.
    """
    homes = probes[:, 0] if n_cells else np.empty(0, np.int64)
    order = np.argsort(homes, kind="stable")
    starts = np.searchsorted(homes[order], np.arange(n_cells + 1))
    block_starts = np.cumsum([0, *map(len, blocks)])

    def records_of(chosen: np.ndarray) -> np.ndarray:
        records = np.zeros(len(chosen), _record_type(plan, probes.shape[1]))
        records["row"], records["probes"] = rows[chosen], probes[chosen]
        for block, start, end in zip(blocks, block_starts[:-1], block_starts[1:], strict=True):
            places = np.flatnonzero((chosen >= start) & (chosen < end))
            own = chosen[places] - start
            records["ordinal"][places] = block.ordinals[own]
            records["vector"][places] = block.vectors.numpy()[own]
            if block.groups is not None:
                records["group"][places] = block.groups[own]
        return records

    def write(file: BinaryIO) -> None:
        file.write(np.concatenate([[n_cells], starts]).astype("<i8").data)
        for start in range(0, len(order), _RECORDS_PER_WRITE):
            file.write(records_of(order[start : start + _RECORDS_PER_WRITE]).data)

    store(_routed_path(plan, run), write)


def _read_routed(plan: MiningPlan, run: Run, first_cell: int, end_cell: int, n_probes: int) -> np.ndarray:
    """The records of some cells in the file of one run of blocks."""
    record = _record_type(plan, n_probes)
    with open_file(_routed_path(plan, run)) as file:
        (n_cells,) = np.frombuffer(file.read(_INT_BYTES), "<i8").tolist()
        file.seek(_INT_BYTES * (1 + first_cell))
        starts = np.frombuffer(file.read(_INT_BYTES * (end_cell - first_cell + 1)), "<i8")
        start, end = int(starts[0]), int(starts[-1])
        file.seek(_INT_BYTES * (n_cells + 2) + start * record.itemsize)
        return np.frombuffer(file.read((end - start) * record.itemsize), record)


def gather_groups(plan: MiningPlan, layout: CellLayout, run: Run, n_probes: int) -> Iterator[tuple[int, CellGroup]]:
    """The groups of a run by their numbers, from the files of all runs of blocks."""
    cells = layout.learned_cells(run.first, run.end)
    parts = [_read_routed(plan, blocks, *cells, n_probes) for blocks in routed_runs(plan)]
    records = np.concatenate([np.empty(0, _record_type(plan, n_probes)), *parts])
    del parts
    probes = layout.renumber(records["probes"], records["ordinal"])
    order = np.lexsort((records["ordinal"], probes[:, 0]))
    bounds = np.searchsorted(probes[order, 0], layout.bounds[run.first : run.end + 1])
    for number, (start, end) in enumerate(itertools.pairwise(bounds.tolist()), run.first):
        rows = order[start:end]
        groups = records["group"][rows] if plan.group_column else None
        block = Block(torch.from_numpy(records["vector"][rows]), records["ordinal"][rows], groups)
        first_cell, end_cell = layout.bounds[number : number + 2].tolist()
        yield number, CellGroup(block, probes[rows], records["row"][rows], first_cell, end_cell)


def store_group(plan: MiningPlan, number: int, group: CellGroup) -> None:
    """Stores the rows of a group."""
    arrays = {
        "vectors": group.block.vectors.numpy(),
        "ordinals": group.block.ordinals,
        "probes": group.probes,
        "rows": group.corpus_rows,
        "cells": np.array([group.first_cell, group.end_cell]),
    }
    if group.block.groups is not None:
        arrays["groups"] = group.block.groups
    store_arrays(f"{plan.work}/group-{number:06d}.npz", arrays)


@process_cache(max_entries=CACHED_GROUPS)
def load_group(work: str, number: int) -> CellGroup:
    """A group that was stored below a plan's work folder."""
    arrays = need_arrays(f"{work}/group-{number:06d}.npz")
    block = Block(torch.from_numpy(arrays["vectors"]), arrays["ordinals"], arrays.get("groups"))
    return CellGroup(block, arrays["probes"], arrays["rows"], *arrays["cells"].tolist())


def within_file(number: int) -> str:
    """The work file of what was found inside a group."""
    return f"within-{number:06d}.npz"


def across_file(number: int) -> str:
    """The work file of what was found between a group and the groups after it, for the rows of the group."""
    return f"across-{number:06d}.npz"


def pair_file(number: int, other: int) -> str:
    """The work file of what was found between a group and a later one, for the rows of the later one."""
    return f"across-{number:06d}-{other:06d}.npz"


def found_file(number: int, round_number: int) -> str:
    """The work file of all that was found for the rows of a group until a round."""
    return f"found-{round_number}-{number:06d}.npz"


def store_found(plan: MiningPlan, name: str, candidates: np.ndarray) -> None:
    """Stores the rows of candidates (n, k) that have any: past the first comparisons, most have none."""
    rows = np.flatnonzero(candidates[:, 0])
    store_arrays(f"{plan.work}/{name}", {"rows": rows.astype(np.uint32), "candidates": candidates[rows]})


def load_found(plan: MiningPlan, name: str, n_rows: int) -> np.ndarray:
    """Candidates (n_rows, k) that were stored."""
    arrays = need_arrays(f"{plan.work}/{name}")
    candidates = np.zeros((n_rows, plan.k), np.uint64)
    candidates[arrays["rows"]] = arrays["candidates"]
    return candidates


def is_stored(plan: MiningPlan, name: str) -> bool:
    """Whether an earlier run stored this work file, and it is intact."""
    return load_arrays(f"{plan.work}/{name}") is not None
