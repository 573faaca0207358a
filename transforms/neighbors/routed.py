"""The nearest rows of every row of a large corpus, searched only where they are likely to be.

Cells are learned from a sample. Every row is routed to its nearest cells, rows of a cell are compared exactly, and an
audit measures on a random sample of rows how many neighbours were missed.
"""

import dataclasses
from collections.abc import Iterable, Iterator

import apache_beam as beam
import numpy as np
import torch
from apache_beam.metrics import Metrics
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import WindowedValue

from sbert_core.cores import share_of_cores
from sbert_core.errors import DataError
from sbert_core.neighbors.candidates import EMPTY
from sbert_core.neighbors.cells import (
    MAX_SAMPLE_ROWS,
    SAMPLE_ROWS_PER_CELL,
    default_cells,
    learn_cells,
    nearest_cells,
)
from sbert_core.neighbors.cosine import compare
from sbert_core.neighbors.topk import TopK
from transforms.dataset.corpus import ordinals_of_block
from transforms.dataset.work_files import load_arrays, store_arrays
from transforms.neighbors.audit import AuditNeighbors
from transforms.neighbors.block_cache import block_cache
from transforms.neighbors.block_ranges import blocks_of_range, blocks_per_range, count_ranges
from transforms.neighbors.cell_files import read_cells, write_cells
from transforms.neighbors.cell_tasks import MIN_DIVIDED_ROWS, CellTask, plan_cell_tasks
from transforms.neighbors.exact import FindNeighbors
from transforms.neighbors.mining_plan import BlockNeighbors, MinedHint, MinedNeighbors, MiningPlan
from transforms.neighbors.row_candidates import RowCandidates, merge_into, merge_row_candidates
from transforms.neighbors.sampled_rows import SampledRows, join_samples, sample_block

MAX_CELL_RATIO = 8  # a cell of the sample with more rows than this times the mean is split
SAMPLE_SEED = 0


@dataclasses.dataclass(kw_only=True, eq=False)
class FindRoutedNeighbors(beam.PTransform):
    """Finds the nearest other rows of each row among those that share one of its `routes` nearest cells.

    `find` has the settings of the search. Input is a pipeline, output is `MinedNeighbors`, in which `audit` is what was
    measured on about `audit_rows` rows against the exact result (see AuditNeighbors). Neighbours may be missing; scores
    and order of those found are exact.
    Counters: `mine/cells`, `mine/cell_tasks_reused`, `mine/cosines`, `mine/zero_vectors`.
    """

    find: FindNeighbors
    cells: int = 0  # 0: a number that depends on the size of the corpus
    routes: int = 3
    audit_rows: int = 1000
    audit_score: float = 0.75
    min_divided_rows: int = MIN_DIVIDED_ROWS

    def __post_init__(self) -> None:
        super().__init__()
        if self.find.other is not None:
            raise DataError("routed mining works within one corpus: use the exact index for two")
        if self.routes < 1 or self.cells < 0 or self.audit_rows < 1:
            raise DataError("routes and audit_rows must be at least 1, cells at least 0")

    def expand(self, root: beam.Pipeline) -> MinedHint:
        """Learns cells, routes rows to them, compares rows inside them, and audits the result."""
        plan_collection = root | "Folder" >> beam.Create([self.find.work]) | "Plan" >> beam.Map(_plan_on_worker, self)
        plan = beam.pvalue.AsSingleton(plan_collection)
        blocks = plan_collection | "Blocks" >> beam.FlatMap(_block_numbers) | "SpreadBlocks" >> beam.Reshuffle()
        centers = (
            blocks
            | "Sample" >> beam.Map(_sample_for_cells, plan, self.cells)
            | "AllSamples" >> beam.combiners.ToList()
            | "LearnCells" >> beam.Map(_learn_cells, plan, self.cells)
        )
        found = (
            blocks
            | "Route" >> beam.Map(_route_block, plan, beam.pvalue.AsSingleton(centers), self.routes)
            | "AllRouted" >> beam.CombineGlobally(_AddSizesFn()).without_defaults()
            | "CellTasks" >> beam.FlatMap(plan_cell_tasks, self.cells, self.min_divided_rows)
            | "Spread" >> beam.Reshuffle()
            | "Compare" >> beam.ParDo(_CompareCellsFn(self.find.workers, self.find.max_held_bytes), plan)
        )
        empty_ranges = plan_collection | "EmptyRanges" >> beam.FlatMap(_empty_ranges)
        neighbors = (
            (found, empty_ranges)
            | "AllRanges" >> beam.Flatten()
            | "GroupByBlockRange" >> beam.GroupByKey()
            | "Merge" >> beam.FlatMap(_merge_range, plan)
        )
        audit = neighbors | "Audit" >> AuditNeighbors(
            plan=plan_collection, blocks=blocks, rows=self.audit_rows, min_score=self.audit_score
        )
        return MinedNeighbors(plan_collection, neighbors, audit)

    def make_plan(self) -> MiningPlan:
        """Inspects the files of the corpus."""
        return self.find.make_plan(self.cells, self.routes)


def _plan_on_worker(_: str, find: FindRoutedNeighbors) -> MiningPlan:
    return find.make_plan().with_ordinals()


def _block_numbers(plan: MiningPlan) -> Iterable[int]:
    return range(len(plan.corpora[0].blocks))


def _sample_for_cells(number: int, plan: MiningPlan, cells: int) -> SampledRows:
    """A block's share of the sample that cells are learned from."""
    n_cells = cells or default_cells(plan.corpora[0].rows)
    return sample_block(number, plan, min(SAMPLE_ROWS_PER_CELL * n_cells, MAX_SAMPLE_ROWS), SAMPLE_SEED)


def _learn_cells(samples: list[SampledRows], plan: MiningPlan, cells: int) -> np.ndarray:
    """The centres (m, dim) of the cells."""
    if not samples:
        return np.empty((0, plan.corpora[0].dim), np.float32)
    n_cells = cells or default_cells(plan.corpora[0].rows)
    return learn_cells(join_samples(samples).vectors, n_cells, MAX_CELL_RATIO / n_cells)


def _route_block(number: int, plan: MiningPlan, centers: np.ndarray, routes: int) -> np.ndarray:
    """Writes the rows of a block to their nearest cells; returns the number of rows (m,) in each cell."""
    block = block_cache().get(plan.corpora[0], number, plan.group_column).block
    cells = nearest_cells(block.vectors.numpy(), centers, routes)
    return write_cells(plan, number, block, cells, len(centers))


class _AddSizesFn(beam.CombineFn):
    """Adds up the sizes of cells (m,) over all blocks."""

    def create_accumulator(self) -> np.ndarray | int:
        return 0

    def add_input(self, accumulator: np.ndarray | int, sizes: np.ndarray) -> np.ndarray:
        return accumulator + sizes

    def merge_accumulators(self, accumulators: Iterable[np.ndarray | int]) -> np.ndarray | int:
        return sum(accumulators)

    def extract_output(self, accumulator: np.ndarray | int) -> np.ndarray | int:
        return accumulator


class _CompareCellsFn(beam.DoFn):
    """Compares the rows inside each cell of a task, or loads what an earlier run found for it.

    Output is candidates of rows (numbers of rows in the corpus), keyed by the block range of the rows. Candidates of
    several tasks are merged before they are emitted.
    """

    def __init__(self, workers: int, max_held_bytes: int) -> None:
        self._workers = workers
        self._max_held_bytes = max_held_bytes
        self._n_cells = Metrics.counter("mine", "cells")
        self._n_reused = Metrics.counter("mine", "cell_tasks_reused")
        self._n_cosines = Metrics.counter("mine", "cosines")

    def setup(self) -> None:
        torch.set_num_threads(share_of_cores(self._workers))
        self._row_of_ordinal: np.ndarray | None = None  # of the corpus whose plan has the folder `_work`
        self._work = ""

    def start_bundle(self) -> None:
        self._held: list[RowCandidates] = []  # by ordinal

    def process(self, task: CellTask, plan: MiningPlan) -> Iterator[tuple[int, RowCandidates]]:
        self._plan = plan
        path = f"{plan.work}/{task.file_name}"
        arrays = load_arrays(path)
        if arrays is None:
            found, n_cosines = compare_cells(plan, task)
            store_arrays(path, {"ordinals": found.rows, "candidates": found.candidates})
            self._n_cosines.inc(n_cosines)
        else:
            found = RowCandidates(arrays["ordinals"], arrays["candidates"])
            self._n_reused.inc()
        self._n_cells.inc(task.end - task.first if task.part == 0 else 0)
        self._held.append(found)
        if sum(held.candidates.nbytes for held in self._held) > self._max_held_bytes:
            yield from self._emit()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for item in self._emit():
            yield WindowedValue(item, MIN_TIMESTAMP, [GlobalWindow()])

    def _emit(self) -> Iterator[tuple[int, RowCandidates]]:
        """Merges what is held and divides it by the block ranges of its rows."""
        if not self._held:
            return
        merged = merge_row_candidates(self._held, self._plan.k)
        self._held = []
        corpus = self._plan.corpora[0]
        rows = self._rows(self._plan)[merged.rows]
        blocks = np.searchsorted([block.first_row for block in corpus.blocks], rows, side="right") - 1
        ranges = blocks // blocks_per_range(self._plan)
        by_row = RowCandidates(rows, merged.candidates)
        for number in np.unique(ranges).tolist():
            yield number, by_row[np.flatnonzero(ranges == number)]

    def _rows(self, plan: MiningPlan) -> np.ndarray:
        """The row in the corpus of each ordinal (rows of the corpus,); computed once per corpus."""
        if self._row_of_ordinal is None or self._work != plan.work:
            ordinals = [ordinals_of_block(plan.corpora[0], block) for block in plan.corpora[0].blocks]
            self._work, self._row_of_ordinal = plan.work, np.argsort(np.concatenate(ordinals)).astype(np.uint32)
        return self._row_of_ordinal


def compare_cells(plan: MiningPlan, task: CellTask) -> tuple[RowCandidates, int]:
    """The candidates of the rows of a task's cells, by ordinal, and the number of cosines that were computed."""
    found, n_cosines = [], 0
    for block in read_cells(plan, task):
        topk = TopK(len(block), plan.k, plan.min_score)
        compare(block, block, topk, same_group=plan.same_group)
        n_cosines += len(block) ** 2
        candidates = topk.candidates()
        has_any = candidates[:, 0] != EMPTY
        found.append(RowCandidates(block.ordinals[has_any], candidates[has_any]))
    return merge_row_candidates(found, plan.k), n_cosines


def _empty_ranges(plan: MiningPlan) -> Iterator[tuple[int, RowCandidates]]:
    """Every block range once without candidates, so that blocks without neighbours are part of the result."""
    for number in range(count_ranges(plan)):
        yield number, RowCandidates.empty(plan.k)


def _merge_range(found: tuple[int, Iterable[RowCandidates]], plan: MiningPlan) -> Iterator[BlockNeighbors]:
    """The neighbours of the rows of each block in a range, from all that was found for the range."""
    number, parts = found
    blocks = blocks_of_range(plan, number)
    first_row = blocks[0].first_row
    candidates = np.zeros((blocks[-1].first_row + blocks[-1].rows - first_row, plan.k), np.uint64)
    for part in parts:
        merge_into(candidates, part.rows - np.uint32(first_row), part.candidates)
    for block in blocks:
        start = block.first_row - first_row
        yield BlockNeighbors(0, block.number, candidates[start : start + block.rows])
