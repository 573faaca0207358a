"""The map of a corpus."""

import numpy as np

from sbert_core.report import map_layout as layout
from sbert_core.report.map_layout import place_vectors
from tests.corpora import blobs


def test_near_vectors_are_near_on_the_map(monkeypatch):
    monkeypatch.setattr(layout, "ANCHORS", 150)
    vectors, truth = blobs(4, 60, spread=0.05)
    places = place_vectors(vectors)
    assert places.shape == (240, 2)
    assert np.isfinite(places).all()
    distances = np.linalg.norm(places[:, None] - places[None], axis=2)
    same = truth[:, None] == truth[None]
    assert distances[same].mean() < 0.5 * distances[~same].mean()
    assert np.array_equal(places, place_vectors(vectors))


def test_few_and_identical_vectors():
    for rows in range(6):
        assert place_vectors(np.ones((rows, 4), np.float32)).shape == (rows, 2)
    assert np.isfinite(place_vectors(np.ones((40, 4), np.float32))).all()
