"""Clustering beside scikit-learn."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score, v_measure_score
from sklearn.preprocessing import normalize

from sbert_core.data.examples import Examples
from sbert_core.errors import DataError
from sbert_core.evaluation.clustering_task import evaluate_clustering
from tests.evaluation_peers import GivenVectors, draw_classes


def test_figures_are_those_of_scikit_learn():
    encoder, texts, labels = draw_classes(60, 4, spread=0.8)
    found = evaluate_clustering(encoder, Examples((texts,), labels, name="here"), seeds=[0, 7, 8], model="fake")
    unit = normalize(encoder.encode(texts))
    runs = [KMeans(4, n_init=3, random_state=seed).fit_predict(unit) for seed in (0, 7, 8)]
    for name, score in (
        ("v_measure", v_measure_score),
        ("nmi", normalized_mutual_info_score),
        ("ari", adjusted_rand_score),
    ):
        values = [score(labels, run) for run in runs]
        assert found.scores[name] == pytest.approx(np.mean(values))
        assert found.scores[f"{name}_deviation"] == pytest.approx(np.std(values))
    assert 0.2 < found.score < 1
    assert (found.task, found.data, found.model, found.main) == ("clustering", "here", "fake", "v_measure")
    assert found.counts == {"rows": 60, "classes": 4, "seeds": 3}


def test_clear_clusters():
    encoder, texts, labels = draw_classes(30, 3, spread=0.01)
    found = evaluate_clustering(encoder, Examples((texts,), labels))
    assert found.scores == pytest.approx(
        {"v_measure": 1, "nmi": 1, "ari": 1, "v_measure_deviation": 0, "nmi_deviation": 0, "ari_deviation": 0}
    )
    assert evaluate_clustering(encoder, Examples((texts,), labels)) == found


def test_bad_examples():
    encoder, texts, labels = draw_classes(6, 3)
    with pytest.raises(DataError, match="here has one class only"):
        evaluate_clustering(encoder, Examples((texts,), np.zeros(6, int), name="here"))
    with pytest.raises(DataError, match="there are no seeds: give at least one"):
        evaluate_clustering(encoder, Examples((texts,), labels), seeds=[])
    with pytest.raises(DataError, match="has no rows"):
        evaluate_clustering(encoder, Examples(([],), np.zeros(0, int)))
    with pytest.raises(DataError, match="clustering needs classes"):
        evaluate_clustering(encoder, Examples((texts,)))
    same = GivenVectors(dict.fromkeys(texts, np.ones(2)))
    with pytest.raises(DataError, match="here has 3 classes, but only 1 different vectors"):
        evaluate_clustering(same, Examples((texts,), labels, name="here"))
