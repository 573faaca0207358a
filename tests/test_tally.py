"""Counts and statistics of clusters, added up over blocks."""

import functools

import numpy as np
import pytest

from transforms.clusters import tally
from transforms.clusters.cluster_centers import Centers
from transforms.clusters.tally import EXEMPLAR_CANDIDATES, LabeledRows, Tally, far_cosines, merge_tallies, tally_ranges

CLUSTERS = 5


@pytest.mark.parametrize(("range_clusters", "held_cosines"), [(1024, 2**20), (2, 8)])
def test_the_tally_of_blocks_is_that_of_all_rows(monkeypatch, range_clusters, held_cosines):
    monkeypatch.setattr(tally, "RANGE_CLUSTERS", range_clusters)
    monkeypatch.setattr(tally, "_HELD_COSINES", held_cosines)
    rng = np.random.default_rng(0)
    labels, ordinals = rng.integers(-1, CLUSTERS, 4000), rng.permutation(4000).astype(np.uint32)
    cosines, vectors = rng.random(4000, np.float32), rng.random((4000, 3), np.float32)
    centers = Centers(np.zeros((CLUSTERS, 3), np.float32), np.bincount(labels[labels >= 0]))
    everything = LabeledRows(labels, ordinals, cosines, vectors)
    blocks = [everything[rows] for rows in np.array_split(rng.permutation(4000), 7)]
    ranges = {}
    for first in range(0, CLUSTERS, range_clusters):
        tallies = [dict(tally_ranges(block, CLUSTERS))[first] for block in blocks]
        merged = functools.reduce(merge_tallies, [functools.reduce(merge_tallies, tallies[4:]), *tallies[:4]])
        far = [dict(far_cosines(block, centers))[first] for block in blocks]
        ranges[first] = merged, tally.radii_of(first, far, centers)
    found = Tally.of(int((labels == -1).sum()), CLUSTERS, ranges)
    for number, size in enumerate(centers.sizes):
        own = np.flatnonzero(labels == number)
        nearest = own[np.argsort(-cosines[own])[:EXEMPLAR_CANDIDATES]]
        assert found.nearest.of_cluster(number).ordinals.tolist() == ordinals[nearest].tolist()
        assert found.radii[number] == pytest.approx(np.quantile(cosines[own], 0.01), abs=1e-6)
        assert found.cohesion(number, size) == pytest.approx(cosines[own].mean(), abs=1e-6)


def test_ranges_without_rows_may_be_missing():
    found = Tally.of(7, 3, {})
    assert len(found.nearest) == 0
    assert np.isnan(found.radii).all()
