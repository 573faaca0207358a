"""The default clustering in two levels, for a corpus that is too large for one worker.

Leiden finds communities of micro-clusters instead of rows. Then rows move to the nearest centre, among vectors that are
smoothed by their neighbours' micro-clusters. The centres are learned on a sample of the rows.
"""

import dataclasses

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from sbert_core.clusters.graph import find_graph
from sbert_core.clusters.graph_clustering import SMOOTHING_STEPS
from sbert_core.clusters.kmeans import refine, sum_by_cluster
from sbert_core.clusters.leiden import find_leiden
from sbert_core.clusters.micro_clusters import smooth_rows
from sbert_core.clusters.resolution import MAX_ROWS, choose_resolution
from sbert_core.sampling import is_sampled

FLAT_BYTES = 2**30  # more than this on one worker, and a corpus is clustered in two levels
GRAPH_BYTES_PER_NEIGHBOR = 80  # the lists, the symmetric matrix and its copies; 4.9 GiB at a million rows of 256 and 32


def flat_bytes(rows: int, dim: int, k: int) -> int:
    """About how much memory the default clustering on one worker takes: vectors, smoothed vectors, and the graph."""
    return rows * (2 * 4 * dim + GRAPH_BYTES_PER_NEIGHBOR * k)


def choose_levels(rows: int, dim: int, k: int) -> int:
    """The number of levels, 1 or 2, for a corpus with k neighbours per row; it depends on nothing else."""
    return 1 if flat_bytes(rows, dim, k) <= FLAT_BYTES else 2


@dataclasses.dataclass(frozen=True, eq=False)
class LinkedSample:
    """Sampled rows in the order of ordinals, and what links them to micro-clusters."""

    ordinals: np.ndarray  # (n,) uint32
    vectors: np.ndarray  # (n, dim), of unit length
    micro_labels: np.ndarray  # (n,)
    weights: np.ndarray  # (n, k), cosines of the neighbours, 0 for none
    micro_neighbors: np.ndarray  # (n, k), micro-clusters of the neighbours


@dataclasses.dataclass(frozen=True, eq=False)
class SmoothCenters:
    """Centres (k, dim) of clusters among smoothed vectors, and the means of micro-clusters that smooth them."""

    resolution: float
    centers: np.ndarray
    means: list[np.ndarray]  # (micro-clusters, dim), one for each step of the smoothing


def resolution_of_sample(sample: LinkedSample, n_rows: int, k: int, seed: int) -> float:
    """The resolution that `choose_resolution` chooses for a corpus of `n_rows` rows, from a sample that holds its own.

    The rows that it compares are sampled by the same hash, so they are in every larger sample.
    """
    vectors = sample.vectors[is_sampled(sample.ordinals, n_rows, MAX_ROWS)]
    with threadpool_limits(1):  # with several threads the order of sums changes the result
        return choose_resolution(find_graph(vectors, min(k, max(len(vectors) - 1, 1))), vectors, seed)


def learn_clusters(
    sample: LinkedSample, micro_graph: sparse.csr_array, micro_centers: np.ndarray, resolution: float, seed: int
) -> SmoothCenters:
    """The clusters of a corpus, from the weights (m, m) between all its micro-clusters and a sample of its rows."""
    with threadpool_limits(1):
        communities = find_leiden(micro_graph, resolution, seed)
        smooth, means = sample.vectors, []
        for _ in range(SMOOTHING_STEPS):
            sums, sizes = sum_by_cluster(smooth, sample.micro_labels, len(micro_centers))
            mean = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], micro_centers)
            means.append(mean.astype(np.float32))
            smooth = smooth_rows(smooth, sample.weights, sample.micro_neighbors, means[-1:])
        _, centers = refine(smooth, communities[sample.micro_labels])
    return SmoothCenters(resolution, centers, means)
