"""The nearest rows of every row of a large corpus, found only where they are likely to be.

Cells are learned on a sample. Every row is written to the files of its nearest cells, cells are compared exactly, and
an audit measures on a random sample of rows how many neighbours were missed.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import torch
from apache_beam.metrics import Metrics
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import WindowedValue

from sbert_core.cores import share_of_cores
from sbert_core.errors import DataError
from sbert_core.neighbors.cells import (
    MAX_SAMPLE,
    SAMPLE_PER_CELL,
    cells_for,
    learn_cells,
    nearest_cells,
    sample_of,
)
from sbert_core.neighbors.cosine import compare
from sbert_core.neighbors.topk import EMPTY, TopK, merge_best
from transforms.clusters.sums import AddUpFn
from transforms.dataset.corpus import ranks_of_block
from transforms.dataset.work_files import load_arrays, store_arrays
from transforms.neighbors.audit import AuditNeighbors
from transforms.neighbors.cell_files import Turn, list_turns, read_cells, write_cells
from transforms.neighbors.exact import HELD_BYTES, FindNeighbors, Found, Plan, cached_block

MAX_CROWD = 8  # a cell may have this many times the mean of the rows
MAX_SHELF = 64  # blocks

_Best = tuple[np.ndarray, np.ndarray]  # ranks or rows (n,), and the best candidates (n, k) of each


@dataclasses.dataclass(kw_only=True, eq=False)
class FindRoutedNeighbors(beam.PTransform):
    """Finds for each row its nearest others among those that share one of its `routes` nearest cells.

    Input is a pipeline. Output is the dictionary of FindNeighbors, and with it `audit`: a dictionary of what was
    measured on about `audit_rows` rows against the exact answer (see AuditNeighbors). `find` says what to look for.
    Counters: `mine/cells`, `mine/turns_kept`, `mine/cosines`, `mine/zero_vectors`.
    """

    find: FindNeighbors
    cells: int = 0  # 0: as many as suit the corpus
    routes: int = 3
    audit_rows: int = 1000
    audit_score: float = 0.75

    def __post_init__(self) -> None:
        super().__init__()
        if self.find.other is not None:
            raise DataError("routed mining works within one corpus: use the exact index for two")
        if self.routes < 1 or self.cells < 0 or self.audit_rows < 1:
            raise DataError("routes and audit_rows must be at least 1, cells at least 0")

    def expand(self, root: beam.Pipeline) -> Any:
        """Learns cells, sends rows to them, compares inside them, and audits the outcome."""
        plan = (
            root | "Folder" >> beam.Create([self.find.work]) | "Plan" >> beam.Map(lambda _: self.make_plan().ranked())
        )
        planned = beam.pvalue.AsSingleton(plan)
        blocks = (
            plan
            | "Blocks" >> beam.FlatMap(lambda plan: range(len(plan.corpora[0].blocks)))
            | "SpreadBlocks" >> beam.Reshuffle()
        )
        centers = (
            blocks
            | "Sample" >> beam.Map(_sample, planned, self.cells)
            | "AllSamples" >> beam.combiners.ToList()
            | "LearnCells" >> beam.Map(_learn, planned, self.cells)
        )
        routed = blocks | "Route" >> beam.Map(_route, planned, beam.pvalue.AsSingleton(centers), self.routes)
        compared = (
            routed
            | "AllRouted" >> beam.CombineGlobally(AddUpFn())
            | "Turns" >> beam.FlatMap(lambda sizes: list_turns(sizes[0], self.cells) if sizes else ())
            | "Spread" >> beam.Reshuffle()
            | "Compare" >> beam.ParDo(_CompareCellsFn(self.find.workers), planned)
        )
        shelves = plan | "Shelves" >> beam.FlatMap(_empty_shelves)
        found = (
            (compared, shelves)
            | "EveryShelf" >> beam.Flatten()
            | "MeetOnShelf" >> beam.GroupByKey()
            | "Found" >> beam.FlatMap(_merge_shelf, planned)
        )
        audit = {"plan": plan, "blocks": blocks, "found": found} | "Audit" >> AuditNeighbors(
            rows=self.audit_rows, min_score=self.audit_score
        )
        return {"plan": plan, "found": found, "audit": audit}

    def make_plan(self) -> Plan:
        """Looks into the files of the corpus."""
        return self.find.make_plan(self.cells, self.routes)


def _sample(number: int, plan: Plan, cells: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a block that cells are learned on: ranks and vectors."""
    corpus = plan.corpora[0]
    wanted = min(SAMPLE_PER_CELL * (cells or cells_for(corpus.rows)), MAX_SAMPLE)
    block, _ = cached_block(corpus, number, plan.group_column)
    chosen = sample_of(block.ranks, corpus.rows, wanted)
    return block.ranks[chosen], block.vectors.numpy()[chosen]


def _learn(samples: list[tuple[np.ndarray, np.ndarray]], plan: Plan, cells: int) -> np.ndarray:
    if not samples:
        return np.empty((0, plan.corpora[0].dim), np.float32)
    ranks = np.concatenate([ranks for ranks, _ in samples])
    vectors = np.concatenate([vectors for _, vectors in samples])[np.argsort(ranks)]
    count = cells or cells_for(plan.corpora[0].rows)
    return learn_cells(vectors, count, MAX_CROWD / count)


def _route(number: int, plan: Plan, centers: np.ndarray, routes: int) -> tuple[np.ndarray]:
    """Writes a block's rows to their nearest cells; returns how many each cell got."""
    block, _ = cached_block(plan.corpora[0], number, plan.group_column)
    cells = nearest_cells(block.vectors.numpy(), centers, routes)
    return (write_cells(plan, number, block, cells, len(centers)),)


class _CompareCellsFn(beam.DoFn):
    """Compares the rows inside each of a range of cells."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._cells = Metrics.counter("mine", "cells")
        self._kept = Metrics.counter("mine", "turns_kept")
        self._cosines = Metrics.counter("mine", "cosines")

    def setup(self) -> None:
        torch.set_num_threads(share_of_cores(self._workers))
        self._work = ""  # the corpus whose rows, by rank, are known

    def start_bundle(self) -> None:
        self._held: list[_Best] = []

    def process(self, turn: Turn, plan: Plan) -> Iterator[tuple[int, _Best]]:
        self._plan = plan
        path = f"{plan.work}/{turn.name}.npz"
        arrays = load_arrays(path)
        if arrays is None:
            arrays = self._compare(plan, turn)
            store_arrays(path, arrays)
        else:
            self._kept.inc()
        self._cells.inc(turn.high - turn.low if turn.part == 0 else 0)
        self._held.append((arrays["ranks"], arrays["best"]))
        if sum(best.nbytes for _, best in self._held) > HELD_BYTES:
            yield from self._flush()

    def _flush(self) -> Iterator[tuple[int, _Best]]:
        """Sends what was found in some turns to the shelves of the rows."""
        if not self._held:
            return
        ranks, best = _merge_found(self._held, self._plan.k)
        self._held = []
        corpus = self._plan.corpora[0]
        if self._work != corpus.work:
            own = [ranks_of_block(corpus, block) for block in corpus.blocks]
            self._work, self._rows = corpus.work, np.argsort(np.concatenate(own)).astype(np.uint32)
        rows = self._rows[ranks]
        blocks = np.searchsorted([block.first_row for block in corpus.blocks], rows, side="right") - 1
        shelves = blocks // _shelf_blocks(self._plan)
        for shelf in np.unique(shelves).tolist():
            chosen = np.flatnonzero(shelves == shelf)
            yield shelf, (rows[chosen], best[chosen])

    def _compare(self, plan: Plan, turn: Turn) -> dict[str, np.ndarray]:
        """The ranks of all rows of the cells, each once, and the best of each."""
        found: list[_Best] = []
        same_group = None if plan.pairing == "all" else plan.pairing == "within"
        for block in read_cells(plan, turn):
            collected = TopK(len(block), plan.k, plan.min_score)
            compare(block, block, collected, same_group=same_group)
            self._cosines.inc(len(block) ** 2)
            best = collected.best()
            some = best[:, 0] != EMPTY
            found.append((block.ranks[some], best[some]))
        ranks, merged = _merge_found(found, plan.k)
        return {"ranks": ranks, "best": merged}

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for found in self._flush():
            yield WindowedValue(found, MIN_TIMESTAMP, [GlobalWindow()])


def _merge_found(found: Iterable[_Best], k: int) -> _Best:
    """The rows of several results, each once and in order, and the best of each."""
    found = list(found)
    rows = np.unique(np.concatenate([np.empty(0, np.uint32), *(own for own, _ in found)]))
    merged = np.zeros((len(rows), k), np.uint64)
    for own, best in found:
        places = np.searchsorted(rows, own)
        merged[places] = merge_best([merged[places], best], k)
    return rows, merged


def _shelf_blocks(plan: Plan) -> int:
    """How many blocks, one after the other, come together after the turns.

    A turn finds something for rows everywhere. As both turns and shelves grow as the root of the corpus, what goes
    between them grows no faster than the corpus.
    """
    return min(max(math.isqrt(len(plan.corpora[0].blocks)), 1), MAX_SHELF)


def _empty_shelves(plan: Plan) -> Iterator[tuple[int, _Best]]:
    """All shelves, so that blocks for whose rows nothing is found are told of too."""
    for shelf in range(-(-len(plan.corpora[0].blocks) // _shelf_blocks(plan))):
        yield shelf, (np.empty(0, np.uint32), np.empty((0, plan.k), np.uint64))


def _merge_shelf(met: tuple[int, Iterable[_Best]], plan: Plan) -> Iterator[Found]:
    """What was found for the rows of each block on a shelf."""
    shelf, parts = met
    blocks = plan.corpora[0].blocks[shelf * _shelf_blocks(plan) :][: _shelf_blocks(plan)]
    first = blocks[0].first_row
    best = np.zeros((blocks[-1].first_row + blocks[-1].rows - first, plan.k), np.uint64)
    for rows, found in parts:
        places = rows - np.uint32(first)
        best[places] = merge_best([best[places], found], plan.k)
    for block in blocks:
        start = block.first_row - first
        yield Found(0, block.number, best[start : start + block.rows])
