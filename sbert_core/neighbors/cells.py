"""Cells: regions of the vector space, so that a row is compared only with rows in the same regions."""

import math
import warnings

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from sbert_core.neighbors.cosine import unit_rows

SAMPLE_ROWS_PER_CELL = 20
MAX_SAMPLE_ROWS = 65_536
KMEANS_ROUNDS = 5
ROUTED_ROWS = 4096  # rows whose cells are computed at once


def default_cells(n_rows: int) -> int:
    """The number of cells for a corpus, with which comparing inside cells and finding them cost about the same."""
    return max(1, round(2 * math.sqrt(n_rows)))


def learn_cells(sample: np.ndarray, n_cells: int, max_share: float) -> np.ndarray:
    """The centres (m, dim) of cells, learned from a sample of unit vectors (n, dim).

    A cell with more than `max_share` of the sample is split, so m may be greater than `n_cells`. It is smaller if the
    sample has too few distinct vectors, and 0 if it is empty.
    """
    if not len(sample):
        return sample
    centers = _learn_centers(sample, n_cells)
    cell_of_row = nearest_cells(sample, centers, 1)[:, 0]
    sizes = np.bincount(cell_of_row, minlength=len(centers))
    oversized = np.flatnonzero(sizes > max(max_share * len(sample), 2))
    parts = [np.delete(centers, oversized, axis=0)]
    for cell in oversized:
        n_parts = math.ceil(sizes[cell] / (max_share * len(sample)))
        parts.append(_learn_centers(sample[cell_of_row == cell], n_parts))
    return np.concatenate(parts)


def _learn_centers(sample: np.ndarray, n_cells: int) -> np.ndarray:
    if len(sample) <= 2 * n_cells:  # there may be too few distinct vectors
        sample = np.unique(sample, axis=0)
    if len(sample) <= n_cells:
        return sample
    from sklearn.cluster import KMeans  # importing it takes a second, and few workers learn cells
    from sklearn.exceptions import ConvergenceWarning

    # One thread: with several, the order of additions changes the result.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        kmeans = KMeans(n_cells, init="random", n_init=1, max_iter=KMEANS_ROUNDS, random_state=0).fit(sample)
    return unit_rows(kmeans.cluster_centers_)[0]


def nearest_cells(vectors: np.ndarray, centers: np.ndarray, count: int) -> np.ndarray:
    """The numbers (n, count) of the cells nearest to each of the vectors (n, dim), nearest first.

    Fewer columns if there are fewer cells.
    """
    count = min(count, len(centers))
    rows, columns = torch.from_numpy(vectors), torch.from_numpy(centers).T
    nearest = [torch.topk(part @ columns, count, dim=1).indices for part in rows.split(ROUTED_ROWS)]
    return torch.cat(nearest).numpy()
