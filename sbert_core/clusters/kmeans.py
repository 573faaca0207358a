"""Spherical k-means: clusters around directions, when their number is given or can be chosen."""

import math

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from sbert_core.errors import DataError
from sbert_core.neighbors.cosine import unit_rows

CHOICE_ROWS = 5000  # rows that the number of clusters is chosen on
BLOCK_ROWS = 8192  # rows whose cosines to all centres are in memory at once


def learn_centers(sample: np.ndarray, k: int, seed: int = 0) -> np.ndarray:
    """Centres (k, dim) learned on a sample of unit vectors (n, dim), from the best of three k-means++ starts."""
    from sklearn.cluster import KMeans  # takes a second to import

    if k < 1:
        raise DataError(f"k must be at least 1, got {k}")
    distinct = len(np.unique(sample, axis=0))
    if k > distinct:
        raise DataError(f"k is {k}, but there are only {distinct} different vectors: ask for fewer clusters")
    with threadpool_limits(1):  # with several threads the order of sums changes the result
        model = KMeans(k, n_init=3, random_state=seed, max_iter=100).fit(sample)
    return unit_rows(model.cluster_centers_)[0]


def assign(vectors: np.ndarray, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The number (n,) of the nearest centre of each unit vector (n, dim), and its cosine (n,)."""
    scores = vectors @ centers.T
    labels = scores.argmax(axis=1)
    return labels, scores[np.arange(len(labels)), labels]


def assign_in_blocks(vectors: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """The number (n,) of the nearest centre of each unit vector, with the cosines of one block in memory at a time."""
    starts = range(0, len(vectors), BLOCK_ROWS)
    parts = [assign(vectors[start : start + BLOCK_ROWS], centers)[0] for start in starts]
    return np.concatenate([np.empty(0, np.int64), *parts])


def sum_by_cluster(vectors: np.ndarray, labels: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The sums (k, dim) of the vectors of each cluster in float64, and the sizes (k,): what workers combine."""
    members = sparse.csr_array((np.ones(len(labels)), (labels, np.arange(len(labels)))), shape=(k, len(labels)))
    return members @ vectors, np.bincount(labels, minlength=k)


def move_centers(centers: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Centres (k, dim) in the directions of the sums (k, dim); the centre of an empty cluster stays."""
    moved, has_direction = unit_rows(sums)
    return np.where(has_direction[:, None], moved, centers)


def refine(vectors: np.ndarray, labels: np.ndarray, max_rounds: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """Labels (n,) and centres (k, dim) after rounds of spherical k-means, started from given clusters.

    Ends when no row changes its cluster, or after `max_rounds`. Clusters that lose all their rows are removed. A row
    of zeros keeps its label.
    """
    has_direction = vectors.any(axis=1)
    for _ in range(max_rounds):
        labels = np.unique(labels, return_inverse=True)[1]
        moved = np.where(has_direction, assign_in_blocks(vectors, _centers_of(vectors, labels)), labels)
        if np.array_equal(moved, labels):
            break
        labels = moved
    labels = np.unique(labels, return_inverse=True)[1]
    return labels, _centers_of(vectors, labels)


def _centers_of(vectors: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The centre (k, dim) of each cluster."""
    sums = np.zeros((labels.max(initial=-1) + 1, vectors.shape[1]))
    for start in range(0, len(vectors), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        sums += sum_by_cluster(vectors[block], labels[block], len(sums))[0]
    return unit_rows(sums)[0].astype(np.float32)


def choose_k(vectors: np.ndarray, max_k: int = 200) -> int:
    """The number of clusters with the best silhouette on the first vectors, among numbers about 20 % apart."""
    from sklearn.metrics import silhouette_score

    sample = vectors[:CHOICE_ROWS]
    max_k = min(max_k, len(np.unique(sample, axis=0)) - 1, len(sample) // 2)
    if max_k < 2:
        return 1
    steps = math.ceil(math.log(max_k / 2) / math.log(1.2))
    candidates = sorted({min(max_k, round(2 * 1.2**step)) for step in range(steps + 1)})
    scores = {k: silhouette_score(sample, assign(sample, learn_centers(sample, k))[0]) for k in candidates}
    return max(scores, key=lambda k: (scores[k], -k))
