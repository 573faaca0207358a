"""Binary pairs beside scikit-learn and sentence-transformers."""

import math

import numpy as np
import pytest
from sentence_transformers.sentence_transformer.evaluation import BinaryClassificationEvaluator

from sbert_core.data.examples import Examples
from sbert_core.errors import DataError
from sbert_core.evaluation.metrics import SIMILARITIES
from sbert_core.evaluation.pairs_task import evaluate_pairs
from tests.evaluation_peers import GivenVectors, draw

ROWS = 40


def make(seed: int = 0) -> tuple[GivenVectors, Examples]:
    """Pairs of which the positive ones are nearer."""
    encoder, rng = draw(ROWS, seed=seed), np.random.default_rng(seed + 100)
    labels = np.arange(ROWS) % 2
    for row, label in enumerate(labels):
        encoder.vectors[f"pair {row}"] = encoder.vectors[f"text {row}"] * label + rng.normal(size=8) * 1.2
    texts = ([f"text {row}" for row in range(ROWS)], [f"pair {row}" for row in range(ROWS)])
    return encoder, Examples(texts, labels, name="here")


@pytest.mark.parametrize("seed", range(3))
def test_figures_are_those_of_sentence_transformers(seed):
    encoder, examples = make(seed)
    found = evaluate_pairs(encoder, examples, model="fake")
    peer = BinaryClassificationEvaluator(
        *examples.texts, examples.labels.tolist(), similarity_fn_names=list(SIMILARITIES), write_csv=False
    )(encoder)
    for name in SIMILARITIES:
        for figure in ("accuracy", "accuracy_threshold", "f1", "precision", "recall", "f1_threshold", "mcc", "ap"):
            ours = f"{name}_{'average_precision' if figure == 'ap' else figure}"
            assert found.scores[ours] == pytest.approx(peer[f"{name}_{figure}"], abs=2e-6, rel=2e-6), ours
    assert (found.task, found.data, found.model, found.main) == ("pairs", "here", "fake", "cosine_average_precision")
    assert found.counts == {"rows": 40, "positives": 20, "negatives": 20}


def test_minimum_precision():
    encoder, examples = make()
    scores = SIMILARITIES["cosine"](*(encoder.encode(column) for column in examples.texts))
    recalls = []
    for minimum in (0.7, 0.8, 1.0):
        found = evaluate_pairs(encoder, examples, minimum_precision=minimum).scores
        taken = scores >= found[f"cosine_threshold_at_precision_{minimum:g}"]
        assert examples.labels[taken].mean() >= minimum
        assert examples.labels[taken].sum() / 20 == found[f"cosine_recall_at_precision_{minimum:g}"]
        recalls.append(found[f"cosine_recall_at_precision_{minimum:g}"])
        distances = -SIMILARITIES["euclidean"](*(encoder.encode(column) for column in examples.texts))
        near = distances <= found[f"euclidean_threshold_at_precision_{minimum:g}"]
        assert examples.labels[near].sum() / 20 == found[f"euclidean_recall_at_precision_{minimum:g}"]
    assert recalls == sorted(recalls, reverse=True)
    assert recalls[0] > recalls[-1]


def test_a_precision_that_is_never_reached():
    encoder = GivenVectors({"a": np.array([1, 0]), "b": np.array([1, 0.1]), "c": np.array([0, 1])})
    found = evaluate_pairs(encoder, Examples((["a", "a"], ["b", "c"]), np.array([0, 1]))).scores
    assert found["cosine_recall_at_precision_0.9"] == 0
    assert math.isnan(found["cosine_threshold_at_precision_0.9"])
    with pytest.raises(DataError, match="data: the minimum precision must be above 0 and at most 1, got 90"):
        evaluate_pairs(encoder, Examples((["a", "a"], ["b", "c"]), np.array([0, 1])), minimum_precision=90)


def test_curves():
    encoder, examples = make()
    curves = evaluate_pairs(encoder, examples).curves
    assert [sum(count for _, count in curves[f"scores of {kind}"]) for kind in ("positives", "negatives")] == [20, 20]
    assert np.mean([share for _, share in curves["calibration"]]) == pytest.approx(0.5)
    assert curves["calibration"][0][1] < curves["calibration"][-1][1]


def test_one_class():
    encoder, examples = make()
    with pytest.raises(DataError, match="here: all 20 labels are 1: use rows with positive and negative labels"):
        evaluate_pairs(encoder, examples.take(np.arange(1, ROWS, 2)))
    with pytest.raises(DataError, match="here has no rows"):
        evaluate_pairs(encoder, examples.take(np.array([])))
    with pytest.raises(DataError, match=r"here: labels must be 0 or 1, got 0\.5"):
        evaluate_pairs(encoder, Examples(examples.texts, examples.labels / 2, name="here"))
