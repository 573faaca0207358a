"""Clusters of the neighbour graph: Leiden communities, sentence-transformers' communities, connected components."""

import ctypes

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from threadpoolctl import threadpool_limits

from sbert_core.clusters.graph import NeighborGraph
from sbert_core.clusters.kmeans import BLOCK_ROWS, nearest, settle
from sbert_core.errors import DataError
from sbert_core.neighbors.cells import sample_of
from sbert_core.neighbors.cosine import unit_rows
from sbert_core.neighbors.in_memory import find_neighbors

NOISE = -1
RESOLUTIONS = (0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 11.0, 16.0, 22.0)
SAMPLE = 3000  # rows that quality is measured on
SMOOTHING = 3  # steps along the graph
SLAB = 32  # dimensions that are smoothed at once
CHOICE_ROWS = 50_000  # about as many that a resolution is chosen by
SPLITS = 4  # in halves, that a resolution is chosen by
SETTLING = 5  # rounds of a half


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
    return _leiden(graph.adjacency(), resolution, seed)


def _leiden(matrix: sparse.csr_array, resolution: float, seed: int) -> np.ndarray:
    from sknetwork.clustering import Leiden  # takes a second

    if not matrix.nnz:
        return np.arange(matrix.shape[0])
    # Its refinement draws from the C library, whatever the random state: seeded, the same graph gives the same labels.
    ctypes.CDLL(None).srand(seed + 1)
    return Leiden(resolution, random_state=seed, sort_clusters=False).fit_predict(sparse.csr_matrix(matrix))


def smooth_vectors(graph: NeighborGraph, vectors: np.ndarray, steps: int = SMOOTHING) -> np.ndarray:
    """Unit vectors (n, dim) moved half way to the mean of their neighbours, `steps` times over.

    What a row has by chance fades, what it shares with its neighbourhood stays. Not in place.
    """
    matrix = sparse.csr_array(graph.adjacency(), dtype=np.float32)
    totals = matrix.sum(axis=1)
    shares = sparse.dia_array((1 / np.where(totals > 0, totals, 1)[None], 0), shape=matrix.shape).tocsr() @ matrix
    smooth = vectors.astype(np.float32)  # a copy, and the only one: a dimension moves without the others
    for _ in range(steps):
        for start in range(0, smooth.shape[1], SLAB):
            slab = np.ascontiguousarray(smooth[:, start : start + SLAB])
            smooth[:, start : start + SLAB] = slab + shares @ slab
        for start in range(0, len(smooth), BLOCK_ROWS):
            smooth[start : start + BLOCK_ROWS] = unit_rows(smooth[start : start + BLOCK_ROWS])[0]
    return smooth


def choose_resolution(graph: NeighborGraph, vectors: np.ndarray, seed: int = 0) -> float:
    """The resolution whose clusters are found again, without knowing any true label.

    The rows are split into two halves; each is clustered alone, along its own edges, and settled. Then all rows go to
    the nearest centre of the one half, and to that of the other. Structure that is there gives the same clusters both
    times, what chance has made does not: the resolution with the highest agreement (adjusted Rand index, mean of a few
    splits) is taken. The least is about 1, the plain modularity: very few clusters are always found again, and tell
    little. `vectors` (n, dim) are the unit vectors of all rows.

    Of more than `CHOICE_ROWS` rows a sample of about so many is taken, by row number, with its own neighbours found
    anew: those it has left of the whole graph are too few. So the cost is bounded, and clusters that a sample of this
    size does not show have no say.
    """
    from sklearn.metrics import adjusted_rand_score

    if len(graph) > CHOICE_ROWS:
        graph, vectors = _sample(graph, vectors)
    ranks = np.arange(len(graph))
    matrix = graph.adjacency()
    splits = [sample_of(ranks, 2, 1, seed=seed + number) for number in range(SPLITS)]
    parts = [[np.flatnonzero(each) for each in (half, ~half)] for half in splits if half.any() and not half.all()]
    scores = dict.fromkeys(RESOLUTIONS, 0.0)
    for number, halves in enumerate(parts):
        found = [_label_by_half(matrix, vectors, rows, seed + number) for rows in halves]
        for resolution, first, second in zip(RESOLUTIONS, *found, strict=True):
            if min(len(np.unique(labels)) for labels in (first, second)) > 1:  # one cluster is always found again
                scores[resolution] += adjusted_rand_score(first, second) / len(parts)
    best = max(scores, key=lambda resolution: scores[resolution])
    return best if scores[best] > 0 else 1.0


def _sample(graph: NeighborGraph, vectors: np.ndarray) -> tuple[NeighborGraph, np.ndarray]:
    """About `CHOICE_ROWS` of the rows, and a graph of them alone."""
    chosen = vectors[sample_of(np.arange(len(graph)), len(graph), CHOICE_ROWS)]
    found = find_neighbors(chosen, graph.k)
    return NeighborGraph(found.indices, found.scores), chosen


def _label_by_half(matrix: sparse.csr_array, vectors: np.ndarray, rows: np.ndarray, seed: int) -> list[np.ndarray]:
    """For each resolution the labels (n,) of all vectors, by the centres of what is found among these rows alone."""
    edges, own = matrix[rows][:, rows], vectors[rows]
    centers = (settle(own, _leiden(edges, each, seed), SETTLING)[1] for each in RESOLUTIONS)
    return [nearest(vectors, each) for each in centers]


def find_groups(
    graph: NeighborGraph, vectors: np.ndarray, resolution: float | None = None, seed: int = 0
) -> tuple[float, np.ndarray]:
    """The resolution, chosen if not given, and labels (n,): Leiden communities, settled among smoothed vectors.

    Leiden alone sees only edges, and leaves rows on a border to chance. The same graph and unit vectors (n, dim) give
    the same labels.
    """
    with threadpool_limits(1):  # with several threads the order of sums changes the outcome
        chosen = choose_resolution(graph, vectors, seed) if resolution is None else resolution
        labels = find_leiden(graph, chosen, seed)
        return chosen, settle(smooth_vectors(graph, vectors), labels)[0]
