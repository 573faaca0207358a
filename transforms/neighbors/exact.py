"""The nearest rows of every row of a corpus, exactly.

The corpus is cut into blocks; a turn compares two of them and is stored when it is done, so that a job which died
goes on from there. Only numbers of blocks and arrays of the best candidates of a whole block go between steps.
"""

import collections
import dataclasses
import functools
import hashlib
import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations_with_replacement, product
from typing import Any

import apache_beam as beam
import numpy as np
import pandas as pd
import torch
from apache_beam.metrics import Metrics
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import WindowedValue

from sbert_core.cores import share_of_cores
from sbert_core.errors import DataError
from sbert_core.neighbors.cosine import Block, compare
from sbert_core.neighbors.topk import EMPTY, MAX_RANK, TopK, floors_of, merge_best
from transforms.dataset.corpus import (
    BLOCK_ROWS,
    BlockRef,
    Corpus,
    open_corpus,
    rank_rows,
    ranks_of_block,
    read_columns,
    read_vectors,
)
from transforms.dataset.work_files import load_arrays, store_arrays

PAIRINGS = ("all", "within", "across")
HELD_BYTES = 512 * 2**20  # of candidates that a worker keeps before it sends them on
_CACHED_BYTES = 512 * 2**20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be compared; it is made where the corpus is first looked at, and travels to every worker."""

    corpora: tuple[Corpus, ...]  # one, or the two whose rows are compared with each other
    k: int
    min_score: float
    both_sides: bool
    group_column: str | None
    pairing: str
    work: str

    @property
    def digest(self) -> str:
        """Stands for all that decides what is found."""
        return self.work.rsplit("/", 1)[-1]

    @property
    def turns(self) -> Iterator[tuple[int, int]]:
        """Pairs of blocks; within one corpus each once."""
        counts = [range(len(corpus.blocks)) for corpus in self.corpora]
        return combinations_with_replacement(counts[0], 2) if len(counts) == 1 else product(counts[0], counts[1])

    def ranked(self) -> "Plan":
        """Ranks the rows of the corpora, for which all ids are read: a matter for a worker."""
        corpora = (rank_rows(corpus, f"{self.work}/corpus-{side}") for side, corpus in enumerate(self.corpora))
        return dataclasses.replace(self, corpora=tuple(corpora))


@dataclasses.dataclass(frozen=True, eq=False)
class Found:
    """The best candidates (rows, k) of the rows of one block, best first; ranks are those of the other corpus."""

    side: int  # 0 or 1: which corpus the block is of
    block: int
    best: np.ndarray


@dataclasses.dataclass(kw_only=True, eq=False)
class FindNeighbors(beam.PTransform):
    """Finds for each row its `k` nearest other rows by cosine; with `other`, its nearest rows in that corpus.

    Input is a pipeline. Output is a dictionary of two collections: `plan`, one `Plan`, and `found`, one `Found` per
    block; with `both_sides` also for the blocks of `other`. `pairing` "within" or "across" compares only rows of the
    same, or of different, values of `group_column`. A row is never its own neighbour, a copy of it is; equal scores
    are ordered by id, so blocks and workers have no effect. `work` is a folder for what must outlive a worker.
    Counters: `mine/turns`, `mine/turns_kept`, `mine/cosines`, `mine/zero_vectors`.
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
    workers: int = 1  # processes on a machine: they share its cores

    def __post_init__(self) -> None:
        super().__init__()
        if self.k < 1 or self.block_rows < 1:
            raise DataError(f"k and block_rows must be at least 1, got {self.k} and {self.block_rows}")
        if self.pairing not in PAIRINGS:
            raise DataError(f"pairing must be one of {', '.join(PAIRINGS)}, got {self.pairing!r}")
        if (self.pairing == "all") != (self.group_column is None):
            raise DataError("a group column and pairing within or across belong together: give both or neither")

    def expand(self, root: beam.Pipeline) -> Any:
        """Ranks all rows, spreads the pairs of blocks, and merges what was found for each block."""
        plan = root | "Folder" >> beam.Create([self.work]) | "Plan" >> beam.Map(lambda _: self.make_plan().ranked())
        found = (
            plan
            | "Turns" >> beam.FlatMap(lambda plan: plan.turns)
            | "Spread" >> beam.Reshuffle()
            | "Compare" >> beam.ParDo(_CompareFn(self.workers), beam.pvalue.AsSingleton(plan))
            # Not a combine: what waits in a worker to be combined would be the candidates of all blocks again.
            | "MergeBest" >> beam.GroupByKey()
            | "Found" >> beam.MapTuple(lambda key, parts: Found(key[0], key[1], _merge(parts)))
        )
        return {"plan": plan, "found": found}

    def make_plan(self, *more: Any) -> Plan:
        """Looks into the files of the corpora; `more` is what else decides how they are compared."""
        corpora = tuple(
            open_corpus(pattern, self.block_rows, self.embedding_column)
            for pattern in (self.corpus, self.other)
            if pattern
        )
        for corpus in corpora:
            check_alike(corpora[0], corpus)
            check_size(corpus)
            if self.group_column and self.group_column not in corpus.columns:
                raise DataError(
                    f"{corpus.name} has no column {self.group_column!r}; it has: {', '.join(corpus.columns)}"
                )
        settings = {name: getattr(self, name) for name in ("k", "min_score", "both_sides", "group_column", "pairing")}
        # Places for more neighbours than there are rows would only be empty. The one too many stays empty, which
        # tells that a row has no more neighbours.
        settings["k"] = min(self.k, max(corpus.rows for corpus in corpora) + 1)
        decides = [[corpus.digest for corpus in corpora], settings, self.block_rows, more]
        digest = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:16]
        return Plan(corpora=corpora, work=f"{self.work}/{digest}", **settings)


def _merge(parts: Iterable[np.ndarray]) -> np.ndarray:
    return functools.reduce(lambda best, part: merge_best([best, part], best.shape[1]), parts)


def check_alike(corpus: Corpus, other: Corpus) -> None:
    """Vectors of two models say nothing about each other."""
    if not (corpus.rows and other.rows):
        return
    if corpus.dim != other.dim:
        raise DataError(f"{corpus.name} has {corpus.dim} dimensions, {other.name} has {other.dim}")
    if corpus.fingerprint != other.fingerprint:
        raise DataError(f"{corpus.name} and {other.name} hold vectors of different models: embed both with one")


def check_size(corpus: Corpus) -> None:
    """Ranks have 32 bits."""
    if corpus.rows > MAX_RANK:
        raise DataError(f"{corpus.name} has {corpus.rows:,} rows, one job takes {MAX_RANK:,} at most: take parts of it")


class _CompareFn(beam.DoFn):
    """Compares two blocks.

    What a row has found in this worker so far tells what a further candidate must score: a candidate below that is
    beaten by k others wherever they end up, so it may be dropped even if this worker's results are never used.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._turns = Metrics.counter("mine", "turns")
        self._kept = Metrics.counter("mine", "turns_kept")
        self._cosines = Metrics.counter("mine", "cosines")

    def setup(self) -> None:
        torch.set_num_threads(share_of_cores(self._workers))
        self._floors: dict[tuple[str, int, int], np.ndarray] = {}

    def start_bundle(self) -> None:
        self._found: dict[tuple[int, int], np.ndarray] = {}

    def process(self, turn: tuple[int, int], plan: Plan) -> Iterator[tuple[tuple[int, int], np.ndarray]]:
        sides = (0, len(plan.corpora) - 1)
        keys = list(zip(sides, turn, strict=True))
        path = f"{plan.work}/turn-{turn[0]:06d}-{turn[1]:06d}.npz"
        refs = [plan.corpora[side].blocks[number] for side, number in keys]
        results = _load_turn(path, refs, plan.k)
        if results is None:
            results = self._compare(plan, keys, refs)
            _store_turn(path, results)
            self._cosines.inc(refs[0].rows * refs[1].rows)
        else:
            self._kept.inc()
        self._turns.inc()
        for key, best in zip(keys, results, strict=False):
            if key in self._found:
                some = best[:, 0] != EMPTY  # with a threshold most rows find nothing in most turns
                self._found[key][some] = merge_best([self._found[key][some], best[some]], plan.k)
            else:
                self._found[key] = best
            floors, place = floors_of(self._found[key], plan.min_score), (plan.work, *key)
            self._floors[place] = np.maximum(floors, self._floors.get(place, floors))
        if sum(best.nbytes for best in self._found.values()) > HELD_BYTES:
            yield from self._found.items()
            self._found = {}

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for found in self._found.items():
            yield WindowedValue(found, MIN_TIMESTAMP, [GlobalWindow()])
        self._found = {}

    def _compare(self, plan: Plan, keys: list[tuple[int, int]], refs: list[BlockRef]) -> list[np.ndarray]:
        found = [cached_block(plan.corpora[side], number, plan.group_column) for side, number in keys]
        blocks, some = zip(*found, strict=True)
        if keys[0] == keys[1]:
            blocks, keys = (blocks[0], blocks[0]), keys[:1]
        bests = []
        for key, block, valid in zip(keys, blocks, some, strict=False):
            floors = self._floors.get((plan.work, *key))
            if floors is not None:
                floors = floors[valid] if (floors > np.float32(plan.min_score)).any() else None
            bests.append(TopK(len(block), plan.k, plan.min_score, floors))
        wanted = bests if plan.both_sides or len(plan.corpora) == 1 else bests[:1]
        same_group = None if plan.pairing == "all" else plan.pairing == "within"
        compare(blocks[0], blocks[1], bests[0], wanted[-1] if len(wanted) == 2 else None, same_group)
        results = []
        for best, valid in zip(wanted, some, strict=False):
            result = np.zeros((len(valid), plan.k), np.uint64)
            result[valid] = best.best()
            results.append(result)
        return results


_cache: collections.OrderedDict[tuple[str, int, str | None], tuple[Block, np.ndarray]] = collections.OrderedDict()
_cache_lock = threading.Lock()


def cached_block(corpus: Corpus, number: int, group_column: str | None) -> tuple[Block, np.ndarray]:
    """Reads a block, or finds it among those this process read last: steps that follow each other share them."""
    key = (corpus.work, number, group_column)
    with _cache_lock:
        if key in _cache:
            _cache.move_to_end(key)
            return _cache[key]
    found = read_block(corpus, corpus.blocks[number], group_column)
    with _cache_lock:
        _cache[key] = found
        while sum(block.vectors.nbytes for block, _ in _cache.values()) > _CACHED_BYTES:
            _cache.popitem(last=False)
    return found


def read_block(corpus: Corpus, ref: BlockRef, group_column: str | None) -> tuple[Block, np.ndarray]:
    """The rows of a block that have a direction, and which these are."""
    vectors, some = read_vectors(corpus, ref)
    groups = None
    if group_column:
        values = read_columns(ref, [group_column])[group_column].cast("string").to_numpy(zero_copy_only=False)
        groups = pd.util.hash_array(np.where(pd.isna(values), "", values), categorize=False)[some]
    if not some.all():
        Metrics.counter("mine", "zero_vectors").inc(int((~some).sum()))
    return Block(torch.from_numpy(vectors[some]), ranks_of_block(corpus, ref)[some], groups), some


def _store_turn(path: str, results: list[np.ndarray]) -> None:
    """Stores only the places that hold a candidate."""
    arrays = {}
    for number, best in enumerate(results):
        arrays[f"places{number}"] = np.flatnonzero(best).astype(np.uint32)
        arrays[f"candidates{number}"] = best[best != EMPTY]
    store_arrays(path, arrays)


def _load_turn(path: str, refs: list[BlockRef], k: int) -> list[np.ndarray] | None:
    """What an earlier run stored of a turn, if it did."""
    arrays = load_arrays(path)
    if arrays is None:
        return None
    results = []
    for number in range(len(arrays) // 2):
        best = np.zeros(refs[number].rows * k, np.uint64)
        best[arrays[f"places{number}"]] = arrays[f"candidates{number}"]
        results.append(best.reshape(-1, k))
    return results


class BestFn(beam.CombineFn):
    """Merges the best candidates (rows, k) that several workers found for the rows of a block."""

    def create_accumulator(self) -> np.ndarray | None:
        """Nothing yet."""
        return None

    def add_input(self, accumulator: np.ndarray | None, best: np.ndarray) -> np.ndarray:
        """Adds what one bundle found."""
        return best if accumulator is None else merge_best([accumulator, best], best.shape[1])

    def merge_accumulators(self, accumulators: Iterable[np.ndarray | None]) -> np.ndarray | None:
        """Adds what several workers found."""
        known = [accumulator for accumulator in accumulators if accumulator is not None]
        return merge_best(known, known[0].shape[1]) if known else None

    def extract_output(self, accumulator: np.ndarray) -> np.ndarray:
        """All of it."""
        return accumulator
