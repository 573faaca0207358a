"""Centres of clusters from sums that workers combine.

Vectors and cosines are summed in fixed point: the sum is exact, so the order in which workers add has no effect.
"""

import dataclasses

import numpy as np

from sbert_core.clusters.kmeans import sum_by_cluster
from sbert_core.clusters.noise import NOISE
from sbert_core.neighbors.cosine import unit_rows
from transforms.clusters.cluster_plan import ClusterPlan, read_labels
from transforms.clusters.existing_clusters import ExistingClusters
from transforms.dataset.corpus import read_vectors

FIXED_POINT_SCALE = 2.0**28  # units per 1.0; sums of up to 2**35 rows fit into int64
OUTSIDE_SHARE = 0.01  # of a cluster's rows that are outside its radius


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

    def to_float(self) -> np.ndarray:
        """The sums (k, dim) as floats."""
        return self.vectors / FIXED_POINT_SCALE


def add_sums(first: ClusterSums, second: ClusterSums) -> ClusterSums:
    """The sums of two sets of rows together."""
    return ClusterSums(first.vectors + second.vectors, first.sizes + second.sizes)


def sum_block(number: int, plan: ClusterPlan, n_clusters: int) -> ClusterSums:
    """The sums of the vectors of each cluster in a block, by its stored labels."""
    labels = read_labels(plan, number).labels
    vectors, _ = read_vectors(plan.corpus, plan.corpus.blocks[number])
    is_inside = labels != NOISE
    return ClusterSums.of(vectors[is_inside], labels[is_inside], n_clusters)


def centers_of(sums: ClusterSums | None, plan: ClusterPlan, existing: ExistingClusters | None) -> Centers:
    """The directions of the sums, None if the corpus is empty; existing clusters keep their centres."""
    if existing is not None:
        return Centers(existing.centers, np.zeros(len(existing.named), np.int64) if sums is None else sums.sizes)
    if sums is None:
        return Centers(np.empty((0, plan.corpus.dim), np.float32), np.empty(0, np.int64))
    return Centers(unit_rows(sums.to_float())[0], sums.sizes)
