"""The default clustering: Leiden communities of the neighbour graph, refined by vectors."""

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from sbert_core.clusters.graph import NeighborGraph
from sbert_core.clusters.kmeans import BLOCK_ROWS, refine
from sbert_core.clusters.leiden import find_leiden
from sbert_core.clusters.resolution import choose_resolution
from sbert_core.neighbors.cosine import unit_rows

SMOOTHING_STEPS = 3
SMOOTHED_DIMS = 32  # dimensions that are smoothed at once, to bound the memory


def cluster_graph(
    graph: NeighborGraph, vectors: np.ndarray, resolution: float | None = None, seed: int = 0
) -> tuple[float, np.ndarray]:
    """The resolution, chosen if it is None, and labels (n,): Leiden communities, refined among smoothed vectors.

    Leiden sees only edges, and assigns rows on a border at random. The same graph and unit vectors (n, dim) give the
    same labels.
    """
    with threadpool_limits(1):  # with several threads the order of sums changes the result
        chosen = choose_resolution(graph, vectors, seed) if resolution is None else resolution
        labels = find_leiden(graph.adjacency(), chosen, seed)
        return chosen, refine(smooth_vectors(graph, vectors), labels)[0]


def smooth_vectors(graph: NeighborGraph, vectors: np.ndarray, steps: int = SMOOTHING_STEPS) -> np.ndarray:
    """Unit vectors (n, dim), moved `steps` times half way to the weighted mean of their neighbours. Not in place.

    This reduces what is particular to a row and keeps what it shares with its neighbours.
    """
    matrix = sparse.csr_array(graph.adjacency(), dtype=np.float32)
    totals = matrix.sum(axis=1)
    weights = sparse.dia_array((1 / np.where(totals > 0, totals, 1)[None], 0), shape=matrix.shape).tocsr() @ matrix
    smooth = vectors.astype(np.float32)  # the only copy: each dimension is smoothed on its own
    for _ in range(steps):
        for start in range(0, smooth.shape[1], SMOOTHED_DIMS):
            dims = slice(start, start + SMOOTHED_DIMS)
            before = np.ascontiguousarray(smooth[:, dims])
            smooth[:, dims] = before + weights @ before
        for start in range(0, len(smooth), BLOCK_ROWS):
            smooth[start : start + BLOCK_ROWS] = unit_rows(smooth[start : start + BLOCK_ROWS])[0]
    return smooth
