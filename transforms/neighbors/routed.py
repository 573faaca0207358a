"""The nearest rows of every row of a large corpus, searched only where they are likely to be.

Cells are learned from a sample, and rows are routed to them. Groups of cells are compared as `probed_cells` describes,
then neighbours of neighbours. An audit measures on a random sample of rows how many neighbours were missed.

What is found goes from step to step in work files; only numbers of blocks and groups travel between steps. So a job
that died continues from the files that are there.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import torch
from apache_beam.metrics import Metrics

from sbert_core.cores import share_of_cores
from sbert_core.errors import DataError
from sbert_core.neighbors.cells import (
    GROUP_ROWS,
    MAX_CELL_ROWS,
    MAX_SAMPLE_ROWS,
    SAMPLE_ROWS_PER_CELL,
    CellLayout,
    Routing,
    choose_routing,
    learn_cells,
    nearest_cells,
)
from sbert_core.sampling import hash_ordinals
from transforms.dataset.assign_ordinals import AssignOrdinals
from transforms.dataset.ordinal_files import ORDINALS_FOLDER
from transforms.merge_values import MergeFn
from transforms.neighbors.audit import AuditNeighbors
from transforms.neighbors.block_cache import block_cache
from transforms.neighbors.block_ranges import blocks_of_range, blocks_per_range, count_ranges
from transforms.neighbors.exact import FindNeighbors
from transforms.neighbors.group_steps import (
    GatheredGroup,
    GroupLayout,
    found_of_group,
    join_with_partners,
    join_within_group,
    merge_group,
    refine_group,
    store_layout,
)
from transforms.neighbors.mining_plan import BlockNeighbors, MinedHint, MinedNeighbors, MiningPlan
from transforms.neighbors.routed_files import Run, gather_groups, gathered_runs, routed_runs, store_group, write_routed
from transforms.neighbors.row_candidates import RowCandidates, merge_into
from transforms.neighbors.sampled_rows import SampledRows, join_samples, sample_block

SAMPLE_SEED = 0


@dataclasses.dataclass(kw_only=True, eq=False)
class FindRoutedNeighbors(beam.PTransform):
    """Finds most of the nearest other rows of each row, without comparing all rows with all others.

    `find` has the settings of the search. `recall` is the share of all k neighbours that is wanted: the number of
    cells, probes and rounds follows from it and the size of the corpus. Input is a pipeline, output is
    `MinedNeighbors`, in which `audit` is what was measured on about `audit_rows` rows against the exact result (see
    AuditNeighbors).
    Neighbours may be missing; the scores of those found are exact.
    Counters: `mine/groups`, `mine/group_tasks_reused`, `mine/cosines`, `mine/zero_vectors`.
    """

    find: FindNeighbors
    recall: float = 0.97
    cells: int = 0  # 0: chosen by the size of the corpus
    probes: int = 0  # 0: chosen by the recall
    audit_rows: int = 1000
    audit_score: float = 0.75
    group_rows: int = GROUP_ROWS
    max_cell_rows: int = MAX_CELL_ROWS

    def __post_init__(self) -> None:
        super().__init__()
        if self.find.other is not None:
            raise DataError("routed mining works within one corpus: use the exact index for two")
        if not 0 < self.recall < 1:
            raise DataError(f"recall must be between 0 and 1, got {self.recall}: the exact index finds all")
        if self.audit_rows < 1 or self.cells < 0 or self.probes < 0:
            raise DataError("audit_rows must be at least 1, cells and probes at least 0")

    def expand(self, root: beam.Pipeline) -> MinedHint:
        """Learns cells, routes rows to them, compares groups of cells, and audits the result."""
        plans = (
            root
            | "Folder" >> beam.Create([self.find.work])
            | "Plan" >> beam.Map(_plan_on_worker, self)
            | "AssignOrdinals" >> AssignOrdinals(folders=self.find.ordinals or [f"{self.find.work}/{ORDINALS_FOLDER}"])
        )
        plan = beam.pvalue.AsSingleton(plans)
        blocks = plans | "Blocks" >> beam.FlatMap(_block_numbers) | "SpreadBlocks" >> beam.Reshuffle()
        layouts = self._group_rows(plans, blocks)
        layout = beam.pvalue.AsSingleton(layouts)
        groups = layouts | "Groups" >> beam.FlatMap(_group_numbers) | "SpreadGroups" >> beam.Reshuffle()
        # Each step reads files that the step before wrote for other groups: it waits until all groups are done.
        done = layout
        for label, step in _STEPS.items():
            finished = groups | label >> beam.ParDo(_GroupFn(step, self.find.workers), plan, layout, done)
            done = beam.pvalue.AsSingleton(finished | f"{label}Done" >> beam.combiners.Count.Globally())
        found = groups | "Found" >> beam.FlatMap(_found_by_range, plan, layout, done)
        empty_ranges = plans | "EmptyRanges" >> beam.FlatMap(_empty_ranges)
        neighbors = (
            (found, empty_ranges)
            | "AllRanges" >> beam.Flatten()
            | "GroupByBlockRange" >> beam.GroupByKey()
            | "Merge" >> beam.FlatMap(_merge_range, plan)
        )
        audit = neighbors | "Audit" >> AuditNeighbors(
            plan=plans, blocks=blocks, rows=self.audit_rows, min_score=self.audit_score
        )
        return MinedNeighbors(plans, neighbors, audit)

    def _group_rows(
        self, plans: beam.PCollection[MiningPlan], blocks: beam.PCollection[int]
    ) -> beam.PCollection[GroupLayout]:
        """Routes the rows to cells and stores them in groups; the output is one layout, when all groups are stored."""
        plan = beam.pvalue.AsSingleton(plans)
        centers = (
            blocks
            | "Sample" >> beam.Map(_sample_for_cells, plan, self)
            | "AllSamples" >> beam.combiners.ToList()
            | "LearnCells" >> beam.Map(_learn_cells, plan, self)
        )
        layouts = (
            plans
            | "RoutedRuns" >> beam.FlatMap(routed_runs)
            | "SpreadRuns" >> beam.Reshuffle()
            | "Route" >> beam.Map(_route_run, plan, beam.pvalue.AsSingleton(centers), self)
            | "AllSizes" >> beam.CombineGlobally(MergeFn(np.add))
            | "Layout" >> beam.Map(_lay_out, self)
        )
        return (
            layouts
            | "GatheredRuns" >> beam.FlatMap(gathered_runs)
            | "SpreadGathered" >> beam.Reshuffle()
            | "Gather" >> beam.FlatMap(_gather_run, plan, beam.pvalue.AsSingleton(layouts), self)
            | "AllGroups" >> beam.combiners.ToList()
            | "Slots" >> beam.Map(_lay_out_groups, plan, beam.pvalue.AsSingleton(layouts), self)
        )

    def make_plan(self) -> MiningPlan:
        """Inspects the files of the corpus."""
        return self.find.make_plan(self.recall, self.cells, self.probes)


_STEPS: dict[str, Callable[[MiningPlan, GroupLayout, int], int]] = {
    "JoinWithin": join_within_group,
    "JoinAcross": join_with_partners,
    "MergeGroups": merge_group,
    "Refine1": functools.partial(refine_group, round_number=1),
    "Refine2": functools.partial(refine_group, round_number=2),
}


class _GroupFn(beam.DoFn):
    """Applies a step to a group; output is its number. Counters: `mine/group_tasks_reused`, `mine/cosines`."""

    def __init__(self, step: Callable[[MiningPlan, GroupLayout, int], int], workers: int) -> None:
        self._step = step
        self._workers = workers
        self._n_cosines = Metrics.counter("mine", "cosines")

    def setup(self) -> None:
        torch.set_num_threads(share_of_cores(self._workers))

    def process(self, number: int, plan: MiningPlan, layout: GroupLayout, before: Any) -> Iterator[int]:
        self._n_cosines.inc(self._step(plan, layout, number))
        yield number


def _plan_on_worker(_: str, find: FindRoutedNeighbors) -> MiningPlan:
    return find.make_plan()


def _block_numbers(plan: MiningPlan) -> Iterable[int]:
    return range(len(plan.corpora[0].blocks))


def _group_numbers(layout: GroupLayout) -> Iterable[int]:
    return range(len(layout))


def _routing(plan: MiningPlan, find: FindRoutedNeighbors) -> Routing:
    chosen = choose_routing(plan.corpora[0].rows, find.recall)
    return Routing(find.cells or chosen.cells, find.probes or chosen.probes, chosen.rounds)


def _sample_for_cells(number: int, plan: MiningPlan, find: FindRoutedNeighbors) -> SampledRows:
    """A block's share of the sample that cells are learned from."""
    n_rows = min(SAMPLE_ROWS_PER_CELL * _routing(plan, find).cells, MAX_SAMPLE_ROWS)
    return sample_block(number, plan, n_rows, SAMPLE_SEED)


def _learn_cells(samples: list[SampledRows], plan: MiningPlan, find: FindRoutedNeighbors) -> np.ndarray:
    """The centres (m, dim) of the cells."""
    if not samples:
        return np.empty((0, plan.corpora[0].dim), np.float32)
    sample = join_samples(samples)
    order = np.argsort(hash_ordinals(sample.ordinals, SAMPLE_SEED + 1))
    return learn_cells(sample.vectors[order], _routing(plan, find).cells)


def _route_run(run: Run, plan: MiningPlan, centers: np.ndarray, find: FindRoutedNeighbors) -> np.ndarray:
    """Writes the rows of some blocks, ordered by cell; returns the number of rows (m,) in each cell."""
    corpus = plan.corpora[0]
    n_probes = min(_routing(plan, find).probes, len(centers))
    blocks, rows, probes = [], [], []
    for number in range(run.first, run.end):
        loaded = block_cache().get(corpus, number, plan.group_column)
        blocks.append(loaded.block)
        rows.append(np.flatnonzero(loaded.has_direction) + corpus.blocks[number].first_row)
        probes.append(nearest_cells(loaded.block.vectors.numpy(), centers, n_probes))
    all_probes = np.concatenate(probes)
    write_routed(plan, run, blocks, np.concatenate(rows), all_probes, len(centers))
    return np.bincount(all_probes[:, 0], minlength=len(centers)) if n_probes else np.zeros(0, np.int64)


def _lay_out(sizes: np.ndarray | None, find: FindRoutedNeighbors) -> CellLayout:
    return CellLayout.of(np.zeros(0, np.int64) if sizes is None else sizes, find.group_rows, find.max_cell_rows)


def _gather_run(run: Run, plan: MiningPlan, layout: CellLayout, find: FindRoutedNeighbors) -> Iterator[GatheredGroup]:
    """Stores the groups of a run; returns what the layout of groups needs to know of each."""
    n_probes = min(_routing(plan, find).probes, len(layout.parts))
    for number, group in gather_groups(plan, layout, run, n_probes):
        store_group(plan, number, group)
        Metrics.counter("mine", "groups").inc()
        probed = np.unique(layout.groups_of(np.unique(group.probes)))
        yield GatheredGroup(number, group.block.ordinals, group.homes, probed)


def _lay_out_groups(
    gathered: list[GatheredGroup], plan: MiningPlan, layout: CellLayout, find: FindRoutedNeighbors
) -> GroupLayout:
    return store_layout(gathered, plan, layout.n_cells, _routing(plan, find).rounds)


def _found_by_range(
    number: int, plan: MiningPlan, layout: GroupLayout, before: Any
) -> Iterator[tuple[int, RowCandidates]]:
    """What was found for a group, divided by the ranges of blocks in which its rows are."""
    found = found_of_group(plan, layout, number)
    blocks = np.searchsorted([block.first_row for block in plan.corpora[0].blocks], found.rows, side="right") - 1
    ranges = blocks // blocks_per_range(plan)
    for block_range in np.unique(ranges).tolist():
        yield block_range, found[np.flatnonzero(ranges == block_range)]


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
