"""The algorithms of clustering against their references, on small data."""

import sys

import hdbscan
import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import minimum_spanning_tree
from sentence_transformers.util import community_detection
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from sbert_core.clusters.communities import (
    choose_resolution,
    drop_small,
    find_communities,
    find_components,
    find_groups,
    find_leiden,
    number_by_size,
    smooth_vectors,
)
from sbert_core.clusters.density import find_dense, find_dense_in_graph, reduce_vectors, spanning_tree, tree_change
from sbert_core.clusters.graph import NeighborGraph
from sbert_core.clusters.kmeans import add_up, assign, choose_k, move_centers, settle, start_centers
from sbert_core.clusters.membership import link_centers, nearest_centers, strength_by_centers, strength_in_graph
from sbert_core.clusters.quality import density_quality, quality_with_labels, quality_without_labels
from sbert_core.errors import DataError
from sbert_core.neighbors.cells import sample_of
from sbert_core.neighbors.in_memory import find_neighbors
from tests.corpora import blobs


def graph_of(vectors: np.ndarray, k: int = 32) -> NeighborGraph:
    found = find_neighbors(vectors, k)
    return NeighborGraph(found.indices, found.scores)


def test_graph_has_each_pair_once():
    vectors, _ = blobs(3, 20)
    graph = graph_of(vectors, 5)
    low, high, scores = graph.edges()
    assert (low < high).all()
    assert len({*zip(low.tolist(), high.tolist(), strict=True)}) == len(low)
    assert np.allclose(scores, (vectors[low] * vectors[high]).sum(axis=1), atol=1e-5)
    matrix = graph.adjacency().toarray()
    assert np.array_equal(matrix, matrix.T)
    assert np.count_nonzero(matrix) == 2 * (scores > 0).sum()
    assert graph.nearest(2).k == 2
    with pytest.raises(DataError, match="must be alike"):
        NeighborGraph(np.zeros((2, 3), int), np.zeros((2, 2)))


def test_numbers_are_by_size():
    assert number_by_size(np.array([7, 7, 3, -1, 3, 3, 9, 9])).tolist() == [1, 1, 0, -1, 0, 0, 2, 2]
    assert drop_small(np.array([4, 4, 5, 6, 6]), 2).tolist() == [0, 0, -1, 1, 1]
    assert drop_small(np.empty(0, np.int64), 2).tolist() == []


@pytest.mark.parametrize("threshold", [0.5, 0.6, 0.75])
def test_communities_equal_sentence_transformers(threshold):
    vectors, _ = blobs(6, 40, spread=0.15)
    labels = find_communities(graph_of(vectors, 239), threshold, 5)
    expected = np.full(len(vectors), -1)
    for number, rows in enumerate(
        community_detection(torch.from_numpy(vectors), threshold, 5, show_progress_bar=False)
    ):
        expected[rows] = number
    assert np.array_equal(labels == -1, expected == -1)
    assert adjusted_rand_score(expected, labels) == 1
    assert (labels >= 0).any()


def test_communities_need_all_neighbors():
    vectors, _ = blobs(2, 40, spread=0.05)
    with pytest.raises(DataError, match="may have more"):
        find_communities(graph_of(vectors, 10), 0.75, 5)
    assert graph_of(np.ones((30, 4), np.float32), 29).saturated(0.75) == 0  # there are no more rows


def test_components():
    vectors = np.repeat(np.eye(4, dtype=np.float32), [5, 3, 1, 4], axis=0)
    labels = find_components(graph_of(vectors, 4), 0.9)
    assert labels.tolist() == [0] * 5 + [2] * 3 + [-1] + [1] * 4


def test_leiden_finds_blobs_and_is_the_same_again():
    vectors, truth = blobs()
    graph = graph_of(vectors)
    labels = find_leiden(graph, 1.0)
    assert adjusted_rand_score(truth, labels) > 0.95
    assert np.array_equal(labels, find_leiden(graph, 1.0))
    loose = graph_of(blobs(4, 300, spread=0.5)[0])  # no clear clusters: chance decides
    assert np.array_equal(find_leiden(loose, 4.0), find_leiden(loose, 4.0))
    assert not np.array_equal(find_leiden(loose, 4.0, seed=1), find_leiden(loose, 4.0, seed=2))
    assert len(np.unique(find_leiden(graph, 8.0))) > len(np.unique(labels))


@pytest.mark.parametrize("clusters", [3, 12])
def test_resolution_is_chosen_without_labels(clusters):
    vectors, truth = blobs(clusters, 60)
    graph = graph_of(vectors)
    resolution, labels = find_groups(graph, vectors)
    assert resolution == choose_resolution(graph, vectors)
    assert adjusted_rand_score(truth, labels) > 0.95
    assert np.array_equal(labels, find_groups(graph, vectors)[1])
    assert find_groups(graph, vectors, resolution=8.0)[0] == 8.0


def test_resolution_of_what_has_no_halves_is_one():
    assert choose_resolution(graph_of(np.ones((1, 4), np.float32)), np.ones((1, 4), np.float32)) == 1
    assert choose_resolution(graph_of(np.ones((30, 4), np.float32)), np.ones((30, 4), np.float32)) == 1


def test_resolution_of_many_rows_is_chosen_by_a_sample(monkeypatch):
    vectors, truth = blobs(20, 60, spread=0.2)
    graph = graph_of(vectors, 16)
    sample = vectors[sample_of(np.arange(1200), 1200, 300)]
    assert 250 < len(sample) < 350
    whole, expected = choose_resolution(graph, vectors), choose_resolution(graph_of(sample, 16), sample)
    monkeypatch.setattr("sbert_core.clusters.communities.CHOICE_ROWS", 1200)
    assert choose_resolution(graph, vectors) == whole
    monkeypatch.setattr("sbert_core.clusters.communities.CHOICE_ROWS", 300)
    resolution, labels = find_groups(graph, vectors)
    assert resolution == expected != whole
    assert len(labels) == 1200
    assert adjusted_rand_score(truth, labels) > 0.95


def test_chance_does_not_look_like_clusters():
    vectors, _ = blobs(6, 100, spread=0.3)  # Leiden cuts them ever finer
    resolution, labels = find_groups(graph_of(vectors, 16), vectors)
    assert len(np.unique(labels)) < len(np.unique(find_leiden(graph_of(vectors, 16), 22.0))) / 2
    assert resolution < 22


def test_settling_moves_rows_to_the_nearest_center():
    vectors, truth = blobs(4, 50)
    wrong = np.where(np.arange(200) % 5 == 0, (truth + 1) % 4, truth) * 7  # names need not be in a row
    labels, centers = settle(vectors, wrong)
    assert adjusted_rand_score(truth, labels) == 1
    assert np.array_equal(labels, assign(vectors, centers)[0])
    blind = np.concatenate([vectors, np.zeros((1, 24), np.float32)])
    assert (settle(blind, np.append(truth, 9))[0] == 4).sum() == 1
    assert settle(vectors[:0], truth[:0])[0].tolist() == []


def test_smoothing_brings_neighbors_together():
    vectors, _ = blobs(4, 50, spread=0.25)
    graph = graph_of(vectors, 8)
    smooth = smooth_vectors(graph, vectors)
    assert np.allclose(np.linalg.norm(smooth, axis=1), 1, atol=1e-5)
    low, high, scores = graph.edges()
    assert (smooth[low] * smooth[high]).sum(axis=1).mean() > scores.mean() + 0.1
    matrix = graph.adjacency().toarray()
    moved = vectors + matrix @ vectors / matrix.sum(axis=1, keepdims=True)
    moved /= np.linalg.norm(moved, axis=1, keepdims=True)
    assert np.allclose(smooth_vectors(graph, vectors, 1), moved, atol=1e-5)
    assert np.array_equal(vectors, blobs(4, 50, spread=0.25)[0])  # they are not touched
    wide, _ = blobs(4, 50, dim=70)  # more than two slabs
    matrix = graph_of(wide, 8).adjacency().toarray()
    moved = wide + matrix @ wide / matrix.sum(axis=1, keepdims=True)
    moved /= np.linalg.norm(moved, axis=1, keepdims=True)
    assert np.allclose(smooth_vectors(graph_of(wide, 8), wide, 1), moved, atol=1e-5)


@pytest.mark.parametrize("spread", [0.1, 0.2])
def test_hdbscan_of_the_graph_equals_hdbscan(spread):
    vectors, _ = blobs(6, 60, spread=spread)
    theirs = hdbscan.HDBSCAN(min_cluster_size=15, min_samples=5, algorithm="generic", approx_min_span_tree=False).fit(
        vectors.astype(np.float64)
    )
    ours = find_dense_in_graph(graph_of(vectors, 64), 15, 5)
    assert adjusted_rand_score(theirs.labels_, ours.labels) > 0.95
    assert np.corrcoef(theirs.probabilities_, ours.strengths)[0, 1] > 0.9
    assert np.corrcoef(theirs.outlier_scores_, ours.outlier_scores)[0, 1] > 0.9


def test_spanning_tree_is_the_lightest():
    vectors, _ = blobs(4, 50)
    tree = spanning_tree(graph_of(vectors, 199), 5)
    exact = vectors.astype(np.float64)
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    distances = np.sqrt(np.maximum(2 - 2 * exact @ exact.T, 0))
    core = np.sort(distances, axis=1)[:, 5]
    reach = np.maximum(distances, np.maximum(core[:, None], core[None, :]))
    np.fill_diagonal(reach, 0)
    assert tree[:, 2].sum() == pytest.approx(minimum_spanning_tree(reach).sum(), rel=1e-6)
    assert len(tree) == 199
    with pytest.raises(DataError, match="min_samples"):
        spanning_tree(graph_of(vectors, 3), 5)


def test_tree_change_tells_whether_there_are_enough_neighbors():
    vectors, _ = blobs(6, 60, spread=0.2)
    assert tree_change(graph_of(vectors, 10), 5) > 1e-4
    assert tree_change(graph_of(vectors, 359), 5) == pytest.approx(0, abs=1e-6)


def test_umap():
    pytest.importorskip("umap", reason="umap-learn is not installed: the extra `umap` has it")
    vectors, truth = blobs(6, 60)
    reduced = reduce_vectors(vectors, method="umap")
    assert reduced.shape == (360, 5)
    assert adjusted_rand_score(truth, find_dense(reduced, 15, 5).labels) > 0.8
    assert np.array_equal(reduced, reduce_vectors(vectors, method="umap"))
    assert reduce_vectors(vectors[:2], method="umap").shape == (2, 1)


def test_umap_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(DataError, match="umap is not installed"):
        reduce_vectors(blobs(2, 10)[0], method="umap")


def test_hdbscan_of_reduced_vectors():
    vectors, truth = blobs(6, 60)
    dense = find_dense(reduce_vectors(vectors, 8), 15, 5)
    assert adjusted_rand_score(truth, dense.labels) > 0.8
    assert density_quality(reduce_vectors(vectors, 8), dense.labels) > 0
    assert density_quality(vectors, np.zeros(len(vectors), int)) is None


def test_spherical_kmeans_agrees_with_scikit_learn():
    vectors, _ = blobs(5, 50)
    centers = start_centers(vectors, 5)
    for _ in range(5):
        centers = move_centers(centers, add_up(vectors, assign(vectors, centers)[0], 5)[0])
    labels = assign(vectors, centers)[0]
    assert adjusted_rand_score(KMeans(5, n_init=10, random_state=0).fit_predict(vectors), labels) > 0.95
    assert np.allclose(np.linalg.norm(centers, axis=1), 1, atol=1e-6)
    assert move_centers(centers, np.zeros_like(centers)) == pytest.approx(centers)
    assert choose_k(vectors) == 5
    assert choose_k(np.ones((9, 3), np.float32)) == 1
    with pytest.raises(DataError, match="only 5 different"):
        start_centers(np.eye(5, dtype=np.float32), 6)


def test_strength_is_between_nothing_and_all():
    vectors, truth = blobs(3, 30)
    labels = np.where(np.arange(90) < 5, -1, truth)
    strengths = strength_in_graph(graph_of(vectors, 10), labels)
    assert (strengths[:5] == 0).all()
    assert ((strengths >= 0) & (strengths <= 1)).all()
    scores = np.array([[1.0, 0.2], [0.5, 0.5], [0.9, 0.1], [0.1, 0.8]], np.float32)
    by_centers = strength_by_centers(scores, np.array([0, 0, -1, 0]))
    assert by_centers.tolist() == [1, 0, 0, 0]
    assert strength_by_centers(scores[:, :1], np.array([0, 0, 0, 0])).tolist() == pytest.approx([1, 0.5, 0.9, 0.1])


def test_centers_to_each_other():
    centers = np.array([[1, 0], [0, 1], [0.8, 0.6]], np.float32)
    nearest, cosines = nearest_centers(centers)
    assert nearest.tolist() == [2, 2, 0]
    assert cosines == pytest.approx([0.8, 0.6, 0.8])
    assert nearest_centers(centers[:1])[0].tolist() == [-1]
    joins = link_centers(centers)
    assert joins[0][:2] == [0, 2]
    assert joins[0][2] == pytest.approx(0.2)
    assert joins[-1][3] == 3
    assert link_centers(centers[:1]) == []


def test_quality():
    vectors, truth = blobs(4, 30)
    good = quality_without_labels(vectors, truth)
    bad = quality_without_labels(vectors, np.arange(120) % 4)
    assert good["silhouette"] > 0.3 > bad["silhouette"]
    assert quality_without_labels(vectors, np.where(truth == 0, -1, truth))["noise_share"] == 0.25
    assert quality_without_labels(vectors[:0], truth[:0]) == {"noise_share": 0.0, "silhouette": None}
    assert quality_with_labels(truth, truth) == {"ari": 1, "nmi": pytest.approx(1), "v_measure": pytest.approx(1)}
