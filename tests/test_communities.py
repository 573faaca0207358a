"""Communities and components of the neighbour graph."""

import numpy as np
import pytest
import torch
from sentence_transformers.util import community_detection
from sklearn.metrics import adjusted_rand_score

from sbert_core.clusters.communities import find_communities, find_components
from sbert_core.clusters.graph import find_graph
from sbert_core.errors import DataError
from tests.corpora import blobs


@pytest.mark.parametrize("threshold", [0.5, 0.75])
def test_communities_equal_sentence_transformers(threshold):
    vectors, _ = blobs(6, 40, spread=0.15)
    labels = find_communities(find_graph(vectors, 239), threshold, 5)
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
        find_communities(find_graph(vectors, 10), 0.75, 5)
    assert find_graph(np.ones((30, 4), np.float32), 29).saturated(0.75) == 0  # there are no more rows


def test_components():
    vectors = np.repeat(np.eye(4, dtype=np.float32), [5, 3, 1, 4], axis=0)
    labels = find_components(find_graph(vectors, 4), 0.9)
    assert labels.tolist() == [0] * 5 + [2] * 3 + [-1] + [1] * 4
