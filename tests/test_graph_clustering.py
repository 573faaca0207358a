"""The default clustering: Leiden communities, the choice of the resolution, smoothing."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from sbert_core.clusters.graph import NeighborGraph, find_graph
from sbert_core.clusters.graph_clustering import cluster_graph, smooth_vectors
from sbert_core.clusters.leiden import find_leiden
from sbert_core.clusters.resolution import choose_resolution
from sbert_core.sampling import is_sampled
from tests.corpora import blobs


def leiden(graph: NeighborGraph, resolution: float, seed: int = 0) -> np.ndarray:
    return find_leiden(graph.adjacency(), resolution, seed)


def test_leiden_finds_blobs_and_is_the_same_again():
    vectors, truth = blobs(6, 40)
    graph = find_graph(vectors, 32)
    labels = leiden(graph, 1.0)
    assert adjusted_rand_score(truth, labels) > 0.95
    assert np.array_equal(labels, leiden(graph, 1.0))
    assert len(np.unique(leiden(graph, 8.0))) > len(np.unique(labels))
    loose = find_graph(blobs(4, 300, spread=0.5)[0], 32)  # no clear clusters: the result depends on the seed
    assert np.array_equal(leiden(loose, 4.0), leiden(loose, 4.0))
    assert not np.array_equal(leiden(loose, 4.0, seed=1), leiden(loose, 4.0, seed=2))


@pytest.mark.slow
@pytest.mark.parametrize("clusters", [3, 9])
def test_resolution_is_chosen_without_labels(clusters):
    vectors, truth = blobs(clusters, 30)
    graph = find_graph(vectors, 32)
    resolution, labels = cluster_graph(graph, vectors)
    assert adjusted_rand_score(truth, labels) > 0.95
    chosen, again = cluster_graph(graph, vectors, resolution)
    assert chosen == resolution
    assert np.array_equal(labels, again)


def test_resolution_of_rows_without_structure_is_1():
    for rows in (1, 30):
        same = np.ones((rows, 4), np.float32)
        assert choose_resolution(find_graph(same, 32), same) == 1


@pytest.mark.slow
def test_resolution_of_many_rows_is_chosen_on_a_sample():
    vectors, _ = blobs(20, 30, spread=0.2)
    graph = find_graph(vectors, 16)
    sample = vectors[is_sampled(np.arange(600), 600, 150)]
    assert 120 < len(sample) < 180
    of_sample, of_all = choose_resolution(find_graph(sample, 16), sample), choose_resolution(graph, vectors)
    assert of_sample != of_all
    assert choose_resolution(graph, vectors, max_rows=150) == of_sample


@pytest.mark.slow
def test_random_structure_is_not_taken_for_clusters():
    vectors, _ = blobs(6, 60, spread=0.3)  # Leiden finds more clusters at every higher resolution
    graph = find_graph(vectors, 16)
    resolution, labels = cluster_graph(graph, vectors)
    assert len(np.unique(labels)) < len(np.unique(leiden(graph, 22.0))) / 2
    assert resolution < 22


def test_smoothing_brings_neighbors_together():
    vectors, _ = blobs(4, 50, spread=0.25)
    graph = find_graph(vectors, 8)
    smooth = smooth_vectors(graph, vectors)
    assert np.allclose(np.linalg.norm(smooth, axis=1), 1, atol=1e-5)
    low, high, scores = graph.edges()
    assert (smooth[low] * smooth[high]).sum(axis=1).mean() > scores.mean() + 0.1
    matrix = graph.adjacency().toarray()
    moved = vectors + matrix @ vectors / matrix.sum(axis=1, keepdims=True)
    moved /= np.linalg.norm(moved, axis=1, keepdims=True)
    assert np.allclose(smooth_vectors(graph, vectors, 1), moved, atol=1e-5)
    assert np.array_equal(vectors, blobs(4, 50, spread=0.25)[0])  # not in place
    wide, _ = blobs(4, 50, dim=70)  # more than SMOOTHED_DIMS
    matrix = find_graph(wide, 8).adjacency().toarray()
    moved = wide + matrix @ wide / matrix.sum(axis=1, keepdims=True)
    moved /= np.linalg.norm(moved, axis=1, keepdims=True)
    assert np.allclose(smooth_vectors(find_graph(wide, 8), wide, 1), moved, atol=1e-5)
