"""Groups of near-identical rows, and which row of each group to keep.

Rows are numbered 0 to n - 1 among the rows of all near pairs; see `index_pairs`. `order` (n,) lists these numbers in
the order in which rows may be kept: the first is preferred to all others.
"""

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from sbert_core.neighbors.pairs import Pairs


def index_pairs(pairs: Pairs) -> tuple[np.ndarray, Pairs]:
    """The ordinals (n,) of all rows in pairs, ascending, and the pairs by the rows' numbers in this array."""
    ordinals, numbers = np.unique(np.concatenate([pairs.first, pairs.second]), return_inverse=True)
    first, second = np.split(numbers, 2)
    return ordinals, Pairs(first, second, pairs.scores)


def keep_order(values: np.ndarray) -> np.ndarray:
    """The numbers (n,) of rows by descending value; of equal values the lower number comes first."""
    return np.argsort(-values, kind="stable")


def choose_kept(pairs: Pairs, order: np.ndarray) -> np.ndarray:
    """Which rows (n,) to keep: in the given order, each row that has no pair with a row kept before it.

    No two kept rows are a pair, and every other row is in a pair with a kept row. Repeated pairs have no effect.
    """
    n_rows = len(order)
    ends = np.concatenate([pairs.first, pairs.second]), np.concatenate([pairs.second, pairs.first])
    graph = sparse.csr_array((np.ones(2 * len(pairs), np.int8), ends), shape=(n_rows, n_rows))
    starts, neighbors = graph.indptr.tolist(), graph.indices
    is_kept, is_near_kept = np.zeros(n_rows, bool), np.zeros(n_rows, bool)
    for row in order.tolist():  # visits each row once and each pair at most once
        if not is_near_kept[row]:
            is_kept[row] = True
            is_near_kept[neighbors[starts[row] : starts[row + 1]]] = True
    return is_kept


def assign_to_kept(pairs: Pairs, order: np.ndarray, is_kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The kept row (n,) of each row, and the cosine (n,) to it.

    That is the kept row with the highest cosine, of equal cosines the first in order. A kept row is its own, with
    cosine 1. `is_kept` is the result of `choose_kept`, so every row has a kept row.
    """
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    kept_rows, scores = np.arange(len(order)), np.ones(len(order), np.float32)
    rows = np.concatenate([pairs.first, pairs.second])
    others = np.concatenate([pairs.second, pairs.first])
    cosines = np.concatenate([pairs.scores, pairs.scores])
    to_kept = np.flatnonzero(is_kept[others])
    rows, others, cosines = rows[to_kept], others[to_kept], cosines[to_kept]
    best_first = np.lexsort((position[others], -cosines, rows))
    best = best_first[np.unique(rows[best_first], return_index=True)[1]]
    kept_rows[rows[best]], scores[rows[best]] = others[best], cosines[best]
    return kept_rows, scores


def assign_by_chains(pairs: Pairs, order: np.ndarray) -> np.ndarray:
    """The kept row (n,) of each row if all rows that a chain of pairs connects are one group: its first in order."""
    n_rows = len(order)
    graph = sparse.coo_array((np.ones(len(pairs), np.int8), (pairs.first, pairs.second)), shape=(n_rows, n_rows))
    _, components = connected_components(graph, directed=False)
    first_rows = order[np.unique(components[order], return_index=True)[1]]
    return first_rows[components]
