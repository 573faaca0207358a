"""Clusters of a neighbour graph by a minimum cosine: sentence-transformers' communities, and connected components."""

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from sbert_core.clusters.graph import NeighborGraph
from sbert_core.clusters.noise import NOISE
from sbert_core.errors import DataError
from sbert_core.numbering import number_labels


def find_components(graph: NeighborGraph, min_score: float, min_size: int = 2) -> np.ndarray:
    """Labels (n,) of rows connected by chains of cosines of at least `min_score`; smaller groups are noise."""
    low, high, _ = graph.edges(min_score)
    matrix = sparse.coo_array((np.ones(len(low), np.int8), (low, high)), shape=(len(graph), len(graph)))
    _, labels = connected_components(matrix, directed=False)
    return number_labels(labels, min_size)


def find_communities(graph: NeighborGraph, min_score: float = 0.75, min_size: int = 10) -> np.ndarray:
    """Labels (n,) with the meaning of sentence-transformers' `community_detection`.

    A row and its neighbours of at least `min_score` are a community if they are at least `min_size` rows. Communities
    are formed in descending order of size. A row belongs to the first one that contains it, and no longer forms one of
    its own. The graph must hold all neighbours of at least `min_score`.
    """
    saturated = graph.saturated(min_score)
    if saturated:
        raise DataError(
            f"{saturated} rows have {graph.k} neighbours over {min_score} and may have more: communities need all of "
            "them. Mine with a larger --top_k, or use a higher --min_score"
        )
    sizes = ((graph.indices >= 0) & (graph.scores >= min_score)).sum(axis=1) + 1  # a row is its own neighbour
    labels = np.full(len(graph), NOISE, np.int64)
    n_found = 0
    for row in np.argsort(-sizes, kind="stable"):
        if sizes[row] < min_size:
            break
        if labels[row] != NOISE:
            continue
        members = np.append(row, graph.indices[row, : sizes[row] - 1])
        members = members[labels[members] == NOISE]
        if len(members) >= min_size:
            labels[members] = n_found
            n_found += 1
    return number_labels(labels)
