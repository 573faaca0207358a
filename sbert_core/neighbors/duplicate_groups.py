"""Groups of rows that are nearly the same, and which row of each to keep.

Rows are known by their place (0 to n - 1) among the rows of all near pairs. `order` (n,) is the order in which rows
may be kept, as places: the first one is preferred to all others.
"""

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from sbert_core.neighbors.pairs import Pairs


def places_of(pairs: Pairs) -> tuple[np.ndarray, Pairs]:
    """The rows (n,) of all pairs, sorted by rank, and the pairs by place among these rows."""
    rows, places = np.unique(np.concatenate([pairs.first, pairs.second]), return_inverse=True)
    first, second = np.split(places, 2)
    return rows, Pairs(first, second, pairs.scores)


def keep_order(values: np.ndarray) -> np.ndarray:
    """Places (n,) by descending value; of equal values the lower place comes first."""
    return np.argsort(-values, kind="stable")


def choose_kept(pairs: Pairs, order: np.ndarray) -> np.ndarray:
    """Marks the rows (n,) to keep: in the given order, each row that has no pair with a row that is kept already.

    No two kept rows are a pair, and every other row is in a pair with a kept one. A pair may be given more than once.
    """
    n = len(order)
    ends = np.concatenate([pairs.first, pairs.second]), np.concatenate([pairs.second, pairs.first])
    graph = sparse.csr_array((np.ones(2 * len(pairs), np.int8), ends), shape=(n, n))
    starts, neighbors = graph.indptr.tolist(), graph.indices
    kept, taken = np.zeros(n, bool), np.zeros(n, bool)
    for row in order.tolist():  # each row once and each pair at most once, whatever the shape of the graph
        if not taken[row]:
            kept[row] = True
            taken[neighbors[starts[row] : starts[row + 1]]] = True
    return kept


def join_to_kept(pairs: Pairs, order: np.ndarray, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The kept row (n,) of each row and the cosine (n,) to it: the highest, of equal ones that of the first in order.

    A kept row is its own, with cosine 1. `kept` is that of `choose_kept`: every row has a kept one.
    """
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    own, scores = np.arange(len(order)), np.ones(len(order), np.float32)
    rows = np.concatenate([pairs.first, pairs.second])
    others = np.concatenate([pairs.second, pairs.first])
    cosines = np.concatenate([pairs.scores, pairs.scores])
    links = np.flatnonzero(kept[others])
    rows, others, cosines = rows[links], others[links], cosines[links]
    ranked = np.lexsort((position[others], -cosines, rows))
    best = ranked[np.unique(rows[ranked], return_index=True)[1]]
    own[rows[best]], scores[rows[best]] = others[best], cosines[best]
    return own, scores


def join_chains(pairs: Pairs, order: np.ndarray) -> np.ndarray:
    """The kept row (n,) of each row if all rows that a chain of pairs connects are one group: its first in order."""
    n = len(order)
    graph = sparse.coo_array((np.ones(len(pairs), np.int8), (pairs.first, pairs.second)), shape=(n, n))
    _, labels = connected_components(graph, directed=False)
    firsts = order[np.unique(labels[order], return_index=True)[1]]
    return firsts[labels]


def number_groups(own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The number (n,) of each row's group and its size (n,), from the kept row (n,) of each.

    Groups are numbered by size, the largest first, equal ones by their lowest row.
    """
    _, lowest, labels, sizes = np.unique(own, return_index=True, return_inverse=True, return_counts=True)
    numbers = np.empty(len(sizes), np.int64)
    numbers[np.lexsort((lowest, -sizes))] = np.arange(len(sizes))
    return numbers[labels], sizes[labels]
