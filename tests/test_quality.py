"""The quality of clusterings."""

import numpy as np
import pytest

from sbert_core.clusters.density import cluster_dense_vectors, reduce_vectors
from sbert_core.clusters.quality import density_quality, quality_with_labels, quality_without_labels
from tests.corpora import blobs


def test_quality():
    vectors, truth = blobs(4, 30)
    good = quality_without_labels(vectors, truth)
    bad = quality_without_labels(vectors, np.arange(120) % 4)
    assert good["silhouette"] > 0.3 > bad["silhouette"]
    assert quality_without_labels(vectors, np.where(truth == 0, -1, truth))["noise_share"] == 0.25
    assert quality_without_labels(vectors[:0], truth[:0]) == {"noise_share": 0.0, "silhouette": None}
    assert quality_with_labels(truth, truth) == {"ari": 1, "nmi": pytest.approx(1), "v_measure": pytest.approx(1)}


def test_density_quality():
    vectors, _ = blobs(4, 40)
    reduced = reduce_vectors(vectors, 8)
    assert density_quality(reduced, cluster_dense_vectors(reduced, 15, 5).labels) > 0
    assert density_quality(vectors, np.zeros(len(vectors), int)) is None
