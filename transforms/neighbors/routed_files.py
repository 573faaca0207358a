"""Work files of routed mining: rows by cell as they are routed, groups of cells, and what was found for them.

Each run of blocks writes its rows into one file, ordered by cell. A run of groups is then read from all these files, in
one piece each. What was found goes back in the same way: each run of groups writes one file, ordered by rows of the
corpus, and a run of blocks reads its piece of each. Both numbers of runs grow as the root of the corpus, up to a length
of a run that fits into memory; so the number of pieces grows as the corpus.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, NamedTuple

import numpy as np
import torch

from sbert_core.neighbors.cells import GROUP_ROWS, CellLayout
from sbert_core.neighbors.probed_cells import CellGroup
from sbert_core.neighbors.unit_vectors import Block
from sbert_core.process_cache import ByteCache
from transforms.dataset.files import open_file, store
from transforms.dataset.work_files import load_arrays, need_arrays, store_arrays
from transforms.neighbors.mining_plan import MiningPlan
from transforms.neighbors.row_candidates import RowCandidates

CACHED_GROUP_BYTES = 192 * 2**20  # per process; a group of 32,768 rows of 256 dimensions has 40 MB
MAX_ROUTED_BLOCKS = 16  # blocks whose rows are in memory while they are routed
MAX_GATHERED_GROUPS = 2  # groups whose rows are in memory while they are written
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


def gathered_runs(n_groups: int) -> list[Run]:
    """The runs of groups that are written together."""
    return divide(n_groups, MAX_GATHERED_GROUPS)


def _routed_record(plan: MiningPlan, n_probes: int) -> np.dtype:
    probes, vector = ("<i4", (n_probes,)), ("<f4", (plan.corpora[0].dim,))
    return np.dtype([("ordinal", "<u4"), ("row", "<u4"), ("group", "<u8"), ("probes", *probes), ("vector", *vector)])


def _found_record(plan: MiningPlan) -> np.dtype:
    return np.dtype([("row", "<u4"), ("candidates", "<u8", (plan.k,))])


def _routed_path(plan: MiningPlan, run: Run) -> str:
    return f"{plan.work}/routed-{run.first:06d}.bin"


def _found_path(plan: MiningPlan, run: Run) -> str:
    return f"{plan.work}/found-rows-{run.first:06d}.bin"


def _write_records(path: str, starts: np.ndarray, records: Iterable[np.ndarray]) -> None:
    """Writes records that are ordered by a key, so that those of some consecutive keys can be read alone.

    `starts` (keys + 1,) are the places of the first record of each key, and the end.
    """

    def write(file: BinaryIO) -> None:
        file.write(np.concatenate([[len(starts) - 1], starts]).astype("<i8").data)
        for each in records:
            file.write(each.data)

    store(path, write)


def _read_records(path: str, record: np.dtype, first_key: int, end_key: int) -> np.ndarray:
    """The records of the keys from `first_key` to before `end_key`."""
    with open_file(path) as file:
        (n_keys,) = np.frombuffer(file.read(_INT_BYTES), "<i8").tolist()
        file.seek(_INT_BYTES * (1 + first_key))
        starts = np.frombuffer(file.read(_INT_BYTES * (end_key - first_key + 1)), "<i8")
        start, end = int(starts[0]), int(starts[-1])
        file.seek(_INT_BYTES * (n_keys + 2) + start * record.itemsize)
        return np.frombuffer(file.read((end - start) * record.itemsize), record)


def write_routed(
    plan: MiningPlan, run: Run, blocks: Sequence[Block], rows: np.ndarray, probes: np.ndarray, n_cells: int
) -> None:
    """Writes the rows of blocks, ordered by home cell, with the cells (n, p) that they probe.

    `rows` (n,) are their numbers in the corpus.
    """
    homes = probes[:, 0] if n_cells else np.empty(0, np.int64)
    order = np.argsort(homes, kind="stable")
    block_starts = np.cumsum([0, *map(len, blocks)])

    def records_of(chosen: np.ndarray) -> np.ndarray:
        records = np.zeros(len(chosen), _routed_record(plan, probes.shape[1]))
        records["row"], records["probes"] = rows[chosen], probes[chosen]
        for block, start, end in zip(blocks, block_starts[:-1], block_starts[1:], strict=True):
            places = np.flatnonzero((chosen >= start) & (chosen < end))
            own = chosen[places] - start
            records["ordinal"][places] = block.ordinals[own]
            records["vector"][places] = block.vectors.numpy()[own]
            if block.groups is not None:
                records["group"][places] = block.groups[own]
        return records

    chunks = (records_of(order[start : start + _RECORDS_PER_WRITE]) for start in _chunk_starts(len(order)))
    _write_records(_routed_path(plan, run), np.searchsorted(homes[order], np.arange(n_cells + 1)), chunks)


def _chunk_starts(n_records: int) -> range:
    return range(0, n_records, _RECORDS_PER_WRITE)


def gather_groups(
    plan: MiningPlan, layout: CellLayout, run: Run, n_routed: int, n_probes: int
) -> Iterator[tuple[int, CellGroup]]:
    """The groups of a run by their numbers, from the files of all runs of blocks.

    The files have `n_routed` cells of each row; the first `n_probes` of them are probed.
    """
    cells, record = layout.learned_cells(run.first, run.end), _routed_record(plan, n_routed)
    parts = [_read_records(_routed_path(plan, blocks), record, *cells) for blocks in routed_runs(plan)]
    records = np.concatenate([np.empty(0, record), *parts])
    del parts
    probes = layout.renumber(records["probes"][:, :n_probes], records["ordinal"])
    order = np.lexsort((records["ordinal"], probes[:, 0]))
    bounds = np.searchsorted(probes[order, 0], layout.bounds[run.first : run.end + 1])
    for number, (start, end) in enumerate(itertools.pairwise(bounds.tolist()), run.first):
        rows = order[start:end]
        groups = records["group"][rows] if plan.group_column else None
        block = Block(torch.from_numpy(records["vector"][rows]), records["ordinal"][rows], groups)
        first_cell, end_cell = layout.bounds[number : number + 2].tolist()
        yield number, CellGroup(block, probes[rows], records["row"][rows], first_cell, end_cell)


def write_found_rows(plan: MiningPlan, run: Run, found: RowCandidates) -> None:
    """Writes what was found for the groups of a run, ordered by the numbers of the rows in the corpus."""
    order = np.argsort(found.rows)
    firsts = [plan.corpora[0].blocks[each.first].first_row for each in routed_runs(plan)]
    starts = np.append(np.searchsorted(found.rows[order], firsts), len(order))

    def records_of(chosen: np.ndarray) -> np.ndarray:
        records = np.empty(len(chosen), _found_record(plan))
        records["row"], records["candidates"] = found.rows[chosen], found.candidates[chosen]
        return records

    chunks = (records_of(order[start : start + _RECORDS_PER_WRITE]) for start in _chunk_starts(len(order)))
    _write_records(_found_path(plan, run), starts, chunks)


def read_found_rows(plan: MiningPlan, place: int, group_runs: Sequence[Run]) -> Iterator[RowCandidates]:
    """What was found for the rows of one of the runs of `routed_runs`, in all groups."""
    for run in group_runs:
        records = _read_records(_found_path(plan, run), _found_record(plan), place, place + 1)
        yield RowCandidates(records["row"], records["candidates"])


def _group_file(number: int) -> str:
    return f"group-{number:06d}.npz"


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
    store_arrays(f"{plan.work}/{_group_file(number)}", arrays)


_groups = ByteCache(CACHED_GROUP_BYTES)


def load_group(work: str, number: int) -> CellGroup:
    """A group that was stored below a plan's work folder."""

    def load() -> CellGroup:
        arrays = need_arrays(f"{work}/{_group_file(number)}")
        block = Block(torch.from_numpy(arrays["vectors"]), arrays["ordinals"], arrays.get("groups"))
        return CellGroup(block, arrays["probes"], arrays["rows"], *arrays["cells"].tolist())

    return _groups.get((work, number), load)


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


def expected_files(n_rows: int) -> dict[str, int]:
    """The work files of four steps of routed mining, and the rows of each, by which progress is shown.

    The number of groups and rounds is an estimate: both are known only when rows are routed.
    """
    files = {}
    for number, first in enumerate(range(0, n_rows, GROUP_ROWS)):
        for name in (_group_file(number), within_file(number), across_file(number), found_file(number, 1)):
            files[name] = min(GROUP_ROWS, n_rows - first)
    return files


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
