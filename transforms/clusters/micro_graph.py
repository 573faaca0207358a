"""The weights between all micro-clusters, added up over the blocks of a corpus.

Weights travel in pieces of limited size and are added up in buckets of micro-clusters. What a bucket adds up to is in a
file: where most pairs of micro-clusters are linked, it has up to 134 MB.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import WindowedValue
from scipy import sparse

from sbert_core.clusters.micro_clusters import WEIGHT_SCALE
from transforms.clusters.cluster_plan import ClusterPlan
from transforms.dataset.work_files import need_arrays, store_arrays

MICRO_PER_BUCKET = 512
MAX_ELEMENT_EDGES = 2**16  # 1 MiB
MAX_HELD_EDGES = 2**24  # 256 MiB that a worker adds up before it emits them

Edges = tuple[np.ndarray, np.ndarray]
"""Keys (n,) and weights (n,) of pairs of micro-clusters: first times the number of micro-clusters plus second."""


class EdgeSums:
    """Edges that are added up, some of them later than others so that each is sorted only a few times."""

    def __init__(self) -> None:
        self._parts: list[Edges] = []
        self._n_added = 0  # in the first part, where each key is once
        self._n_held = 0

    def __len__(self) -> int:
        return self._n_held

    def add(self, edges: Edges) -> None:
        """Adds edges, in which a key may occur several times."""
        self._parts.append(edges)
        self._n_held += len(edges[0])
        if self._n_held > 2 * self._n_added + MAX_ELEMENT_EDGES:
            self.total()

    def total(self) -> Edges:
        """Each key once, in ascending order, with the sum of its weights."""
        empty = (np.empty(0, np.int64), np.empty(0, np.int64))
        all_keys, all_weights = (np.concatenate(each) for each in zip(empty, *self._parts, strict=True))
        keys, places = np.unique(all_keys, return_inverse=True)
        weights = np.zeros(len(keys), np.int64)
        np.add.at(weights, places, all_weights)
        self._parts, self._n_added, self._n_held = [(keys, weights)], len(keys), len(keys)
        return keys, weights


@dataclasses.dataclass(kw_only=True, eq=False)
class AddEdges(beam.PTransform):
    """Adds up edges and stores them for `read_micro_graph`.

    Input are pairs of the number of micro-clusters and edges, one per block, output is one list of the numbers of the
    buckets that were stored.
    """

    plan: beam.PCollection[ClusterPlan]  # one

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, edges: beam.PCollection[tuple[int, Any]]) -> beam.PCollection[list[int]]:
        """Adds up first what a worker gets, then the edges of each bucket."""
        return (
            edges
            | "AddInBundle" >> beam.ParDo(_AddInBundleFn())
            | "GroupByBucket" >> beam.GroupByKey()
            | "Store" >> beam.Map(_store_bucket, beam.pvalue.AsSingleton(self.plan))
            | "AllBuckets" >> beam.combiners.ToList()
        )


class _AddInBundleFn(beam.DoFn):
    """Adds up the edges of a bundle; output is edges by bucket, in pieces."""

    def start_bundle(self) -> None:
        self._held: dict[int, EdgeSums] = {}

    def process(self, item: tuple[int, Edges]) -> Iterator[tuple[int, Edges]]:
        n_micro, edges = item
        self._held.setdefault(n_micro, EdgeSums()).add(edges)
        if sum(map(len, self._held.values())) > MAX_HELD_EDGES:
            yield from self._emit()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for item in self._emit():
            yield WindowedValue(item, MIN_TIMESTAMP, [GlobalWindow()])

    def _emit(self) -> Iterator[tuple[int, Edges]]:
        for n_micro, held in self._held.items():
            yield from divide_edges(held.total(), n_micro)
        self._held = {}


def divide_edges(edges: Edges, n_micro: int) -> Iterator[tuple[int, Edges]]:
    """Edges in ascending order of keys, by bucket, in pieces that fit into one element."""
    keys, weights = edges
    buckets = keys // n_micro // MICRO_PER_BUCKET
    for bucket in np.unique(buckets).tolist():
        start, end = np.searchsorted(buckets, [bucket, bucket + 1])
        for first in range(start, end, MAX_ELEMENT_EDGES):
            piece = slice(first, min(first + MAX_ELEMENT_EDGES, end))
            yield bucket, (keys[piece], weights[piece])


def _path(plan: ClusterPlan, bucket: int) -> str:
    return f"{plan.work}/edges-{bucket:06d}.npz"


def _store_bucket(item: tuple[int, Iterable[Edges]], plan: ClusterPlan) -> int:
    bucket, pieces = item
    sums = EdgeSums()
    for piece in pieces:
        sums.add(piece)
    keys, weights = sums.total()
    store_arrays(_path(plan, bucket), {"keys": keys, "weights": weights})
    return bucket


def read_micro_graph(plan: ClusterPlan, buckets: Sequence[int], n_micro: int) -> sparse.csr_array:
    """The weights (n_micro, n_micro) between all micro-clusters."""
    stored = [need_arrays(_path(plan, bucket)) for bucket in sorted(buckets)]
    empty = np.empty(0, np.int64)
    keys, weights = (np.concatenate([empty, *(each[name] for each in stored)]) for name in ("keys", "weights"))
    return sparse.csr_array(
        (weights / (2.0 * WEIGHT_SCALE), (keys // n_micro, keys % n_micro)), shape=(n_micro, n_micro)
    )
