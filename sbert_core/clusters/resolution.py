"""The resolution of a Leiden clustering, chosen without true labels."""

from collections.abc import Iterator

import numpy as np
from scipy import sparse

from sbert_core.clusters.graph import NeighborGraph, find_graph
from sbert_core.clusters.kmeans import assign_in_blocks, refine
from sbert_core.clusters.leiden import find_leiden
from sbert_core.sampling import is_sampled

RESOLUTIONS = (0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 11.0, 16.0, 22.0)
DEFAULT_RESOLUTION = 1.0  # plain modularity
MAX_ROWS = 50_000  # of more rows about this many are sampled
N_SPLITS = 4
REFINE_ROUNDS = 5


def choose_resolution(graph: NeighborGraph, vectors: np.ndarray, seed: int = 0, max_rows: int = MAX_ROWS) -> float:
    """The resolution whose clusters are the most reproducible, for unit vectors (n, dim) and their graph.

    The rows are split into two random halves, and each half is clustered alone. All rows are then assigned to the
    nearest centre of the one half, and to the nearest centre of the other. Real structure gives the same clusters both
    times, random structure does not. The resolution with the highest agreement (adjusted Rand index, mean of
    `N_SPLITS` splits) is returned; `DEFAULT_RESOLUTION` if none agrees at all. Lower resolutions than those of
    `RESOLUTIONS` are not tried: very few clusters are always reproducible, and not useful.

    Of more than `max_rows` rows about that many are sampled, which bounds the cost. Clusters that are too small to
    show in the sample have no influence.
    """
    if len(graph) > max_rows:
        vectors = vectors[is_sampled(np.arange(len(graph)), len(graph), max_rows)]
        graph = find_graph(vectors, graph.k)  # too few edges of the full graph are left among the sampled rows
    matrix = graph.adjacency()
    splits = list(_split_rows(len(graph), seed))
    agreement = dict.fromkeys(RESOLUTIONS, 0.0)
    for number, halves in enumerate(splits):
        first, second = (_label_by_half(matrix, vectors, half, seed + number) for half in halves)
        for resolution in RESOLUTIONS:
            agreement[resolution] += _agreement(first[resolution], second[resolution]) / len(splits)
    best = max(agreement, key=lambda resolution: agreement[resolution])
    return best if agreement[best] > 0 else DEFAULT_RESOLUTION


def _split_rows(n_rows: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Random halves of the rows, as row numbers; splits with an empty half are left out."""
    for number in range(N_SPLITS):
        is_first = is_sampled(np.arange(n_rows), 2, 1, seed=seed + number)
        if is_first.any() and not is_first.all():
            yield np.flatnonzero(is_first), np.flatnonzero(~is_first)


def _label_by_half(
    matrix: sparse.csr_array, vectors: np.ndarray, half: np.ndarray, seed: int
) -> dict[float, np.ndarray]:
    """For each resolution the labels (n,) of all rows, by the centres of the clusters of one half."""
    half_matrix, half_vectors = matrix[half][:, half], vectors[half]
    labels = {}
    for resolution in RESOLUTIONS:
        _, centers = refine(half_vectors, find_leiden(half_matrix, resolution, seed), REFINE_ROUNDS)
        labels[resolution] = assign_in_blocks(vectors, centers)
    return labels


def _agreement(first: np.ndarray, second: np.ndarray) -> float:
    """The adjusted Rand index of two clusterings; 0 if one has a single cluster, which is always reproducible."""
    from sklearn.metrics import adjusted_rand_score

    if min(len(np.unique(first)), len(np.unique(second))) < 2:
        return 0.0
    return float(adjusted_rand_score(first, second))
