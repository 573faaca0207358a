"""The neighbour graph."""

import numpy as np
import pytest

from sbert_core.clusters.graph import NeighborGraph, find_graph
from sbert_core.errors import DataError
from tests.corpora import blobs


def test_graph_has_each_pair_once():
    vectors, _ = blobs(3, 20)
    graph = find_graph(vectors, 5)
    low, high, scores = graph.edges()
    assert (low < high).all()
    assert len({*zip(low.tolist(), high.tolist(), strict=True)}) == len(low)
    assert np.allclose(scores, (vectors[low] * vectors[high]).sum(axis=1), atol=1e-5)
    matrix = graph.adjacency().toarray()
    assert np.array_equal(matrix, matrix.T)
    assert np.count_nonzero(matrix) == 2 * (scores > 0).sum()
    assert graph.nearest(2).k == 2
    with pytest.raises(DataError, match=r"must both be \(n, k\)"):
        NeighborGraph(np.zeros((2, 3), int), np.zeros((2, 2)))
