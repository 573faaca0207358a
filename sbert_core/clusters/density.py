"""HDBSCAN of vectors or of the neighbour graph: clusters of any shape, noise, strengths and outlier scores."""

import dataclasses

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from sbert_core.clusters.graph import NeighborGraph
from sbert_core.clusters.noise import NOISE
from sbert_core.errors import DataError
from sbert_core.numbering import number_labels

REDUCED_DIM = 15
MAX_UMAP_DIM = 5
UNCONNECTED_DISTANCE = 2.5  # above the maximum distance of unit vectors: joins components of the graph
MIN_EDGE_DISTANCE = 1e-12  # scipy reads a stored 0 as no edge
EXACT_TREE_CHANGE = 1e-6  # maximum change of a tree that counts as exact


@dataclasses.dataclass(frozen=True, eq=False)
class DensityClusters:
    """Labels (n,), noise is -1; strengths (n,) of the membership; and outlier scores (n,), both 0 to 1."""

    labels: np.ndarray
    strengths: np.ndarray
    outlier_scores: np.ndarray


def reduce_vectors(vectors: np.ndarray, dim: int = REDUCED_DIM, method: str = "pca", seed: int = 0) -> np.ndarray:
    """Vectors (n, dim) with fewer dimensions: densities hardly differ in hundreds of them.

    `method` is "pca", or "umap" if umap-learn is installed (the extra `umap`).
    """
    from sklearn.decomposition import PCA

    dim = min(dim, *vectors.shape)
    if len(vectors) < 2:
        return vectors[:, :dim].astype(np.float64)
    if method == "pca":
        return PCA(dim, svd_solver="covariance_eigh").fit_transform(vectors.astype(np.float64))
    if method != "umap":
        raise DataError(f"reduction is {method!r}: use pca or umap")
    try:
        import umap
    except ImportError as error:
        raise DataError("umap is not installed: pip install 'sbert-beam[umap]', or reduce by pca") from error
    dim = min(MAX_UMAP_DIM, dim, len(vectors) - 2)
    if dim < 1:
        return vectors[:, :1].astype(np.float64)
    model = umap.UMAP(n_components=dim, min_dist=0.0, metric="cosine", random_state=seed, n_jobs=1)
    return model.fit_transform(vectors).astype(np.float64)


def cluster_dense_vectors(vectors: np.ndarray, min_size: int = 15, min_samples: int = 5) -> DensityClusters:
    """Clusters vectors (n, dim) with the hdbscan package. For many dimensions, see `reduce_vectors`."""
    import hdbscan

    if len(vectors) <= min_samples:
        return _all_noise(len(vectors))
    model = hdbscan.HDBSCAN(min_cluster_size=max(min_size, 2), min_samples=min_samples, core_dist_n_jobs=1)
    model.fit(vectors.astype(np.float64))
    return _numbered(model.labels_, model.probabilities_, model.outlier_scores_)


def cluster_dense_graph(graph: NeighborGraph, min_size: int = 15, min_samples: int = 5) -> DensityClusters:
    """Clusters the rows of a neighbour graph.

    The result is that of HDBSCAN on all pairs if the graph has enough neighbours to hold the minimum spanning tree;
    see `has_exact_tree`.
    """
    from hdbscan._hdbscan_linkage import label
    from hdbscan._hdbscan_tree import compute_stability, condense_tree, get_clusters, outlier_scores

    if len(graph) <= min_samples:
        return _all_noise(len(graph))
    tree = spanning_tree(graph, min_samples)
    condensed = condense_tree(label(tree), max(min_size, 2))
    labels, strengths, _ = get_clusters(condensed, compute_stability(condensed))
    return _numbered(labels, strengths, outlier_scores(condensed))


def spanning_tree(graph: NeighborGraph, min_samples: int = 5) -> np.ndarray:
    """The minimum spanning tree (n - 1, 3) of mutual reachability along the graph: row, row, distance, sorted by it.

    Components of the graph are joined at `UNCONNECTED_DISTANCE`.
    """
    if graph.k < min_samples:
        raise DataError(f"min_samples {min_samples} needs a graph of as many neighbours, this one has {graph.k}")
    last_scores = graph.scores[:, min_samples - 1]
    has_core = ~np.isnan(last_scores) & (graph.indices[:, min_samples - 1] >= 0)
    core_distances = np.where(has_core, _distances(last_scores), UNCONNECTED_DISTANCE)
    low, high, scores = graph.edges()
    reachability = np.maximum(_distances(scores), np.maximum(core_distances[low], core_distances[high]))
    weights = np.maximum(reachability, MIN_EDGE_DISTANCE)
    matrix = sparse.csr_array(sparse.coo_array((weights, (low, high)), shape=(len(graph), len(graph))))
    tree = minimum_spanning_tree(matrix).tocoo()
    n_components, component = connected_components(matrix, directed=False)
    first_rows = np.unique(component, return_index=True)[1]
    rows = np.concatenate([tree.row, np.full(n_components - 1, first_rows[0])])
    others = np.concatenate([tree.col, first_rows[1:]])
    distances = np.concatenate([tree.data, np.full(n_components - 1, UNCONNECTED_DISTANCE)])
    order = np.lexsort((others, rows, distances))
    return np.stack([rows[order], others[order], distances[order]], axis=1).astype(np.float64)


def tree_change(graph: NeighborGraph, min_samples: int = 5) -> float:
    """By what share the tree is lighter than the tree of half the neighbours; near 0, more would not change it."""
    half = max(graph.k // 2, min_samples)
    weights = [spanning_tree(each, min_samples)[:, 2].sum() for each in (graph.nearest(half), graph)]
    return float(1 - weights[1] / weights[0]) if weights[0] > 0 else 0.0


def has_exact_tree(graph: NeighborGraph, min_samples: int) -> bool:
    """Whether more neighbours would not change the tree; half of them must be enough to build one."""
    return graph.complete or (graph.k >= 2 * min_samples and tree_change(graph, min_samples) <= EXACT_TREE_CHANGE)


def _distances(scores: np.ndarray) -> np.ndarray:
    """Euclidean distances of unit vectors with these cosines."""
    return np.sqrt(np.maximum(2 - 2 * scores.astype(np.float64), 0))


def _all_noise(rows: int) -> DensityClusters:
    return DensityClusters(np.full(rows, NOISE), np.zeros(rows), np.zeros(rows))


def _numbered(labels: np.ndarray, strengths: np.ndarray, outlier_scores: np.ndarray) -> DensityClusters:
    return DensityClusters(number_labels(labels), np.asarray(strengths), np.nan_to_num(np.asarray(outlier_scores)))
