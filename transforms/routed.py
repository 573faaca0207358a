"""The nearest rows of every row of a large corpus, found only where they are likely to be.

Cells are learned on a sample. Every row is written to the files of its nearest cells, cells are compared exactly, and
an audit measures on a random sample of rows how many neighbours were missed.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterator
from typing import Any, BinaryIO

import apache_beam as beam
import numpy as np
import torch
from apache_beam.metrics import Metrics
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import WindowedValue

from sbert_core.cosine import Block, compare
from sbert_core.errors import DataError
from sbert_core.routing import (
    MAX_SAMPLE,
    SAMPLE_PER_CELL,
    cells_for,
    learn_cells,
    nearest_cells,
    sample_of,
)
from sbert_core.topk import EMPTY, TopK, merge_best
from transforms.audit import AuditNeighbors
from transforms.corpus import ranks_of_block
from transforms.files import open_file, store
from transforms.neighbors import BestFn, FindNeighbors, Found, Plan, cached_block, load_arrays, store_arrays

CELLS_PER_TURN = 16
MAX_CROWD = 8  # a cell may have this many times the mean of the rows


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
        plan = root | "Folder" >> beam.Create([self.find.work]) | "Plan" >> beam.Map(lambda _: self.make_plan())
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
        found = (
            routed
            | "AllRouted" >> beam.combiners.ToList()
            | "Turns" >> beam.FlatMap(_list_turns)
            | "Spread" >> beam.Reshuffle()
            | "Compare" >> beam.ParDo(_CompareCellsFn(self.find.threads), planned)
            | "MergeBest" >> beam.CombinePerKey(BestFn(self.find.k))
            | "Found" >> beam.MapTuple(lambda key, best: Found(key[0], key[1], best))
        )
        audit = {"plan": plan, "blocks": blocks, "found": found} | "Audit" >> AuditNeighbors(
            k=self.find.k, rows=self.audit_rows, min_score=self.audit_score
        )
        return {"plan": plan, "found": found, "audit": audit}

    def make_plan(self) -> Plan:
        """Looks into the corpus and ranks its rows."""
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


def _route(number: int, plan: Plan, centers: np.ndarray, routes: int) -> tuple[int, np.ndarray]:
    """Writes a block's rows sorted by cell, each to its nearest cells; returns how many each cell got."""
    corpus = plan.corpora[0]
    block, _ = cached_block(corpus, number, plan.group_column)
    cells = nearest_cells(block.vectors.numpy(), centers, routes)
    order = np.argsort(cells.ravel(), kind="stable")
    rows = order // max(cells.shape[1], 1)
    starts = np.searchsorted(cells.ravel()[order], np.arange(len(centers) + 1))
    arrays = {"starts": starts, "ranks": block.ranks[rows]}
    if block.groups is not None:
        arrays["groups"] = block.groups[rows]
    store_arrays(f"{plan.work}/route-{number:06d}.npz", arrays)

    def write(file: BinaryIO) -> None:
        for start in range(0, len(rows), 1024):
            file.write(block.vectors.numpy()[rows[start : start + 1024]].data)

    store(f"{plan.work}/route-{number:06d}.vectors", write)
    return number, np.diff(starts)


def _list_turns(routed: list[tuple[int, np.ndarray]]) -> Iterator[tuple[int, int]]:
    """Ranges of cells, each about the same work."""
    if not routed:
        return
    sizes = np.sum([counts for _, counts in routed], axis=0).astype(np.float64)
    work = np.cumsum(sizes**2)
    turns = max(1, len(sizes) // CELLS_PER_TURN)
    bounds = np.unique(np.searchsorted(work, np.linspace(0, work[-1], turns + 1)[1:-1]) + 1)
    edges = [0, *bounds.tolist(), len(sizes)]
    yield from ((low, high) for low, high in itertools.pairwise(edges) if low < high)


class _CompareCellsFn(beam.DoFn):
    """Compares the rows inside each of a range of cells."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._cells = Metrics.counter("mine", "cells")
        self._kept = Metrics.counter("mine", "turns_kept")
        self._cosines = Metrics.counter("mine", "cosines")

    def setup(self) -> None:
        torch.set_num_threads(self._threads)

    def start_bundle(self) -> None:
        self._best: np.ndarray | None = None

    def process(self, turn: tuple[int, int], plan: Plan) -> None:
        self._plan = plan
        if self._best is None:
            self._best = np.zeros((plan.corpora[0].rows, plan.k), np.uint64)  # (rank, k)
        path = f"{plan.work}/turn-{turn[0]:06d}-{turn[1]:06d}.npz"
        arrays = load_arrays(path)
        if arrays is None:
            arrays = self._compare(plan, turn)
            store_arrays(path, arrays)
        else:
            self._kept.inc()
        self._cells.inc(turn[1] - turn[0])
        ranks = arrays["ranks"]
        self._best[ranks] = merge_best([self._best[ranks], arrays["best"]], plan.k)

    def _compare(self, plan: Plan, turn: tuple[int, int]) -> dict[str, np.ndarray]:
        """The ranks of all rows of the cells, each once, and the best of each."""
        found: list[tuple[np.ndarray, np.ndarray]] = []
        same_group = None if plan.pairing == "all" else plan.pairing == "within"
        for cell in range(*turn):
            block = _read_cell(plan, cell)
            collected = TopK(len(block), plan.k, plan.min_score)
            compare(block, block, collected, same_group=same_group)
            self._cosines.inc(len(block) ** 2)
            best = collected.best()
            some = best[:, 0] != EMPTY
            found.append((block.ranks[some], best[some]))
        ranks = np.unique(np.concatenate([ranks for ranks, _ in found]))
        merged = np.zeros((len(ranks), plan.k), np.uint64)
        for own, best in found:
            places = np.searchsorted(ranks, own)
            merged[places] = merge_best([merged[places], best], plan.k)
        return {"ranks": ranks, "best": merged}

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._best is None:
            return
        corpus = self._plan.corpora[0]
        for block in corpus.blocks:
            best = self._best[ranks_of_block(corpus, block)]
            yield WindowedValue(((0, block.number), best), MIN_TIMESTAMP, [GlobalWindow()])
        self._best = None


@functools.lru_cache(maxsize=1)
def _routes(work: str, blocks: int) -> list[dict[str, np.ndarray]]:
    """Where in the files the rows of each cell are."""
    return [load_arrays(f"{work}/route-{number:06d}.npz") or {} for number in range(blocks)]


def _read_cell(plan: Plan, cell: int) -> Block:
    """The rows of a cell, from the files of all blocks, in the order of their ranks."""
    dim = plan.corpora[0].dim
    vectors, ranks, groups = [], [], []
    for number, route in enumerate(_routes(plan.work, len(plan.corpora[0].blocks))):
        low, high = route["starts"][cell : cell + 2].tolist()
        if low < high:
            with open_file(f"{plan.work}/route-{number:06d}.vectors") as file:
                file.seek(low * dim * 4)
                vectors.append(np.frombuffer(file.read((high - low) * dim * 4), np.float32).reshape(-1, dim))
            ranks.append(route["ranks"][low:high])
            if "groups" in route:
                groups.append(route["groups"][low:high])
    if not ranks:
        return Block(torch.empty(0, dim), np.empty(0, np.uint32), np.empty(0, np.uint64))
    order = np.argsort(np.concatenate(ranks))
    return Block(
        torch.from_numpy(np.concatenate(vectors)[order]),
        np.concatenate(ranks)[order],
        np.concatenate(groups)[order] if groups else None,
    )
