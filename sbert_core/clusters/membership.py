"""How strongly rows belong to their clusters, and how clusters relate to each other."""

import numpy as np

from sbert_core.clusters.graph import NeighborGraph
from sbert_core.clusters.noise import NOISE


def strength_in_graph(graph: NeighborGraph, labels: np.ndarray) -> np.ndarray:
    """The share (n,) of each row's neighbours, weighted by cosine, that are in its cluster; 0 for noise."""
    weights = np.where(graph.indices >= 0, np.maximum(np.nan_to_num(graph.scores), 0), 0)
    shares = share_in_cluster(weights, labels[np.maximum(graph.indices, 0)] == labels[:, None])
    return np.where(labels == NOISE, 0, shares).astype(np.float32)


def share_in_cluster(weights: np.ndarray, is_same: np.ndarray) -> np.ndarray:
    """The share (n,) of the weights (n, k) of neighbours that are in a row's cluster (n, k); 1 without neighbours."""
    total = weights.sum(axis=1)
    return np.divide((weights * is_same).sum(axis=1), total, out=np.ones(len(weights)), where=total > 0)


def strength_by_centers(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """How much nearer (n,) each row is to its own centre than to the next one: 0 if not at all, 1 on its centre.

    `scores` (n, clusters) are the cosines to all centres.
    """
    rows = np.arange(len(labels))
    own = scores[rows, np.maximum(labels, 0)]
    if scores.shape[1] < 2:
        return np.where(labels == NOISE, 0, np.clip(own, 0, 1)).astype(np.float32)
    others = scores.copy()
    others[rows, np.maximum(labels, 0)] = -np.inf
    other_distance = 1 - others.max(axis=1)
    ratio = np.divide(1 - own, other_distance, out=np.zeros_like(own), where=other_distance > 0)
    return np.where(labels == NOISE, 0, np.clip(1 - ratio, 0, 1)).astype(np.float32)


def nearest_centers(centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each unit centre (k, dim) the number (k,) of the nearest other one, -1 if there is none, and its cosine."""
    if len(centers) < 2:
        return np.full(len(centers), NOISE), np.full(len(centers), np.nan)
    scores = centers @ centers.T
    np.fill_diagonal(scores, -np.inf)
    nearest = scores.argmax(axis=1)
    return nearest, scores[np.arange(len(centers)), nearest]


def link_centers(centers: np.ndarray) -> list[list[float]]:
    """The hierarchy of clusters: for each join the two that are joined, their cosine distance, and the new size.

    As of scipy's `linkage` (average): the joins are numbered after the clusters.
    """
    from scipy.cluster.hierarchy import linkage

    if len(centers) < 2:
        return []
    return [
        [int(a), int(b), float(distance), int(size)] for a, b, distance, size in linkage(centers, "average", "cosine")
    ]
