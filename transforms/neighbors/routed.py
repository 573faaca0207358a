"""The nearest rows of every row of a large corpus, searched only where they are likely to be.

Rows are routed to cells, see `route_rows`. Groups of cells are compared as `probed_cells` describes, then neighbours of
neighbours. An audit measures on a random sample of rows how many neighbours were missed.

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
from transforms.dataset.assign_ordinals import AssignOrdinals
from transforms.dataset.ordinal_files import ORDINALS_FOLDER
from transforms.neighbors.audit import AuditNeighbors
from transforms.neighbors.exact import FindNeighbors
from transforms.neighbors.group_layout import GroupLayout
from transforms.neighbors.group_steps import (
    found_of_group,
    join_with_partners,
    join_within_group,
    merge_group,
    refine_group,
)
from transforms.neighbors.mining_plan import BlockNeighbors, MinedHint, MinedNeighbors, MiningPlan, divide_rows
from transforms.neighbors.route_rows import RouteRows, RoutingSettings
from transforms.neighbors.routed_files import Run, gathered_runs, read_found_rows, routed_runs, write_found_rows
from transforms.neighbors.row_candidates import join_candidates

ALGORITHM = "probed cells, 2"  # work files of another algorithm are not reused


@dataclasses.dataclass(kw_only=True, eq=False)
class FindRoutedNeighbors(beam.PTransform):
    """Finds most of the nearest other rows of each row, without comparing all rows with all others.

    `find` has the settings of the search, `routing` how much is compared: its `recall` is the share of all k neighbours
    that is wanted. Input is a pipeline, output is `MinedNeighbors`, in which `audit` is what was measured on about
    `audit_rows` rows against the exact result (see AuditNeighbors). Neighbours may be missing; the scores of those
    found are exact.
    Counters: `mine/groups`, `mine/group_steps`, `mine/group_steps_reused`, `mine/cosines`, `mine/zero_vectors`.
    """

    find: FindNeighbors
    routing: RoutingSettings = dataclasses.field(default_factory=RoutingSettings)
    audit_rows: int = 1000
    audit_score: float = 0.75

    def __post_init__(self) -> None:
        super().__init__()
        if self.find.other is not None:
            raise DataError("routed mining works within one corpus: use the exact index for two")
        if not 0 < self.routing.recall < 1:
            raise DataError(f"recall must be between 0 and 1, got {self.routing.recall}: the exact index finds all")
        if self.audit_rows < 1 or self.routing.cells < 0 or self.routing.probes < 0:
            raise DataError("audit_rows must be at least 1, cells and probes at least 0")

    def expand(self, root: beam.Pipeline) -> MinedHint:
        """Routes rows to cells, compares groups of cells, and audits the result."""
        plans = (
            root
            | "Folder" >> beam.Create([self.find.work])
            | "Plan" >> beam.Map(_plan_on_worker, self)
            | "AssignOrdinals" >> AssignOrdinals(folders=self.find.ordinals or [f"{self.find.work}/{ORDINALS_FOLDER}"])
        )
        plan = beam.pvalue.AsSingleton(plans)
        blocks = plans | "Blocks" >> beam.FlatMap(_block_numbers) | "SpreadBlocks" >> beam.Reshuffle()
        layouts = blocks | "RouteRows" >> RouteRows(plan=plans, settings=self.routing)
        layout = beam.pvalue.AsSingleton(layouts)
        groups = layouts | "Groups" >> beam.FlatMap(_group_numbers) | "SpreadGroups" >> beam.Reshuffle()
        # Each step reads files that the step before wrote for other groups: it waits until all groups are done.
        done = layout
        for label, step in _STEPS.items():
            finished = groups | label >> beam.ParDo(_GroupFn(step, self.find.workers), plan, layout, done)
            done = beam.pvalue.AsSingleton(finished | f"{label}Done" >> beam.combiners.Count.Globally())
        written = (
            layouts
            | "GroupRuns" >> beam.FlatMap(_group_runs)
            | "SpreadGroupRuns" >> beam.Reshuffle()
            | "WriteFound" >> beam.Map(_write_found, plan, layout, done)
            | "AllWritten" >> beam.combiners.Count.Globally()
        )
        neighbors = (
            plans
            | "BlockRuns" >> beam.FlatMap(_block_runs)
            | "SpreadBlockRuns" >> beam.Reshuffle()
            | "ReadFound" >> beam.FlatMap(_read_found, plan, layout, beam.pvalue.AsSingleton(written))
        )
        audit = neighbors | "Audit" >> AuditNeighbors(
            plan=plans, blocks=blocks, rows=self.audit_rows, min_score=self.audit_score
        )
        return MinedNeighbors(plans, neighbors, audit)

    def make_plan(self) -> MiningPlan:
        """Inspects the files of the corpus."""
        return self.find.make_plan(ALGORITHM, *dataclasses.astuple(self.routing))


_Step = Callable[[MiningPlan, GroupLayout, int], int | None]
_STEPS: dict[str, _Step] = {
    "JoinWithin": join_within_group,
    "JoinAcross": join_with_partners,
    "MergeGroups": merge_group,
    "Refine1": functools.partial(refine_group, round_number=1),
    "Refine2": functools.partial(refine_group, round_number=2),
}


class _GroupFn(beam.DoFn):
    """Applies a step to a group; output is its number."""

    def __init__(self, step: _Step, workers: int) -> None:
        self._step = step
        self._workers = workers
        self._n_steps = Metrics.counter("mine", "group_steps")
        self._n_reused = Metrics.counter("mine", "group_steps_reused")
        self._n_cosines = Metrics.counter("mine", "cosines")

    def setup(self) -> None:
        torch.set_num_threads(share_of_cores(self._workers))

    def process(self, number: int, plan: MiningPlan, layout: GroupLayout, before: Any) -> Iterator[int]:
        n_cosines = self._step(plan, layout, number)
        self._n_steps.inc()
        if n_cosines is None:
            self._n_reused.inc()
        else:
            self._n_cosines.inc(n_cosines)
        yield number


def _plan_on_worker(_: str, find: FindRoutedNeighbors) -> MiningPlan:
    return find.make_plan()


def _block_numbers(plan: MiningPlan) -> Iterable[int]:
    return range(len(plan.corpora[0].blocks))


def _group_numbers(layout: GroupLayout) -> Iterable[int]:
    return range(layout.n_groups)


def _group_runs(layout: GroupLayout) -> Iterable[Run]:
    return gathered_runs(layout.n_groups)


def _write_found(run: Run, plan: MiningPlan, layout: GroupLayout, before: Any) -> int:
    """Writes what was found for some groups by rows of the corpus; returns the number of rows."""
    parts = [found_of_group(plan, layout, number) for number in range(run.first, run.end)]
    found = join_candidates(parts, plan.k)
    write_found_rows(plan, run, found)
    return len(found.rows)


def _block_runs(plan: MiningPlan) -> Iterable[tuple[int, Run]]:
    return enumerate(routed_runs(plan))


def _read_found(
    blocks: tuple[int, Run], plan: MiningPlan, layout: GroupLayout, before: Any
) -> Iterator[BlockNeighbors]:
    """The neighbours of the rows of each block of a run."""
    place, run = blocks
    refs = plan.corpora[0].blocks[run.first : run.end]
    first_row = refs[0].first_row
    candidates = np.zeros((refs[-1].first_row + refs[-1].rows - first_row, plan.k), np.uint64)
    for part in read_found_rows(plan, place, gathered_runs(layout.n_groups)):
        candidates[part.rows - np.uint32(first_row)] = part.candidates
    for ref in refs:
        start = ref.first_row - first_row
        for rows in divide_rows(ref.rows, plan.k):
            chosen = candidates[start + rows.start : start + rows.stop]
            yield BlockNeighbors(0, ref.number, chosen, rows.start)
