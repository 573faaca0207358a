"""Clusters of the neighbour graph: Leiden communities, sentence-transformers' communities, connected components."""

import ctypes

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from sbert_core.errors import DataError
from sbert_core.graph import NeighborGraph

NOISE = -1
RESOLUTIONS = (0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 11.0, 16.0, 22.0)
SAMPLE = 3000  # rows that a resolution is chosen on
_PRICE = 0.01  # of an e-fold more clusters, in silhouette
_NEARLY = 0.8  # of the best score is good enough, if it tells more apart


def number_by_size(labels: np.ndarray) -> np.ndarray:
    """Numbers clusters from 0, the largest first, equal ones by their first row; noise stays -1."""
    names, first, inverse, sizes = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    order = np.lexsort((first, -sizes))
    order = order[names[order] != NOISE]
    numbers = np.full(len(names), NOISE, np.int64)
    numbers[order] = np.arange(len(order))
    return numbers[inverse]


def find_components(graph: NeighborGraph, min_score: float, min_size: int = 2) -> np.ndarray:
    """Labels (n,) of rows that chains of cosines of at least `min_score` connect; smaller groups are noise."""
    low, high, _ = graph.edges(min_score)
    matrix = sparse.coo_array((np.ones(len(low), np.int8), (low, high)), shape=(len(graph), len(graph)))
    _, labels = connected_components(matrix, directed=False)
    return drop_small(labels, min_size)


def drop_small(labels: np.ndarray, min_size: int) -> np.ndarray:
    """Labels by size, with clusters of fewer rows made noise."""
    if not len(labels):
        return labels.astype(np.int64)
    _, inverse, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    return number_by_size(np.where(sizes[inverse] < min_size, NOISE, labels))


def find_communities(graph: NeighborGraph, min_score: float = 0.75, min_size: int = 10) -> np.ndarray:
    """Labels (n,) with the meaning of sentence-transformers' `community_detection`.

    A row and its neighbours of at least `min_score` are a community if they are at least `min_size`; large ones come
    first, a row is in the first one that has it, and then no longer the middle of its own. The graph must hold all
    such neighbours.
    """
    saturated = graph.saturated(min_score)
    if saturated:
        raise DataError(
            f"{saturated} rows have {graph.k} neighbours over {min_score} and may have more: communities need all of "
            "them. Mine with a larger --top_k, or ask for a higher --min_score"
        )
    sizes = ((graph.indices >= 0) & (graph.scores >= min_score)).sum(axis=1) + 1  # a row is its own neighbour
    labels = np.full(len(graph), NOISE, np.int64)
    found = 0
    for row in np.argsort(-sizes, kind="stable"):
        if sizes[row] < min_size:
            break
        if labels[row] != NOISE:
            continue
        members = np.append(row, graph.indices[row, : sizes[row] - 1])
        members = members[labels[members] == NOISE]
        if len(members) >= min_size:
            labels[members] = found
            found += 1
    return number_by_size(labels)


def find_leiden(graph: NeighborGraph, resolution: float = 1.0, seed: int = 0) -> np.ndarray:
    """Labels (n,) of Leiden communities of the graph, weighted by cosine; a higher resolution gives more of them."""
    from sknetwork.clustering import Leiden  # takes a second

    matrix = graph.adjacency()
    if not matrix.nnz:
        return np.arange(len(graph))
    # Its refinement draws from the C library, whatever the random state: seeded, the same graph gives the same labels.
    ctypes.CDLL(None).srand(seed + 1)
    return Leiden(resolution, random_state=seed, sort_clusters=False).fit_predict(sparse.csr_matrix(matrix))


def choose_resolution(
    graph: NeighborGraph, sample: np.ndarray, vectors: np.ndarray, seed: int = 0
) -> tuple[float, np.ndarray]:
    """The resolution that suits a graph, and its labels (n,), without knowing any true label.

    Each resolution is scored by the silhouette (cosine) of a sample of rows, less a price for the number of clusters:
    without it, ever smaller clusters look ever better where there is no structure. Of those that score nearly as well
    as the best, the finest is taken. `vectors` (m, dim) are the unit vectors of the rows `sample` (m,).
    """
    from sklearn.metrics import silhouette_score

    scored: list[tuple[float, float, np.ndarray]] = []
    for resolution in RESOLUTIONS:
        labels = find_leiden(graph, resolution, seed)
        kinds = len(np.unique(labels[sample]))
        score = -np.inf
        if 1 < kinds < len(sample):
            score = silhouette_score(vectors, labels[sample], metric="cosine") - _PRICE * np.log(kinds)
        scored.append((score, resolution, labels))
    best = max(score for score, _, _ in scored)
    good = [entry for entry in scored if entry[0] >= (best * _NEARLY if best > 0 else best)]
    _, resolution, labels = good[-1]
    return resolution, labels
