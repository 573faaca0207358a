"""Transfer tasks: as SentEval does them, written once more with scikit-learn's own tools."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict, cross_val_score

from sbert_core.data.examples import Examples
from sbert_core.errors import DataError
from sbert_core.evaluation.transfer_task import FOLDS_GRID, GRID, evaluate_transfer
from tests.evaluation_peers import draw_classes

pytestmark = pytest.mark.slow  # seconds in all


def make(rows: int = 90, classes: int = 2, spread: float = 1.5):
    encoder, texts, labels = draw_classes(rows, classes, spread)
    return encoder, Examples((texts,), labels, tuple("abc"[:classes]), "here")


def regression(c: float = 1.0) -> LogisticRegression:
    return LogisticRegression(C=c, max_iter=1000)


def folds(count: int) -> StratifiedKFold:
    return StratifiedKFold(count, shuffle=True, random_state=1111)


def search(grid, count: int) -> GridSearchCV:
    return GridSearchCV(regression(), {"C": list(grid)}, cv=folds(count))


def test_grids_are_those_of_senteval():
    assert GRID == (0.25, 0.5, 1, 2, 4, 8)
    assert FOLDS_GRID == (0.5, 1, 2, 4, 8, 16, 32)


def test_cross_validation():
    encoder, examples = make()
    found = evaluate_transfer(encoder, examples, folds=3, model="fake")
    vectors = encoder.encode(examples.texts[0])
    accuracies = cross_val_score(search(GRID, 3), vectors, examples.labels, cv=folds(3))
    assert found.score == pytest.approx(accuracies.mean())
    assert found.scores["accuracy_deviation"] == pytest.approx(accuracies.std())
    assert found.scores.keys() == {"accuracy", "f1", "accuracy_deviation", "dev_accuracy"}
    assert 0.55 < found.score < 1
    assert (found.task, found.data, found.model, found.main) == ("transfer", "here", "fake", "accuracy")
    assert found.counts == {"train_rows": 90, "rows": 90, "classes": 2, "folds": 3}
    assert evaluate_transfer(encoder, examples, folds=3, model="fake") == found


def test_cross_validation_with_other_folds_grid_and_seed():
    encoder, examples = make()
    vectors = encoder.encode(examples.texts[0])
    found = evaluate_transfer(encoder, examples, folds=4, inner_folds=2, grid=[0.001, 1])
    accuracies = cross_val_score(search([0.001, 1], 2), vectors, examples.labels, cv=folds(4))
    assert found.score == pytest.approx(accuracies.mean())
    one = evaluate_transfer(encoder, examples, folds=4, inner_folds=2, grid=[1], seed=5)
    split = StratifiedKFold(4, shuffle=True, random_state=5)
    predicted = cross_val_predict(regression(), vectors, examples.labels, cv=split)
    # Two folds have 23 rows and two 22: the mean over folds is not the mean over rows.
    expected = [(predicted[held] == examples.labels[held]).mean() for _, held in split.split(vectors, examples.labels)]
    assert one.score == pytest.approx(np.mean(expected))


def test_train_and_test():
    encoder, examples = make(classes=3)
    train, test = examples.take(np.arange(60)), examples.take(np.arange(60, 90))
    found = evaluate_transfer(encoder, train, test=test, folds=4)
    fitted = search(FOLDS_GRID, 4).fit(encoder.encode(train.texts[0]), train.labels)
    assert found.score == pytest.approx(fitted.score(encoder.encode(test.texts[0]), test.labels))
    assert found.scores["dev_accuracy"] == pytest.approx(fitted.best_score_)
    assert found.scores.keys() == {"accuracy", "dev_accuracy"}  # there is no F1 of three classes
    assert found.counts == {"train_rows": 60, "rows": 30, "classes": 3, "folds": 4}


def test_train_dev_and_test():
    encoder, examples = make(spread=3.0)
    parts = [examples.take(rows) for rows in np.split(np.arange(90), [50, 70])]
    found = evaluate_transfer(encoder, *parts)
    train, dev, test = ((encoder.encode(part.texts[0]), part.labels) for part in parts)
    accuracies = [regression(c).fit(*train).score(*dev) for c in GRID]
    best = regression(GRID[int(np.argmax(accuracies))]).fit(*train)
    assert found.scores == pytest.approx(
        {
            "accuracy": best.score(*test),
            "f1": f1_score(test[1], best.predict(test[0])),
            "dev_accuracy": max(accuracies),
        }
    )
    assert found.counts == {"train_rows": 50, "rows": 20, "classes": 2, "dev_rows": 20}


def test_pairs():
    encoder, texts, _ = draw_classes(120, 2)
    left, right = (encoder.encode(column) for column in (texts[:60], texts[60:]))
    labels = (np.abs(left - right)[:, 0] > 1.2).astype(np.int64)
    examples = Examples((texts[:60], texts[60:]), labels, ("0", "1"), "mrpc")
    train, test = examples.take(np.arange(40)), examples.take(np.arange(40, 60))
    found = evaluate_transfer(encoder, train, test=test, folds=3)
    features = np.hstack([np.abs(left - right), left * right])
    fitted = search(FOLDS_GRID, 3).fit(features[:40], labels[:40])
    assert found.score == pytest.approx(fitted.score(features[40:], labels[40:]))
    assert found.scores["f1"] == pytest.approx(f1_score(labels[40:], fitted.predict(features[40:])))


def test_bad_examples():
    encoder, examples = make()
    with pytest.raises(DataError, match="a dev set and no test set"):
        evaluate_transfer(encoder, examples, examples)
    with pytest.raises(DataError, match="here has no rows"):
        evaluate_transfer(encoder, examples.take(np.array([])))
    with pytest.raises(DataError, match="transfer needs classes"):
        evaluate_transfer(encoder, Examples(examples.texts))
    other = Examples(examples.texts, examples.labels, ("x", "y"), "there")
    with pytest.raises(DataError, match="here and there differ in their classes or columns"):
        evaluate_transfer(encoder, examples, test=other)
    ones = examples.take(np.flatnonzero(examples.labels == 1))
    with pytest.raises(DataError, match="here has one class only"):
        evaluate_transfer(encoder, ones)
    with pytest.raises(DataError, match="here has one class only"):
        evaluate_transfer(encoder, ones, examples, examples)
    few = examples.take(np.arange(18))
    with pytest.raises(DataError, match="here has 9 rows of its rarest class, but 10 folds need 12: use fewer folds"):
        evaluate_transfer(encoder, few)
    with pytest.raises(DataError, match="here has 9 rows of its rarest class, but 10 folds need 10"):
        evaluate_transfer(encoder, few, test=examples)
    with pytest.raises(DataError, match="at least 2 folds, got 1"):
        evaluate_transfer(encoder, examples, folds=1)
    with pytest.raises(DataError, match="at least 2 folds, got 1"):
        evaluate_transfer(encoder, examples, inner_folds=1)
    for grid in ([], [0, 1]):
        with pytest.raises(DataError, match="grid must be values of C above 0"):
            evaluate_transfer(encoder, examples, grid=grid)
