"""Every registered clustering algorithm."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from sbert_core.clusters.algorithm import CentroidAlgorithm, ClusteringSettings, InMemoryAlgorithm
from sbert_core.clusters.algorithms import ALGORITHMS, Communities, algorithms_using, find_algorithm
from sbert_core.clusters.kmeans import assign
from sbert_core.errors import DataError
from tests.clusterings import InMemoryInput
from tests.corpora import blobs

IN_MEMORY = [name for name, algorithm in ALGORITHMS.items() if issubclass(algorithm, InMemoryAlgorithm)]
SETTINGS = {"communities": {"min_score": 0.6}, "components": {"min_score": 0.8}, "leiden": {"resolution": 1.0}}


def settings_of(name: str, **settings) -> ClusteringSettings:
    return ClusteringSettings(algorithm=name, **SETTINGS.get(name, {}), **settings)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_declares_what_it_needs(name):
    algorithm = find_algorithm(name)
    assert isinstance(algorithm, InMemoryAlgorithm) != isinstance(algorithm, CentroidAlgorithm)
    assert set(algorithm.uses) <= set(ClusteringSettings.__dataclass_fields__)
    assert "min_size" in algorithm.uses
    assert (algorithm.max_rows is None) == (algorithm.use_instead == "")
    assert type(algorithm).__doc__


@pytest.mark.parametrize("name", IN_MEMORY)
def test_every_algorithm_finds_the_blobs(name):
    vectors, truth = blobs(4, 30)
    algorithm = find_algorithm(name)
    found = algorithm.cluster(InMemoryInput(vectors), settings_of(name))
    assert adjusted_rand_score(truth, found.labels) > 0.7
    assert np.array_equal(algorithm.cluster(InMemoryInput(vectors), settings_of(name)).labels, found.labels)
    sizes = np.bincount(found.labels[found.labels >= 0])
    assert sizes.tolist() == sorted(sizes.tolist(), reverse=True)
    for values in (found.strengths, found.outlier_scores):
        if values is not None:
            assert len(values) == 120
            assert ((values >= 0) & (values <= 1)).all()
    too_large = algorithm.cluster(InMemoryInput(vectors), settings_of(name, min_size=121, k=2))
    assert (too_large.labels == -1).all()


@pytest.mark.parametrize("name", IN_MEMORY)
def test_one_row_and_identical_rows(name):
    algorithm = find_algorithm(name)
    one = algorithm.cluster(InMemoryInput(np.eye(1, 4, dtype=np.float32)), settings_of(name))
    assert len(one.labels) == 1
    same = algorithm.cluster(InMemoryInput(np.tile(np.eye(1, 4, dtype=np.float32), (30, 1))), settings_of(name))
    assert len(set(same.labels.tolist())) == 1


def test_kmeans_starts_from_as_many_centers_as_are_asked_for():
    vectors, truth = blobs(4, 30)
    algorithm = find_algorithm("kmeans")
    for settings in (ClusteringSettings(k=4), ClusteringSettings()):  # given, and chosen
        centers = algorithm.start_centers(vectors, settings)
        assert len(centers) == 4
        assert adjusted_rand_score(truth, assign(vectors, centers)[0]) > 0.9


def test_communities_find_more_neighbors_until_they_have_all():
    vectors, truth = blobs(3, 60, spread=0.05)
    found = Communities().cluster(InMemoryInput(vectors, k=10), ClusteringSettings())
    assert found.manifest_fields.neighbors == 80
    assert adjusted_rand_score(truth, found.labels) == 1

    class Limited(Communities):
        max_compared_rows = 179

    with pytest.raises(DataError, match="larger --top_k"):
        Limited().cluster(InMemoryInput(vectors, k=10), ClusteringSettings())


def test_limits():
    with pytest.raises(DataError, match=r"at most 20,000 rows, A has 20,001: use leiden or kmeans"):
        ALGORITHMS["agglomerative"].check_rows("A", 20_001)
    ALGORITHMS["agglomerative"].check_rows("A", 20_000)
    with pytest.raises(DataError, match="only 120 rows: ask for fewer clusters"):
        find_algorithm("agglomerative").cluster(InMemoryInput(blobs(4, 30)[0]), ClusteringSettings(k=121))


def test_names():
    with pytest.raises(DataError, match=r"one of leiden, hdbscan, .*, got 'spectral'"):
        find_algorithm("spectral")
    assert algorithms_using("k") == ["kmeans", "agglomerative"]


def test_the_registry_imports_no_library():
    libraries = {"numpy", "scipy", "sklearn", "torch"}
    code = f"import sys, sbert_core.clusters.algorithms; print(sorted({libraries} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
