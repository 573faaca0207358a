"""Spherical k-means: clusters around directions, when their number is known or can be guessed."""

import math

import numpy as np
from threadpoolctl import threadpool_limits

from sbert_core.cosine import unit_rows
from sbert_core.errors import DataError

AUTO_SAMPLE = 5000


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
    sums = np.zeros((k, vectors.shape[1]))
    np.add.at(sums, labels, vectors)
    return sums, np.bincount(labels, minlength=k)


def move_centers(centers: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Centres at the directions of the sums; an empty cluster stays where it was."""
    moved, some = unit_rows(sums)
    return np.where(some[:, None], moved, centers)


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
