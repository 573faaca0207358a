"""The first half of routed mining: rows are routed to cells and stored in groups of cells.

Cells are learned from a sample. The exact neighbours of a few more rows then show how many cells a row must probe to
find as many neighbours as are wanted. Large arrays go from step to step in work files, and small elements name them.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import apache_beam as beam
import numpy as np
from apache_beam.metrics import Metrics

from sbert_core.neighbors.candidates import EMPTY, ordinals_of
from sbert_core.neighbors.cells import (
    GROUP_ROWS,
    MAX_CELL_ROWS,
    MAX_SAMPLE_ROWS,
    SAMPLE_ROWS_PER_CELL,
    CellLayout,
    count_cells,
    learn_cells,
    nearest_cells,
)
from sbert_core.neighbors.probing import ProbedRows, Probing, choose_probing, join_probed, probes_needed, rounds_for
from sbert_core.process_cache import process_cache
from sbert_core.sampling import hash_ordinals
from transforms.dataset.work_files import need_arrays, store_arrays
from transforms.merge_values import MergeFn
from transforms.neighbors.block_cache import recent_block
from transforms.neighbors.group_layout import GroupLayout, store_layout, store_members
from transforms.neighbors.mining_plan import MiningPlan
from transforms.neighbors.routed_files import Run, gather_groups, gathered_runs, routed_runs, store_group, write_routed
from transforms.neighbors.sampled_rows import SampledRows, join_samples, sample_block
from transforms.neighbors.search_sample import SampleNeighbors, SearchSample

SAMPLE_SEED, PILOT_SEED = 0, 2
PILOT_ROWS = 256
MAX_PROBES = 96  # cells of each row that are stored; the probes are chosen among them


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoutingSettings:
    """How rows are routed; `cells` and `probes` are chosen if they are 0."""

    recall: float = 0.97
    cells: int = 0
    probes: int = 0
    group_rows: int = GROUP_ROWS
    max_cell_rows: int = MAX_CELL_ROWS

    def n_cells(self, plan: MiningPlan) -> int:
        """The number of cells to learn."""
        return self.cells or count_cells(plan.corpora[0].rows)


@dataclasses.dataclass(frozen=True, eq=False)
class RoutedCells:
    """The layout of the cells, how many cells of each row were stored, and how many of them are probed."""

    layout: CellLayout
    n_routed: int
    probing: Probing


@dataclasses.dataclass(kw_only=True, eq=False)
class RouteRows(beam.PTransform):
    """Routes the rows of a corpus to cells and stores them in groups of cells, with the cells that each row probes.

    Input are the numbers of all blocks, output is one `GroupLayout`, when all groups are stored.
    Counters: `mine/groups`, `mine/zero_vectors`.
    """

    plan: beam.PCollection[MiningPlan]  # one
    settings: RoutingSettings

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, blocks: beam.PCollection[int]) -> beam.PCollection[GroupLayout]:
        """Learns cells, finds the nearest cells of each row, and writes rows group by group."""
        plan, settings = beam.pvalue.AsSingleton(self.plan), self.settings
        sampled = blocks | "Sample" >> beam.Map(_store_sample, plan, settings) | "Samples" >> _count()
        centers = self.plan | "LearnCells" >> beam.Map(_learn_cells, beam.pvalue.AsSingleton(sampled), settings)
        pilot: list[SampleNeighbors] | beam.pvalue.AsList = []
        if not settings.probes:
            pilot = beam.pvalue.AsList(
                blocks | "Pilot" >> SearchSample(plan=self.plan, rows=PILOT_ROWS, seed=PILOT_SEED)
            )
        cells = (
            self.plan
            | "RoutedRuns" >> beam.FlatMap(routed_runs)
            | "SpreadRuns" >> beam.Reshuffle()
            | "Route" >> beam.Map(_route_run, plan, beam.pvalue.AsSingleton(centers), pilot, settings)
            | "AllSizes" >> beam.CombineGlobally(MergeFn(np.add))
            | "LayOutCells" >> beam.Map(_lay_out_cells, plan, pilot, settings)
        )
        gathered = (
            cells
            | "GatheredRuns" >> beam.FlatMap(_gathered_runs)
            | "SpreadGathered" >> beam.Reshuffle()
            | "Gather" >> beam.FlatMap(_gather_run, plan, beam.pvalue.AsSingleton(cells))
            | "Gathered" >> _count()
        )
        return cells | "LayOutGroups" >> beam.Map(_lay_out_groups, plan, beam.pvalue.AsSingleton(gathered))


def _count() -> beam.PTransform:
    return beam.combiners.Count.Globally()


def _store_sample(number: int, plan: MiningPlan, settings: RoutingSettings) -> int:
    """Stores a block's share of the sample that cells are learned from."""
    n_rows = min(SAMPLE_ROWS_PER_CELL * settings.n_cells(plan), MAX_SAMPLE_ROWS)
    sample = sample_block(number, plan, n_rows, SAMPLE_SEED)
    store_arrays(_sample_path(plan, number), {"ordinals": sample.ordinals, "vectors": sample.vectors})
    return number


def _sample_path(plan: MiningPlan, number: int) -> str:
    return f"{plan.work}/sample-{number:06d}.npz"


def _learn_cells(plan: MiningPlan, n_sampled: int, settings: RoutingSettings) -> int:
    """Learns and stores the centres (m, dim) of the cells; returns their number."""
    centers = np.empty((0, plan.corpora[0].dim), np.float32)
    if n_sampled:
        stored = [need_arrays(_sample_path(plan, block.number)) for block in plan.corpora[0].blocks]
        sample = join_samples([SampledRows(each["ordinals"], each["vectors"], None) for each in stored])
        order = np.argsort(hash_ordinals(sample.ordinals, SAMPLE_SEED + 1))
        centers = learn_cells(sample.vectors[order], settings.n_cells(plan))
    store_arrays(f"{plan.work}/cells.npz", {"centers": centers})
    return len(centers)


@process_cache(max_entries=1)
def _load_centers(work: str) -> np.ndarray:
    return need_arrays(f"{work}/cells.npz")["centers"]


def _route_run(
    run: Run, plan: MiningPlan, n_cells: int, pilot: Sequence[SampleNeighbors], settings: RoutingSettings
) -> np.ndarray:
    """Writes the rows of some blocks, ordered by cell; returns the number of rows (m,) in each cell."""
    corpus, centers = plan.corpora[0], _load_centers(plan.work)
    blocks, rows, probes = [], [], []
    for number in range(run.first, run.end):
        loaded = recent_block(corpus, number, plan.group_column)
        blocks.append(loaded.block)
        rows.append(np.flatnonzero(loaded.has_direction) + corpus.blocks[number].first_row)
        probes.append(nearest_cells(loaded.block.vectors.numpy(), centers, settings.probes or MAX_PROBES))
    all_probes = np.concatenate(probes)
    write_routed(plan, run, blocks, np.concatenate(rows), all_probes, n_cells)
    if pilot:
        ordinals = np.concatenate([block.ordinals for block in blocks])
        is_pilot = np.isin(ordinals, np.concatenate(_pilot_pairs(pilot)))
        store_arrays(_pilot_path(plan, run), {"ordinals": ordinals[is_pilot], "probes": all_probes[is_pilot]})
    return np.bincount(all_probes[:, 0], minlength=n_cells) if n_cells else np.zeros(0, np.int64)


def _pilot_path(plan: MiningPlan, run: Run) -> str:
    return f"{plan.work}/pilot-{run.first:06d}.npz"


def _pilot_pairs(pilot: Sequence[SampleNeighbors]) -> tuple[np.ndarray, np.ndarray]:
    """The ordinals (n,) of the pilot rows and of their neighbours (n,), pair by pair."""
    firsts, seconds = [], []
    for part in pilot:
        rows, places = np.nonzero(part.candidates != EMPTY)
        firsts.append(part.ordinals[rows])
        seconds.append(ordinals_of(part.candidates[rows, places]))
    return np.concatenate(firsts), np.concatenate(seconds)


def _lay_out_cells(
    sizes: np.ndarray | None, plan: MiningPlan, pilot: Sequence[SampleNeighbors], settings: RoutingSettings
) -> RoutedCells:
    """Groups the cells, and chooses the probes; `sizes` is None for an empty corpus."""
    sizes = np.zeros(0, np.int64) if sizes is None else sizes
    layout = CellLayout.of(sizes, settings.group_rows, settings.max_cell_rows)
    n_routed = min(settings.probes or MAX_PROBES, len(sizes))
    if not pilot:
        return RoutedCells(layout, n_routed, Probing(n_routed, rounds_for(settings.recall)))
    stored = [need_arrays(_pilot_path(plan, run)) for run in routed_runs(plan)]
    probed = join_probed([ProbedRows(each["ordinals"], each["probes"]) for each in stored])
    needed = probes_needed(*_pilot_pairs(pilot), probed)
    rows_per_cell = plan.corpora[0].rows / len(sizes)
    return RoutedCells(layout, n_routed, choose_probing(needed, settings.recall, n_routed, rows_per_cell))


def _gathered_runs(cells: RoutedCells) -> list[Run]:
    return gathered_runs(cells.layout.n_groups)


def _gather_run(run: Run, plan: MiningPlan, cells: RoutedCells) -> Iterator[int]:
    """Stores the groups of a run; yields their numbers."""
    for number, group in gather_groups(plan, cells.layout, run, cells.n_routed, cells.probing.probes):
        store_group(plan, number, group)
        store_members(plan, number, group, cells.layout)
        Metrics.counter("mine", "groups").inc()
        yield number


def _lay_out_groups(cells: RoutedCells, plan: MiningPlan, n_gathered: int) -> GroupLayout:
    return store_layout(plan, n_gathered, cells.layout.n_cells, cells.probing.rounds)
