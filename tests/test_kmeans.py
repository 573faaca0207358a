"""Spherical k-means against scikit-learn."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from sbert_core.clusters.kmeans import assign, choose_k, learn_centers, move_centers, refine, sum_by_cluster
from sbert_core.errors import DataError
from tests.corpora import blobs


def test_refining_moves_rows_to_the_nearest_center():
    vectors, truth = blobs(4, 50)
    wrong = np.where(np.arange(200) % 5 == 0, (truth + 1) % 4, truth) * 7  # labels need not be consecutive
    labels, centers = refine(vectors, wrong)
    assert adjusted_rand_score(truth, labels) == 1
    assert np.array_equal(labels, assign(vectors, centers)[0])
    blind = np.concatenate([vectors, np.zeros((1, 24), np.float32)])
    assert (refine(blind, np.append(truth, 9))[0] == 4).sum() == 1
    assert refine(vectors[:0], truth[:0])[0].tolist() == []


def test_spherical_kmeans_agrees_with_scikit_learn():
    vectors, _ = blobs(5, 25)
    centers = learn_centers(vectors, 5)
    for _ in range(5):
        centers = move_centers(centers, sum_by_cluster(vectors, assign(vectors, centers)[0], 5)[0])
    labels = assign(vectors, centers)[0]
    assert adjusted_rand_score(KMeans(5, n_init=10, random_state=0).fit_predict(vectors), labels) > 0.95
    assert np.allclose(np.linalg.norm(centers, axis=1), 1, atol=1e-6)
    assert move_centers(centers, np.zeros_like(centers)) == pytest.approx(centers)
    assert choose_k(vectors) == 5
    assert choose_k(np.ones((9, 3), np.float32)) == 1
    with pytest.raises(DataError, match="only 5 different"):
        learn_centers(np.eye(5, dtype=np.float32), 6)
