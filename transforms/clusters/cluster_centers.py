"""Centres of clusters from sums that workers combine.

Vectors and cosines are summed in fixed point: the sum is exact, so the order in which workers add has no effect. With
many clusters the sums, and the centres, are too large for one element. So sums travel in ranges of clusters, and what
they add up to is in files.
"""

import dataclasses
from collections.abc import Iterator

import apache_beam as beam
import numpy as np

from sbert_core.clusters.algorithm import ClusteringFields
from sbert_core.clusters.kmeans import sum_by_cluster
from sbert_core.clusters.noise import NOISE
from sbert_core.neighbors.cosine import unit_rows
from transforms.clusters.cluster_plan import ClusterPlan, read_labels
from transforms.dataset.corpus import read_vectors
from transforms.dataset.work_files import need_arrays, store_arrays
from transforms.merge_values import MergeFn

FIXED_POINT_SCALE = 2.0**28  # units per 1.0; sums of up to 2**35 rows fit into int64
OUTSIDE_SHARE = 0.01  # of a cluster's rows that are outside its radius
MAX_ELEMENT_SUMS = 2**17  # clusters * dimensions in one element: 1 MiB


@dataclasses.dataclass(frozen=True, eq=False)
class Centers:
    """The centres (k, dim) of the clusters, of unit length, and their sizes (k,)."""

    vectors: np.ndarray
    sizes: np.ndarray

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def n_farthest(self) -> np.ndarray:
        """The number (k,) of rows farthest from each centre that its radius is computed from."""
        return (OUTSIDE_SHARE * np.maximum(self.sizes - 1, 0)).astype(np.int64) + 2


@dataclasses.dataclass(frozen=True, eq=False)
class ClusterSums:
    """The fixed-point sums (k, dim) int64 of the vectors of each cluster, and the number of vectors (k,)."""

    vectors: np.ndarray
    sizes: np.ndarray

    @classmethod
    def of(cls, vectors: np.ndarray, labels: np.ndarray, k: int) -> "ClusterSums":
        """The sums of unit vectors (n, dim) with these labels (n,)."""
        sums, sizes = sum_by_cluster(np.rint(vectors * np.float32(FIXED_POINT_SCALE)), labels, k)
        return cls(sums.astype(np.int64), sizes)

    def by_range(self) -> Iterator[tuple[int, "ClusterSums"]]:
        """The sums of ranges of clusters, each with the number of its first cluster."""
        for clusters in _divide_clusters(*self.vectors.shape):
            yield clusters.start, ClusterSums(self.vectors[clusters], self.sizes[clusters])

    def to_float(self) -> np.ndarray:
        """The sums (k, dim) as floats."""
        return self.vectors / FIXED_POINT_SCALE


def _divide_clusters(k: int, dim: int) -> list[slice]:
    length = max(MAX_ELEMENT_SUMS // max(dim, 1), 1)
    return [slice(first, min(first + length, k)) for first in range(0, k, length)]


def add_sums(first: ClusterSums, second: ClusterSums) -> ClusterSums:
    """The sums of two sets of rows together."""
    return ClusterSums(first.vectors + second.vectors, first.sizes + second.sizes)


@dataclasses.dataclass(kw_only=True, eq=False)
class AddSums(beam.PTransform):
    """Adds up the sums of blocks and stores them for `read_sums`.

    Input are the pairs of `ClusterSums.by_range`, output is one number, when all sums are stored. `name` differs
    between the steps of a pipeline that store sums.
    """

    plan: beam.PCollection[ClusterPlan]  # one
    name: str

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, sums: beam.PCollection[tuple[int, ClusterSums]]) -> beam.PCollection[int]:
        """Brings the sums of each range of clusters together."""
        return (
            sums
            | "Add" >> beam.CombinePerKey(MergeFn(add_sums))
            | "Store" >> beam.Map(_store_sums, beam.pvalue.AsSingleton(self.plan), self.name)
            | "Count" >> beam.combiners.Count.Globally()
        )


def _store_sums(item: tuple[int, ClusterSums], plan: ClusterPlan, name: str) -> int:
    first, sums = item
    store_arrays(_sums_path(plan, name, first), {"vectors": sums.vectors, "sizes": sums.sizes})
    return first


def _sums_path(plan: ClusterPlan, name: str, first: int) -> str:
    return f"{plan.work}/sums-{name}-{first:06d}.npz"


def read_sums(plan: ClusterPlan, name: str, k: int) -> ClusterSums:
    """The sums of k clusters that `AddSums` stored; zeros for a corpus without rows."""
    dim = plan.corpus.dim
    if not plan.corpus.rows:
        return ClusterSums(np.zeros((k, dim), np.int64), np.zeros(k, np.int64))
    stored = [need_arrays(_sums_path(plan, name, clusters.start)) for clusters in _divide_clusters(k, dim)]
    vectors = [np.empty((0, dim), np.int64), *(each["vectors"] for each in stored)]
    return ClusterSums(
        np.concatenate(vectors), np.concatenate([np.empty(0, np.int64), *(each["sizes"] for each in stored)])
    )


def sum_block(number: int, plan: ClusterPlan, fields: ClusteringFields) -> Iterator[tuple[int, ClusterSums]]:
    """The sums of the vectors of each cluster in a block, by its stored labels, in ranges of clusters."""
    labels = read_labels(plan, number).labels
    vectors, _ = read_vectors(plan.corpus, plan.corpus.blocks[number])
    is_inside = labels != NOISE
    return ClusterSums.of(vectors[is_inside], labels[is_inside], fields.clusters or 0).by_range()


def store_centers(plan: ClusterPlan, n_summed: int, fields: ClusteringFields, name: str) -> int:
    """Stores the directions of the sums; existing clusters keep their centres. Returns the number of clusters."""
    sums = read_sums(plan, name, fields.clusters or 0)
    vectors = read_existing_arrays(plan)["centers"] if fields.existing else unit_rows(sums.to_float())[0]
    store_arrays(f"{plan.work}/centers.npz", {"vectors": vectors, "sizes": sums.sizes})
    return len(vectors)


def read_centers(plan: ClusterPlan) -> Centers:
    """The centres of all clusters."""
    return Centers(**need_arrays(f"{plan.work}/centers.npz"))


def store_existing_arrays(plan: ClusterPlan, centers: np.ndarray, radii: np.ndarray) -> None:
    """Stores the centres (k, dim) and radii (k,) of clusters of an earlier run for the steps of this one."""
    store_arrays(f"{plan.work}/existing.npz", {"centers": centers, "radii": radii})


def read_existing_arrays(plan: ClusterPlan) -> dict[str, np.ndarray]:
    """The centres and radii of existing clusters."""
    return need_arrays(f"{plan.work}/existing.npz")
