"""The map of a corpus."""

import numpy as np

from sbert_core.report.map_layout import place_vectors
from tests.corpora import blobs


def test_similar_vectors_are_near_on_the_map():
    vectors, truth = blobs(4, 40, spread=0.05)
    places = place_vectors(vectors, max_anchors=100)  # the others are placed between these
    assert places.shape == (160, 2)
    assert np.isfinite(places).all()
    distances = np.linalg.norm(places[:, None] - places[None], axis=2)
    same = truth[:, None] == truth[None]
    assert distances[same].mean() < 0.5 * distances[~same].mean()
    assert np.array_equal(places, place_vectors(vectors, max_anchors=100))


def test_few_and_identical_vectors():
    for rows in range(6):
        assert place_vectors(np.ones((rows, 4), np.float32)).shape == (rows, 2)
    assert np.isfinite(place_vectors(np.ones((40, 4), np.float32))).all()
