"""How rows belong to clusters, and how clusters relate to each other."""

import numpy as np
import pytest

from sbert_core.clusters.graph import find_graph
from sbert_core.clusters.membership import link_centers, nearest_centers, strength_by_centers, strength_in_graph
from tests.corpora import blobs


def test_strength_is_between_0_and_1():
    vectors, truth = blobs(3, 30)
    labels = np.where(np.arange(90) < 5, -1, truth)
    strengths = strength_in_graph(find_graph(vectors, 10), labels)
    assert (strengths[:5] == 0).all()
    assert ((strengths >= 0) & (strengths <= 1)).all()
    scores = np.array([[1.0, 0.2], [0.5, 0.5], [0.9, 0.1], [0.1, 0.8]], np.float32)
    by_centers = strength_by_centers(scores, np.array([0, 0, -1, 0]))
    assert by_centers.tolist() == [1, 0, 0, 0]
    assert strength_by_centers(scores[:, :1], np.array([0, 0, 0, 0])).tolist() == pytest.approx([1, 0.5, 0.9, 0.1])


def test_nearest_centers_and_hierarchy():
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
