"""The nearest rows of every row of a corpus, exactly.

The corpus is divided into blocks, and pairs of blocks are compared. What was found for a pair is stored in a work file,
so that a job that died continues from there. Only numbers of blocks and arrays of candidates travel between steps.
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from sbert_core.neighbors.candidates import EMPTY, kth_scores, merge_candidates
from sbert_core.neighbors.cosine import compare
from sbert_core.neighbors.topk import TopK
from transforms.dataset.corpus import BLOCK_ROWS, open_corpus
from transforms.dataset.work_files import load_arrays, store_arrays
from transforms.neighbors.block_cache import LoadedBlock, block_cache
from transforms.neighbors.mining_plan import (
    PAIRINGS,
    BlockKey,
    BlockNeighbors,
    MinedHint,
    MinedNeighbors,
    MiningPlan,
    block_pair_file,
    check_row_count,
    check_same_model,
)

MAX_HELD_BYTES = 512 * 2**20  # of candidates that a worker merges before it emits them


@dataclasses.dataclass(kw_only=True, eq=False)
class FindNeighbors(beam.PTransform):
    """Finds the `k` nearest other rows of each row by cosine; with `other`, the nearest rows in that corpus.

    Input is a pipeline, output is `MinedNeighbors` with one `BlockNeighbors` per block; with `both_sides` also for the
    blocks of `other`. `pairing` "within" or "across" compares only rows with the same value, or with different values,
    of `group_column`. A row is never its own neighbour, but a copy of it is. Equal scores are ordered by id, so the
    result does not depend on blocks and workers. `work` is a folder for files that workers share.
    Counters: `mine/block_pairs`, `mine/block_pairs_reused`, `mine/cosines`, `mine/zero_vectors`.
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

    def __post_init__(self) -> None:
        super().__init__()
        if self.k < 1 or self.block_rows < 1:
            raise DataError(f"k and block_rows must be at least 1, got {self.k} and {self.block_rows}")
        if self.pairing not in PAIRINGS:
            raise DataError(f"pairing must be one of {', '.join(PAIRINGS)}, got {self.pairing!r}")
        if (self.pairing == "all") != (self.group_column is None):
            raise DataError("a group column and pairing within or across belong together: give both or neither")

    def expand(self, root: beam.Pipeline) -> MinedHint:
        """Assigns ordinals, distributes the block pairs, and merges what was found for each block."""
        plan = root | "Folder" >> beam.Create([self.work]) | "Plan" >> beam.Map(_plan_on_worker, self)
        neighbors = (
            plan
            | "BlockPairs" >> beam.FlatMap(_block_pairs)
            | "Spread" >> beam.Reshuffle()
            | "Compare"
            >> beam.ParDo(_CompareBlocksFn(self.workers, self.max_held_bytes), beam.pvalue.AsSingleton(plan))
            # Not a combine: its accumulators would hold the candidates of all blocks in each worker once more.
            | "GroupByBlock" >> beam.GroupByKey()
            | "Merge" >> beam.MapTuple(_merge_block)
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
        content = [[corpus.digest for corpus in corpora], settings, self.block_rows, other_settings]
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
        return MiningPlan(corpora=corpora, work=f"{self.work}/{digest}", **settings)


def _plan_on_worker(_: str, find: FindNeighbors) -> MiningPlan:
    return find.make_plan().with_ordinals()


def _block_pairs(plan: MiningPlan) -> Iterator[tuple[int, int]]:
    return plan.block_pairs


def _merge_block(key: BlockKey, parts: Iterable[np.ndarray]) -> BlockNeighbors:
    """All candidates that were found for a block, in whatever bundles."""
    return BlockNeighbors(
        *key, functools.reduce(lambda one, other: merge_candidates([one, other], one.shape[1]), parts)
    )


def _exact_audit(plan: MiningPlan) -> str:
    return "exact"


class _CompareBlocksFn(beam.DoFn):
    """Compares the two blocks of a pair, or loads what an earlier run found for it.

    Input is a pair of block numbers, output the candidates (rows, k) of one block by its key. Candidates of several
    pairs are merged before they are emitted, which saves most of the shuffle.
    """

    def __init__(self, workers: int, max_held_bytes: int) -> None:
        self._workers = workers
        self._max_held_bytes = max_held_bytes
        self._n_pairs = Metrics.counter("mine", "block_pairs")
        self._n_reused = Metrics.counter("mine", "block_pairs_reused")
        self._n_cosines = Metrics.counter("mine", "cosines")

    def setup(self) -> None:
        torch.set_num_threads(share_of_cores(self._workers))
        # The score that a further candidate of each row must reach, from all pairs that this worker compared, also in
        # other bundles. A candidate below it is worse than k others wherever these are emitted: it can be dropped even
        # if this worker's results are never used.
        self._thresholds: dict[tuple[str, BlockKey], np.ndarray] = {}

    def start_bundle(self) -> None:
        self._held: dict[BlockKey, np.ndarray] = {}

    def process(self, block_pair: tuple[int, int], plan: MiningPlan) -> Iterator[tuple[BlockKey, np.ndarray]]:
        path = f"{plan.work}/{block_pair_file(block_pair)}"
        keys = plan.wanted_blocks(block_pair)
        found = _load_candidates(path, {key: (plan.block(key).rows, plan.k) for key in keys})
        if found is None:
            thresholds = {key: self._thresholds[plan.work, key] for key in keys if (plan.work, key) in self._thresholds}
            found = compare_block_pair(plan, block_pair, thresholds)
            _store_candidates(path, found)
            left, right = (plan.block(key) for key in plan.compared_blocks(block_pair))
            self._n_cosines.inc(left.rows * right.rows)
        else:
            self._n_reused.inc()
        self._n_pairs.inc()
        for key, candidates in found.items():
            self._hold(key, candidates, plan)
        if sum(candidates.nbytes for candidates in self._held.values()) > self._max_held_bytes:
            yield from self._held.items()
            self._held = {}

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for item in self._held.items():
            yield WindowedValue(item, MIN_TIMESTAMP, [GlobalWindow()])
        self._held = {}

    def _hold(self, key: BlockKey, candidates: np.ndarray, plan: MiningPlan) -> None:
        """Merges candidates into those held for the block, and raises the thresholds of its rows."""
        held = self._held.get(key)
        if held is None:
            held = self._held[key] = candidates
        else:
            has_any = candidates[:, 0] != EMPTY  # with a minimum score, most rows find nothing in most pairs
            held[has_any] = merge_candidates([held[has_any], candidates[has_any]], plan.k)
        thresholds = kth_scores(held, plan.min_score)
        before = self._thresholds.get((plan.work, key), thresholds)
        self._thresholds[plan.work, key] = np.maximum(thresholds, before)


def compare_block_pair(
    plan: MiningPlan, block_pair: tuple[int, int], thresholds: Mapping[BlockKey, np.ndarray]
) -> dict[BlockKey, np.ndarray]:
    """The candidates (rows, k) of each block of a pair that needs neighbours.

    `thresholds` (rows,) of a block are scores that its candidates must reach; blocks may be missing there.
    """
    first, second = plan.compared_blocks(block_pair)
    left = _cached_block(plan, first)
    right = left if first == second else _cached_block(plan, second)
    loaded = dict(zip(plan.wanted_blocks(block_pair), (left, right), strict=False))
    topks = {key: _new_topk(plan, each, thresholds.get(key)) for key, each in loaded.items()}
    right_topk = topks.get(second) if first != second else None
    compare(left.block, right.block, topks[first], right_topk, plan.same_group)
    return {key: each.for_all_rows(topks[key].candidates()) for key, each in loaded.items()}


def _cached_block(plan: MiningPlan, key: BlockKey) -> LoadedBlock:
    side, number = key
    return block_cache().get(plan.corpora[side], number, plan.group_column)


def _new_topk(plan: MiningPlan, loaded: LoadedBlock, thresholds: np.ndarray | None) -> TopK:
    if thresholds is not None:
        # Thresholds that are all at the minimum say nothing, and TopK is faster with one threshold for all rows.
        is_raised = (thresholds > np.float32(plan.min_score)).any()
        thresholds = thresholds[loaded.has_direction] if is_raised else None
    return TopK(len(loaded.block), plan.k, plan.min_score, thresholds)


def _store_candidates(path: str, found: Mapping[BlockKey, np.ndarray]) -> None:
    """Stores the slots that hold a candidate: with a minimum score, most are empty."""
    arrays = {}
    for number, candidates in enumerate(found.values()):
        arrays[f"slots{number}"] = np.flatnonzero(candidates).astype(np.uint32)
        arrays[f"candidates{number}"] = candidates[candidates != EMPTY]
    store_arrays(path, arrays)


def _load_candidates(path: str, shapes: Mapping[BlockKey, tuple[int, int]]) -> dict[BlockKey, np.ndarray] | None:
    """The candidates that an earlier run stored for these blocks, or None."""
    arrays = load_arrays(path)
    if arrays is None:
        return None
    found = {}
    for number, (key, shape) in enumerate(shapes.items()):
        candidates = np.zeros(shape, np.uint64)
        candidates.ravel()[arrays[f"slots{number}"]] = arrays[f"candidates{number}"]
        found[key] = candidates
    return found
