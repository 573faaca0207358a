"""The nearest rows of every row of a corpus, exactly.

The corpus is divided into blocks, and runs of blocks are compared with each other: see `tile_tasks`. What was found for
two runs is stored in a work file, so that a job that died continues from there. Only numbers of blocks and arrays of
candidates travel between steps.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
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
from sbert_core.neighbors.candidates import EMPTY, drop_empty, kth_scores, merge_candidates, restore_empty
from sbert_core.neighbors.cosine import compare
from sbert_core.neighbors.topk import TopK
from transforms.dataset.assign_ordinals import AssignOrdinals
from transforms.dataset.corpus import BLOCK_ROWS, open_corpus
from transforms.dataset.ordinal_files import ORDINALS_FOLDER
from transforms.dataset.work_files import load_arrays, store_arrays
from transforms.neighbors.block_cache import LoadedBlock, cached_block
from transforms.neighbors.mining_plan import (
    PAIRINGS,
    BlockKey,
    BlockNeighbors,
    MinedHint,
    MinedNeighbors,
    MiningPlan,
    check_row_count,
    check_same_model,
    divide_rows,
)
from transforms.neighbors.tile_tasks import TileTask, plan_tile_tasks

MAX_HELD_BYTES = 512 * 2**20  # of candidates that a worker merges before it emits them
SCORES = "exact"  # how scores in work files were computed: those of another kind are not reused

RowsKey = tuple[int, int, int]  # side and number of a block, and the first row in it; see divide_rows
SentCandidates = tuple[np.ndarray, np.ndarray]  # see drop_empty


@dataclasses.dataclass(kw_only=True, eq=False)
class FindNeighbors(beam.PTransform):
    """Finds the `k` nearest other rows of each row by cosine; with `other`, the nearest rows in that corpus.

    Input is a pipeline, output is `MinedNeighbors` with `BlockNeighbors` of all blocks; with `both_sides` also of the
    blocks of `other`. `pairing` "within" or "across" compares only rows with the same value, or with different values,
    of `group_column`. A row is never its own neighbour, but a copy of it is. Equal scores are ordered by id, so the
    result does not depend on blocks and workers. `work` is a folder for files that workers share.
    Counters: `mine/tile_tasks`, `mine/tile_tasks_reused`, `mine/cosines`, `mine/zero_vectors`.
    """

    corpus: str | Sequence[str]
    work: str
    other: str | Sequence[str] | None = None
    k: int = 32
    min_score: float = -np.inf
    both_sides: bool = True
    group_column: str | None = None
    pairing: str = "all"
    block_rows: int = BLOCK_ROWS
    embedding_column: str | None = None
    workers: int = 1  # processes on a machine, which share its cores
    max_held_bytes: int = MAX_HELD_BYTES
    ordinals: Sequence[str] = ()  # folders of ordinals; see AssignOrdinals. Empty: below `work`

    def __post_init__(self) -> None:
        super().__init__()
        if self.k < 1 or self.block_rows < 1:
            raise DataError(f"k and block_rows must be at least 1, got {self.k} and {self.block_rows}")
        if self.pairing not in PAIRINGS:
            raise DataError(f"pairing must be one of {', '.join(PAIRINGS)}, got {self.pairing!r}")
        if (self.pairing == "all") != (self.group_column is None):
            raise DataError("a group column and pairing within or across belong together: give both or neither")

    def expand(self, root: beam.Pipeline) -> MinedHint:
        """Assigns ordinals, distributes the tasks, and merges what was found for each block."""
        plan = (
            root
            | "Folder" >> beam.Create([self.work])
            | "Plan" >> beam.Map(_plan_on_worker, self)
            | "AssignOrdinals" >> AssignOrdinals(folders=self.ordinals or [f"{self.work}/{ORDINALS_FOLDER}"])
        )
        side_plan = beam.pvalue.AsSingleton(plan)
        neighbors = (
            plan
            | "TileTasks" >> beam.FlatMap(plan_tile_tasks)
            | "Spread" >> beam.Reshuffle()
            | "Compare" >> beam.ParDo(_CompareTilesFn(self.workers, self.max_held_bytes), side_plan)
            # Not a combine: its accumulators would hold the candidates of all blocks in each worker once more.
            | "GroupByBlock" >> beam.GroupByKey()
            | "Merge" >> beam.Map(_merge_rows, side_plan)
        )
        return MinedNeighbors(plan, neighbors, plan | "Audit" >> beam.Map(_exact_audit))

    def make_plan(self, *other_settings: Any) -> MiningPlan:
        """Inspects the files of the corpora; `other_settings` are further ones that have an effect on the result."""
        corpora = tuple(
            open_corpus(pattern, self.block_rows, self.embedding_column)
            for pattern in (self.corpus, self.other)
            if pattern
        )
        for corpus in corpora:
            check_same_model(corpora[0], corpus)
            check_row_count(corpus)
            if self.group_column and self.group_column not in corpus.columns:
                raise DataError(
                    f"{corpus.name} has no column {self.group_column!r}; it has: {', '.join(corpus.columns)}"
                )
        settings = {name: getattr(self, name) for name in ("k", "min_score", "both_sides", "group_column", "pairing")}
        # Slots for more neighbours than there are rows stay empty. One of them is kept: a row with an empty last slot
        # has no more neighbours than those found.
        settings["k"] = min(self.k, max(corpus.rows for corpus in corpora) + 1)
        content = [[corpus.digest for corpus in corpora], settings, self.block_rows, SCORES, other_settings]
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
        return MiningPlan(corpora=corpora, work=f"{self.work}/{digest}", **settings)


def _plan_on_worker(_: str, find: FindNeighbors) -> MiningPlan:
    return find.make_plan()


def _merge_rows(found: tuple[RowsKey, Iterable[SentCandidates]], plan: MiningPlan) -> BlockNeighbors:
    """All candidates that were found for some rows of a block, in whatever tasks."""
    (side, block, first), parts = found
    merged: dict[BlockKey, np.ndarray] = {}
    for part in parts:
        _merge_into(merged, (side, block), restore_empty(*part, plan.k))
    return BlockNeighbors(side, block, merged[side, block], first)


def _exact_audit(plan: MiningPlan) -> str:
    return "exact"


class _CompareTilesFn(beam.DoFn):
    """Compares the two runs of blocks of a task, or loads what an earlier run of the job found for it.

    Output is the candidates of rows of a block by their key. Those of several tasks are merged before they are emitted,
    which saves most of the shuffle if a worker gets several tasks in one bundle.
    """

    def __init__(self, workers: int, max_held_bytes: int) -> None:
        self._workers = workers
        self._max_held_bytes = max_held_bytes
        self._n_tasks = Metrics.counter("mine", "tile_tasks")
        self._n_reused = Metrics.counter("mine", "tile_tasks_reused")
        self._n_cosines = Metrics.counter("mine", "cosines")

    def setup(self) -> None:
        torch.set_num_threads(share_of_cores(self._workers))
        # The score that a further candidate of each row must reach, from all tasks that this worker did, also in
        # other bundles. A candidate below it is worse than k others wherever these are emitted: it can be dropped even
        # if this worker's results are never used.
        self._thresholds: dict[tuple[str, BlockKey], np.ndarray] = {}

    def start_bundle(self) -> None:
        self._held: dict[BlockKey, np.ndarray] = {}

    def process(self, task: TileTask, plan: MiningPlan) -> Iterator[tuple[RowsKey, SentCandidates]]:
        path = f"{plan.work}/{task.file_name}"
        keys = task.wanted_blocks(plan)
        found = _load_candidates(path, keys, plan.k)
        if found is None:
            thresholds = {key: self._thresholds[plan.work, key] for key in keys if (plan.work, key) in self._thresholds}
            found = compare_tile(plan, task, thresholds)
            _store_candidates(path, keys, found)
            self._n_cosines.inc(task.cosines(plan))
        else:
            self._n_reused.inc()
        self._n_tasks.inc()
        for key, candidates in found.items():
            _merge_into(self._held, key, candidates)
            thresholds_now = kth_scores(self._held[key], plan.min_score)
            before = self._thresholds.get((plan.work, key), thresholds_now)
            self._thresholds[plan.work, key] = np.maximum(thresholds_now, before)
        if sum(candidates.nbytes for candidates in self._held.values()) > self._max_held_bytes:
            yield from self._emit()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for item in self._emit():
            yield WindowedValue(item, MIN_TIMESTAMP, [GlobalWindow()])

    def _emit(self) -> Iterator[tuple[RowsKey, SentCandidates]]:
        for key, candidates in self._held.items():
            for rows in divide_rows(*candidates.shape):
                yield (*key, rows.start), drop_empty(candidates[rows])
        self._held = {}


def compare_tile(
    plan: MiningPlan, task: TileTask, thresholds: Mapping[BlockKey, np.ndarray]
) -> dict[BlockKey, np.ndarray]:
    """The candidates (rows, k) of each block of a task that needs neighbours.

    `thresholds` (rows,) of a block are scores that its candidates must reach; blocks may be missing there.
    """
    found: dict[BlockKey, np.ndarray] = {}
    for left_number in range(*task.left):
        left_key = (0, left_number)
        left = _cached_block(plan, left_key)
        left_topk = _new_topk(plan, left, found.get(left_key), thresholds.get(left_key))
        for right_number in task.right_blocks(left_number, plan):
            right_key = (len(plan.corpora) - 1, right_number)
            if right_key == left_key:
                compare(left.block, left.block, left_topk, same_group=plan.same_group)
                continue
            right, right_topk = _cached_block(plan, right_key), None
            if plan.is_right_wanted:
                right_topk = _new_topk(plan, right, found.get(right_key), thresholds.get(right_key))
            compare(left.block, right.block, left_topk, right_topk, plan.same_group)
            if right_topk is not None:
                _merge_into(found, right_key, right.for_all_rows(right_topk.candidates()))
        _merge_into(found, left_key, left.for_all_rows(left_topk.candidates()))
    return found


def _cached_block(plan: MiningPlan, key: BlockKey) -> LoadedBlock:
    side, number = key
    return cached_block(plan.corpora[side], number, plan.group_column)


def _new_topk(plan: MiningPlan, loaded: LoadedBlock, found: np.ndarray | None, given: np.ndarray | None) -> TopK:
    """A collector that takes no candidates below the `given` thresholds (rows,), nor below those `found` (rows, k)."""
    thresholds = np.full(len(loaded.has_direction), plan.min_score, np.float32)
    if given is not None:
        thresholds = np.maximum(thresholds, given)
    if found is not None:
        thresholds = np.maximum(thresholds, kth_scores(found, plan.min_score))
    # Thresholds that are all at the minimum say nothing, and TopK is faster with one threshold for all rows.
    is_raised = (thresholds > np.float32(plan.min_score)).any()
    return TopK(len(loaded.block), plan.k, plan.min_score, thresholds[loaded.has_direction] if is_raised else None)


def _merge_into(merged: MutableMapping[BlockKey, np.ndarray], key: BlockKey, candidates: np.ndarray) -> None:
    """Merges candidates (rows, k) of a block into those that were found for it before."""
    before = merged.get(key)
    if before is None:
        merged[key] = candidates
    else:
        has_any = candidates[:, 0] != EMPTY  # with a minimum score, most rows find nothing in most blocks
        before[has_any] = merge_candidates([before[has_any], candidates[has_any]], before.shape[1])


def _store_candidates(path: str, keys: Sequence[BlockKey], found: Mapping[BlockKey, np.ndarray]) -> None:
    arrays = {}
    for number, key in enumerate(keys):
        arrays[f"counts{number}"], arrays[f"candidates{number}"] = drop_empty(found[key])
    store_arrays(path, arrays)


def _load_candidates(path: str, keys: Sequence[BlockKey], k: int) -> dict[BlockKey, np.ndarray] | None:
    """The candidates (rows, k) that an earlier run of the job stored for these blocks, or None."""
    arrays = load_arrays(path)
    if arrays is None:
        return None
    return {
        key: restore_empty(arrays[f"counts{number}"], arrays[f"candidates{number}"], k)
        for number, key in enumerate(keys)
    }
