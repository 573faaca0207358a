"""Spherical k-means: clusters around directions, when their number is known or can be guessed."""

import math

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from sbert_core.errors import DataError
from sbert_core.neighbors.cosine import unit_rows

AUTO_SAMPLE = 5000
BLOCK_ROWS = 8192  # whose cosines to all centres are in memory at once


def start_centers(sample: np.ndarray, k: int, seed: int = 0) -> np.ndarray:
    """Centres (k, dim) learned on a sample of unit vectors, from the best of three k-means++ starts."""
    from sklearn.cluster import KMeans  # takes a second

    if k < 1:
        raise DataError(f"k must be at least 1, got {k}")
    distinct = len(np.unique(sample, axis=0))
    if k > distinct:
        raise DataError(f"k is {k}, but there are only {distinct} different vectors: ask for fewer clusters")
    with threadpool_limits(1):  # with several threads the order of sums changes the outcome
        model = KMeans(k, n_init=3, random_state=seed, max_iter=100).fit(sample)
    return unit_rows(model.cluster_centers_)[0]


def assign(vectors: np.ndarray, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The nearest centre (n,) of each unit vector, and its cosine (n,)."""
    scores = vectors @ centers.T
    labels = scores.argmax(axis=1)
    return labels, scores[np.arange(len(labels)), labels]


def add_up(vectors: np.ndarray, labels: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The sums (k, dim) of the vectors of each cluster in float64, and their counts (k,): what workers combine."""
    members = sparse.csr_array((np.ones(len(labels)), (labels, np.arange(len(labels)))), shape=(k, len(labels)))
    return members @ vectors, np.bincount(labels, minlength=k)


def move_centers(centers: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Centres at the directions of the sums; an empty cluster stays where it was."""
    moved, some = unit_rows(sums)
    return np.where(some[:, None], moved, centers)


def nearest(vectors: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """The nearest centre (n,) of each of many unit vectors."""
    starts = range(0, len(vectors), BLOCK_ROWS)
    parts = [assign(vectors[start : start + BLOCK_ROWS], centers)[0] for start in starts]
    return np.concatenate([np.empty(0, np.int64), *parts])


def settle(vectors: np.ndarray, labels: np.ndarray, rounds: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """Labels (n,) and centres (k, dim) after rounds of spherical k-means from the centres of given clusters.

    It ends when no row moves any more, or after `rounds`. Rows on the border of a cluster go where they are nearest,
    clusters that lose all their rows are gone; a row without a direction keeps its label.
    """
    some = vectors.any(axis=1)
    for _ in range(rounds):
        labels = np.unique(labels, return_inverse=True)[1]
        moved = np.where(some, nearest(vectors, _directions(vectors, labels)), labels)
        if np.array_equal(moved, labels):
            break
        labels = moved
    labels = np.unique(labels, return_inverse=True)[1]
    return labels, _directions(vectors, labels)


def _directions(vectors: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The centre of each cluster."""
    sums = np.zeros((labels.max(initial=-1) + 1, vectors.shape[1]))
    for start in range(0, len(vectors), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        sums += add_up(vectors[block], labels[block], len(sums))[0]
    return unit_rows(sums)[0].astype(np.float32)


def choose_k(sample: np.ndarray, largest: int = 200) -> int:
    """The number of clusters with the best silhouette on a sample, among numbers about a fifth apart."""
    from sklearn.metrics import silhouette_score

    sample = sample[:AUTO_SAMPLE]
    largest = min(largest, len(np.unique(sample, axis=0)) - 1, len(sample) // 2)
    if largest < 2:
        return 1
    steps = math.ceil(math.log(largest / 2) / math.log(1.2))
    candidates = sorted({min(largest, round(2 * 1.2**step)) for step in range(steps + 1)})
    scores = {k: silhouette_score(sample, assign(sample, start_centers(sample, k))[0]) for k in candidates}
    return max(scores, key=lambda k: (scores[k], -k))
