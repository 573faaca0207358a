"""Triplets beside sentence-transformers."""

import numpy as np
import pytest
from sentence_transformers.sentence_transformer.evaluation import TripletEvaluator

from sbert_core.data.examples import Examples
from sbert_core.errors import DataError
from sbert_core.evaluation.triplets_task import evaluate_triplets
from tests.evaluation_peers import GivenVectors, draw


@pytest.mark.parametrize("seed", range(3))
def test_figures_are_those_of_sentence_transformers(seed):
    encoder = draw(90, seed=seed)
    texts = tuple([f"text {row}" for row in range(start, 90, 3)] for start in range(3))
    found = evaluate_triplets(encoder, Examples(texts, name="here"), model="fake")
    names = ["cosine", "euclidean", "manhattan"]
    peer = TripletEvaluator(*texts, similarity_fn_names=names, write_csv=False)(encoder)
    assert found.scores == pytest.approx({f"{name}_accuracy": peer[f"{name}_accuracy"] for name in names})
    assert (found.task, found.data, found.model, found.main) == ("triplets", "here", "fake", "cosine_accuracy")
    assert found.counts == {"rows": 30}
    assert [sum(count for _, count in curve) for curve in found.curves.values()] == [30, 30]


def test_by_hand():
    vectors = {"a": [1, 0], "near": [3, 0.3], "far": [1, 0.6], "far too": [3, 0.3]}
    encoder = GivenVectors({text: np.array(vector) for text, vector in vectors.items()})
    found = evaluate_triplets(encoder, Examples((["a", "a"], ["near", "near"], ["far", "far too"]))).scores
    assert found == {"cosine_accuracy": 0.5, "euclidean_accuracy": 0, "manhattan_accuracy": 0}  # a tie is no success


def test_bad_examples():
    with pytest.raises(DataError, match=r"triplets needs 3 text column\(s\), but data has 2"):
        evaluate_triplets(draw(1), Examples((["text 0"], ["text 0"])))
    with pytest.raises(DataError, match="has no rows"):
        evaluate_triplets(draw(1), Examples(([], [], [])))
