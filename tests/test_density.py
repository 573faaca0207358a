"""HDBSCAN of the neighbour graph and of reduced vectors, against the hdbscan package."""

import sys

import hdbscan
import numpy as np
import pytest
from scipy.sparse.csgraph import minimum_spanning_tree
from sklearn.metrics import adjusted_rand_score

from sbert_core.clusters.density import (
    cluster_dense_graph,
    cluster_dense_vectors,
    reduce_vectors,
    spanning_tree,
    tree_change,
)
from sbert_core.clusters.graph import find_graph
from sbert_core.errors import DataError
from tests.corpora import blobs


@pytest.mark.parametrize("spread", [0.1, 0.2])
def test_hdbscan_of_the_graph_equals_hdbscan(spread):
    vectors, _ = blobs(6, 60, spread=spread)
    theirs = hdbscan.HDBSCAN(min_cluster_size=15, min_samples=5, algorithm="generic", approx_min_span_tree=False).fit(
        vectors.astype(np.float64)
    )
    ours = cluster_dense_graph(find_graph(vectors, 64), 15, 5)
    assert adjusted_rand_score(theirs.labels_, ours.labels) > 0.95
    assert np.corrcoef(theirs.probabilities_, ours.strengths)[0, 1] > 0.9
    assert np.corrcoef(theirs.outlier_scores_, ours.outlier_scores)[0, 1] > 0.9


def test_spanning_tree_is_the_lightest():
    vectors, _ = blobs(4, 50)
    tree = spanning_tree(find_graph(vectors, 199), 5)
    exact = vectors.astype(np.float64)
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    distances = np.sqrt(np.maximum(2 - 2 * exact @ exact.T, 0))
    core = np.sort(distances, axis=1)[:, 5]
    reachability = np.maximum(distances, np.maximum(core[:, None], core[None, :]))
    np.fill_diagonal(reachability, 0)
    assert tree[:, 2].sum() == pytest.approx(minimum_spanning_tree(reachability).sum(), rel=1e-6)
    assert len(tree) == 199
    with pytest.raises(DataError, match="min_samples"):
        spanning_tree(find_graph(vectors, 3), 5)


def test_tree_change_shows_whether_there_are_enough_neighbors():
    vectors, _ = blobs(6, 60, spread=0.2)
    assert tree_change(find_graph(vectors, 10), 5) > 1e-4
    assert tree_change(find_graph(vectors, 359), 5) == pytest.approx(0, abs=1e-6)


def test_umap():
    pytest.importorskip("umap", reason="umap-learn is not installed: the extra `umap` has it")
    vectors, truth = blobs(6, 60)
    reduced = reduce_vectors(vectors, method="umap")
    assert reduced.shape == (360, 5)
    assert adjusted_rand_score(truth, cluster_dense_vectors(reduced, 15, 5).labels) > 0.8
    assert np.array_equal(reduced, reduce_vectors(vectors, method="umap"))
    assert reduce_vectors(vectors[:2], method="umap").shape == (2, 1)


def test_umap_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(DataError, match="umap is not installed"):
        reduce_vectors(blobs(2, 10)[0], method="umap")


def test_hdbscan_of_reduced_vectors():
    vectors, truth = blobs(6, 60)
    found = cluster_dense_vectors(reduce_vectors(vectors, 8), 15, 5)
    assert adjusted_rand_score(truth, found.labels) > 0.8
