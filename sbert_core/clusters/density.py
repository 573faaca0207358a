"""HDBSCAN: clusters of any shape, noise, and how strongly a row belongs; of vectors, or of the neighbour graph."""

import dataclasses

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from sbert_core.clusters.communities import number_by_size
from sbert_core.clusters.graph import NeighborGraph
from sbert_core.errors import DataError

REDUCED_DIM = 15
_APART = 2.5  # past any distance of unit vectors: joins parts of the graph that have no edge between them


@dataclasses.dataclass(frozen=True, eq=False)
class Dense:
    """Labels (n,), noise -1; how strongly each row belongs (n,); and how much of an outlier it is (n,)."""

    labels: np.ndarray
    strengths: np.ndarray
    outlier_scores: np.ndarray


def reduce_vectors(vectors: np.ndarray, dim: int = REDUCED_DIM, method: str = "pca", seed: int = 0) -> np.ndarray:
    """Vectors (n, dim) in few dimensions: density means little in hundreds of them.

    `method` is "pca", or "umap" if umap-learn is installed (the extra `umap`).
    """
    from sklearn.decomposition import PCA

    dim = min(dim, *vectors.shape)
    if len(vectors) < 2:
        return vectors[:, :dim].astype(np.float64)
    if method == "pca":
        return PCA(dim, svd_solver="covariance_eigh").fit_transform(vectors.astype(np.float64))
    if method != "umap":
        raise DataError(f"vectors are reduced by pca or umap, not by {method!r}")
    try:
        import umap
    except ImportError as error:
        raise DataError("umap is not installed: pip install 'sbert-beam[umap]', or reduce by pca") from error
    dim = min(5, dim, len(vectors) - 2)
    if dim < 1:
        return vectors[:, :1].astype(np.float64)
    model = umap.UMAP(n_components=dim, min_dist=0.0, metric="cosine", random_state=seed, n_jobs=1)
    return model.fit_transform(vectors).astype(np.float64)


def find_dense(vectors: np.ndarray, min_size: int = 15, min_samples: int = 5) -> Dense:
    """Clusters vectors (n, dim) with the hdbscan package, as they are: see `reduce_vectors`."""
    import hdbscan

    if len(vectors) <= min_samples:
        return _all_noise(len(vectors))
    model = hdbscan.HDBSCAN(min_cluster_size=max(min_size, 2), min_samples=min_samples, core_dist_n_jobs=1)
    model.fit(vectors.astype(np.float64))
    return _numbered(model.labels_, model.probabilities_, model.outlier_scores_)


def find_dense_in_graph(graph: NeighborGraph, min_size: int = 15, min_samples: int = 5) -> Dense:
    """Clusters the rows of a neighbour graph: HDBSCAN of all pairs, if the spanning tree runs along the graph.

    It does where the graph has enough neighbours; see `tree_change`.
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
    """The lightest tree (n - 1, 3) of mutual reachability along the graph: row, row, distance, lightest first."""
    if graph.k < min_samples:
        raise DataError(f"min_samples {min_samples} needs a graph of as many neighbours, this one has {graph.k}")
    last = graph.scores[:, min_samples - 1]
    core = np.where(np.isnan(last) | (graph.indices[:, min_samples - 1] < 0), _APART, _distances(last))
    low, high, scores = graph.edges()
    reach = np.maximum(_distances(scores), np.maximum(core[low], core[high]))
    size = (len(graph), len(graph))
    # A distance of 0 would be no edge at all.
    weighted = sparse.csr_array(sparse.coo_array((np.maximum(reach, 1e-12), (low, high)), shape=size))
    tree = minimum_spanning_tree(weighted).tocoo()
    count, part = connected_components(weighted, directed=False)
    first = np.unique(part, return_index=True)[1]
    rows = np.concatenate([tree.row, np.full(count - 1, first[0])])
    others = np.concatenate([tree.col, first[1:]])
    weights = np.concatenate([tree.data, np.full(count - 1, _APART)])
    order = np.lexsort((others, rows, weights))
    return np.stack([rows[order], others[order], weights[order]], axis=1).astype(np.float64)


def tree_change(graph: NeighborGraph, min_samples: int = 5) -> float:
    """By what share the tree is lighter than that of half the neighbours: near 0, more would change nothing."""
    half = max(graph.k // 2, min_samples)
    weights = [spanning_tree(each, min_samples)[:, 2].sum() for each in (graph.nearest(half), graph)]
    return float(1 - weights[1] / weights[0]) if weights[0] > 0 else 0.0


def _distances(scores: np.ndarray) -> np.ndarray:
    """Euclidean distances of unit vectors with these cosines."""
    return np.sqrt(np.maximum(2 - 2 * scores.astype(np.float64), 0))


def _all_noise(rows: int) -> Dense:
    return Dense(np.full(rows, -1), np.zeros(rows), np.zeros(rows))


def _numbered(labels: np.ndarray, strengths: np.ndarray, outliers: np.ndarray) -> Dense:
    return Dense(number_by_size(labels), np.asarray(strengths), np.nan_to_num(np.asarray(outliers)))
