"""Cells: where in the space of vectors a row is, so that it need not be compared with all others."""

import math
import warnings

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from sbert_core.neighbors.cosine import unit_rows

SAMPLE_PER_CELL = 20
MAX_SAMPLE = 65_536


def cells_for(rows: int) -> int:
    """How many cells a corpus should have: comparing inside them and finding them then cost about the same."""
    return max(1, round(2 * math.sqrt(rows)))


def sample_of(ranks: np.ndarray, rows: int, wanted: int, seed: int = 0) -> np.ndarray:
    """Which of these rows (n,) belong to a sample of about `wanted` of all `rows`: by rank alone, as good as random."""
    mixed = (ranks.astype(np.uint64) + np.uint64(seed)) * np.uint64(0x9E3779B97F4A7C15)  # wraps around
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return mixed >> np.uint64(32) < np.uint64(min(wanted / max(rows, 1), 1) * 2**32)


def learn_cells(sample: np.ndarray, cells: int, max_share: float) -> np.ndarray:
    """The centres (m, dim) of cells, learned on a sample of unit vectors (n, dim).

    A cell with more than `max_share` of the sample is split, so there may be more of them than asked for.
    """
    centers = _centers(sample, cells)
    home = nearest_cells(sample, centers, 1)[:, 0]
    counts = np.bincount(home, minlength=len(centers))
    crowded = np.flatnonzero(counts > max(max_share * len(sample), 2))
    parts = [np.delete(centers, crowded, axis=0)]
    for cell in crowded:
        parts.append(_centers(sample[home == cell], math.ceil(counts[cell] / (max_share * len(sample)))))
    return np.concatenate(parts)


def _centers(sample: np.ndarray, cells: int) -> np.ndarray:
    if len(sample) <= 2 * cells:  # there may be too few different vectors
        sample = np.unique(sample, axis=0)
    if len(sample) <= cells:
        return sample
    from sklearn.cluster import KMeans  # takes a second, and few workers learn
    from sklearn.exceptions import ConvergenceWarning

    # One thread: with several, the order of their sums changes the outcome.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        means = KMeans(cells, init="random", n_init=1, max_iter=5, random_state=0).fit(sample)
    return unit_rows(means.cluster_centers_)[0]


def nearest_cells(vectors: np.ndarray, centers: np.ndarray, count: int) -> np.ndarray:
    """The numbers (n, count) of the cells nearest to each row, the nearest first."""
    count = min(count, len(centers))
    rows, columns = torch.from_numpy(vectors), torch.from_numpy(centers).T
    found = [torch.topk(part @ columns, count, dim=1).indices for part in rows.split(4096)]
    return torch.cat(found).numpy()


def recall_interval(found: int, total: int) -> tuple[float, float]:
    """The 95 % interval (Wilson) of a recall of which `found` of `total` were seen."""
    if not total:
        return 0.0, 1.0
    z, share = 1.96, found / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    reach = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return max(0.0, middle - reach), min(1.0, middle + reach)
