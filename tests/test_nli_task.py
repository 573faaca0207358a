"""Inference on frozen vectors beside scikit-learn."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score

from sbert_core.data.examples import Examples
from sbert_core.errors import DataError
from sbert_core.evaluation.nli_task import evaluate_nli
from tests.evaluation_peers import draw

NAMES = ("contradiction", "entailment", "neutral")


@pytest.fixture
def encoder():
    return draw(180, dim=6)


def make(encoder, start: int, stop: int, name: str) -> Examples:
    """Pairs whose class follows from their vectors."""
    texts = ([f"text {row}" for row in range(start, stop)], [f"text {row + 60}" for row in range(start, stop)])
    left, right = (encoder.encode(column) for column in texts)
    labels = np.digitize(np.abs(left - right)[:, 0] + left[:, 1] / 2, [0.7, 1.5])
    return Examples(texts, labels, NAMES, name)


def test_figures_are_those_of_scikit_learn(encoder):
    train, test = make(encoder, 0, 80, "train"), make(encoder, 80, 120, "test")
    found = evaluate_nli(encoder, train, test, c=2.0, model="fake")
    features = []
    for examples in (train, test):
        u, v = (encoder.encode(column) for column in examples.texts)
        features.append(np.hstack([u, v, np.abs(u - v)]))
    said = LogisticRegression(C=2.0, max_iter=1000).fit(features[0], train.labels).predict(features[1])
    assert found.score == pytest.approx(accuracy_score(test.labels, said))
    assert found.scores["macro_f1"] == pytest.approx(f1_score(test.labels, said, average="macro"))
    most = np.bincount(train.labels).argmax()
    assert found.scores["majority"] == pytest.approx((test.labels == most).mean())
    assert found.score > found.scores["majority"] + 0.1
    assert (found.task, found.data, found.model, found.main) == ("nli", "test", "fake", "accuracy")
    assert found.counts == {"train_rows": 80, "rows": 40, "classes": 3}
    assert evaluate_nli(encoder, train, test, c=2.0, model="fake") == found
    assert evaluate_nli(encoder, train, test, c=1e-6).scores != found.scores


def test_bad_examples(encoder):
    train, test = make(encoder, 0, 80, "train"), make(encoder, 80, 120, "test")
    other = Examples(test.texts, test.labels, ("a", "b", "c"), "test")
    with pytest.raises(
        DataError, match="train has the classes contradiction, entailment, neutral and test has a, b, c"
    ):
        evaluate_nli(encoder, train, other)
    one = train.take(np.flatnonzero(train.labels == 1))
    with pytest.raises(DataError, match="train has one class only"):
        evaluate_nli(encoder, one, test)
    with pytest.raises(DataError, match="test has no rows"):
        evaluate_nli(encoder, train, test.take(np.array([])))
    with pytest.raises(DataError, match="nli needs classes: name the label column of train"):
        evaluate_nli(encoder, Examples(train.texts, name="train"), test)
    with pytest.raises(DataError, match="c must be above 0, got 0"):
        evaluate_nli(encoder, train, test, c=0)
