"""Groups of rows that are nearly the same, and which row of each to keep."""

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from sbert_core.pairs import Pairs


def group_rows(pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
    """The rows (n,) of all pairs, sorted by rank, and the group (n,) of each: rows that pairs connect.

    Groups are numbered by size, the largest first, equal ones by their lowest rank.
    """
    rows, places = np.unique(np.concatenate([pairs.first, pairs.second]), return_inverse=True)
    if not len(rows):
        return rows, np.empty(0, np.int64)
    first, second = np.split(places, 2)
    graph = sparse.coo_array((np.ones(len(first), np.int8), (first, second)), shape=(len(rows), len(rows)))
    _, labels = connected_components(graph, directed=False)
    _, lowest, labels, sizes = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    numbers = np.empty(len(sizes), np.int64)
    numbers[np.lexsort((lowest, -sizes))] = np.arange(len(sizes))
    return rows, numbers[labels]


def best_scores(pairs: Pairs, rows: np.ndarray) -> np.ndarray:
    """The best score (n,) of each row (n,) in any of its pairs."""
    scores = np.full(len(rows), -np.inf, np.float32)
    for side in (pairs.first, pairs.second):
        np.maximum.at(scores, np.searchsorted(rows, side), pairs.scores)
    return scores


def choose_kept(groups: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Marks in each group (n,) the row with the greatest value (n,), of equal ones the first."""
    order = np.lexsort((-values, groups))  # stable: equal values stay in their order
    firsts = order[np.append(True, groups[order][1:] != groups[order][:-1])] if len(order) else order
    kept = np.zeros(len(groups), bool)
    kept[firsts] = True
    return kept
