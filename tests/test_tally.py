"""Counts and statistics of clusters, added up over blocks."""

import functools
from collections import Counter

import numpy as np
import pytest

from sbert_core.data.manifest import Part
from transforms.clusters.cluster_centers import Centers
from transforms.clusters.tally import EXEMPLAR_CANDIDATES, LabeledRows, merge_tallies, tally_block


def test_the_tally_of_blocks_is_that_of_all_rows():
    rng = np.random.default_rng(0)
    labels, ordinals = rng.integers(-1, 5, 4000), rng.permutation(4000).astype(np.uint32)
    cosines, vectors = rng.random(4000, np.float32), rng.random((4000, 3), np.float32)
    centers = Centers(np.zeros((5, 3), np.float32), np.bincount(labels[labels >= 0]))
    everything = LabeledRows(labels, ordinals, cosines, vectors)
    tallies = [
        tally_block(
            Part(name=str(rows[0]), rows=len(rows), sha256=""), everything[rows], labels[rows].tolist(), centers, 4000
        )
        for rows in np.array_split(rng.permutation(4000), 7)
    ]
    found = functools.reduce(merge_tallies, [functools.reduce(merge_tallies, tallies[4:]), *tallies[:4]])
    assert found.n_noise == (labels == -1).sum()
    assert found.label_counts == Counter((str(label), label) for label in labels.tolist())
    for number, size in enumerate(centers.sizes):
        own = np.flatnonzero(labels == number)
        nearest = own[np.argsort(-cosines[own])[:EXEMPLAR_CANDIDATES]]
        assert found.nearest.of_cluster(number).ordinals.tolist() == ordinals[nearest].tolist()
        assert found.radius(number, size) == pytest.approx(np.quantile(cosines[own], 0.01), abs=1e-6)
        assert found.cohesion(number, size) == pytest.approx(cosines[own].mean(), abs=1e-6)
