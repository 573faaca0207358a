"""Transfer tasks of SentEval: the accuracy of a logistic regression on frozen vectors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from sbert_core.data.examples import Examples
from sbert_core.errors import DataError
from sbert_core.evaluation.result import Encode, Evaluation
from sbert_core.evaluation.vectors import check_examples, encode_columns, labels_of

MAIN = "accuracy"
SEED = 1111  # SentEval's
# SentEval's grids of scikit-learn's C: the first if C is chosen by a dev set or an inner cross-validation, the second
# if it is chosen by cross-validation of the training data.
GRID = tuple(2.0**power for power in range(-2, 4))
FOLDS_GRID = tuple(2.0**power for power in range(-1, 6))


def evaluate_transfer(
    encoder: Encode,
    train: Examples,
    dev: Examples | None = None,
    test: Examples | None = None,
    *,
    folds: int = 10,
    inner_folds: int | None = None,
    grid: Sequence[float] | None = None,
    seed: int = SEED,
    model: str = "model",
) -> Evaluation:
    """Accuracy of a logistic regression on frozen vectors, as in SentEval; the vectors are not standardised.

    The splits determine how C of the regression is chosen, and which rows are scored:

    - `train` alone (MR, CR, SUBJ, MPQA): the mean over `folds` of cross-validation, C by `inner_folds` of a
      cross-validation of the rest of the rows;
    - `train` and `test` (TREC, MRPC): scored on test, C by `folds` of cross-validation of train;
    - `train`, `dev` and `test` (SST2): scored on test, C by the accuracy on dev.

    The features are the vector of one text column, or [|u - v|; u * v] of two (MRPC). With two classes, F1 of the
    second one is reported too. `dev_accuracy` is the accuracy by which C was chosen. The folds are stratified and
    drawn with `seed`: the same data gives the same figures.

    Args:
        encoder: of all texts.
        train: rows with classes.
        dev: rows with the classes of train.
        test: rows with the classes of train.
        folds: of the cross-validation.
        inner_folds: as many as `folds` unless given.
        grid: the values of C to choose from; by default SentEval's.
        seed: of the folds.
        model: its name.
    """
    if dev is not None and test is None:
        raise DataError("transfer has a dev set and no test set: give both, or neither for cross-validation")
    splits = [examples for examples in (train, dev, test) if examples is not None]
    for examples in splits:
        check_examples("transfer", examples, [1, 2], "classes")
        if examples.classes != train.classes or len(examples.texts) != len(train.texts):
            raise DataError(
                f"{train.name} and {examples.name} differ in their classes or columns: "
                "read all with the columns and the classes of the training data"
            )
    if grid is not None and (not grid or min(grid) <= 0):
        raise DataError(f"grid must be values of C above 0, got {list(grid)}")
    train_labels = labels_of(train)
    inner = folds if inner_folds is None else inner_folds
    if dev is None:
        _check_folds(train_labels, folds, inner if test is None else 2, train.name)
    elif len(np.unique(train_labels)) < 2:
        raise DataError(f"{train.name} has one class only: use rows of at least two classes")
    vectors = encode_columns(encoder, [column for examples in splits for column in examples.texts])
    width = len(train.texts)
    features = [_features(vectors[at * width : (at + 1) * width]) for at in range(len(splits))]
    with threadpool_limits(1):  # with several threads the order of sums changes the outcome
        if test is None:
            scores = _cross_validate(features[0], train_labels, folds, inner, grid or GRID, seed)
        elif dev is None:
            c, dev_accuracy = _choose_by_folds(features[0], train_labels, folds, grid or FOLDS_GRID, seed)
            scores = _score(_fit(features[0], train_labels, c), features[1], labels_of(test)) | {
                "dev_accuracy": dev_accuracy
            }
        else:
            dev_accuracy, fitted = _choose_by_dev(features[0], train_labels, features[1], labels_of(dev), grid or GRID)
            scores = _score(fitted, features[2], labels_of(test)) | {"dev_accuracy": dev_accuracy}
    counts = {
        "train_rows": len(train),
        "rows": len(train if test is None else test),
        "classes": len(np.unique(train_labels)),
    }
    if dev is not None:
        counts["dev_rows"] = len(dev)
    else:
        counts["folds"] = folds
    return Evaluation("transfer", (test or train).name, model, MAIN, scores, counts)


def _check_folds(labels: np.ndarray, folds: int, inner: int, name: str) -> None:
    """Checks that every fold can have rows of every class."""
    if min(folds, inner) < 2:
        raise DataError(f"cross-validation needs at least 2 folds, got {min(folds, inner)}")
    kinds, counts = np.unique(labels, return_counts=True)
    if len(kinds) < 2:
        raise DataError(f"{name} has one class only: use rows of at least two classes")
    # Without one of the outer folds, there must be enough rows of each class for the inner folds.
    minimum = max(folds, -(-inner * folds // (folds - 1)))
    if counts.min() < minimum:
        raise DataError(
            f"{name} has {counts.min()} rows of its rarest class, but {folds} folds need {minimum}: use fewer folds"
        )


def _features(vectors: list[np.ndarray]) -> np.ndarray:
    if len(vectors) == 1:
        return vectors[0]
    left, right = vectors
    return np.concatenate([np.abs(left - right), left * right], axis=1)


def _fit(features: np.ndarray, labels: np.ndarray, c: float) -> Any:
    from sklearn.linear_model import LogisticRegression  # takes a second

    return LogisticRegression(C=c, max_iter=1000).fit(features, labels)


def _score(classifier: Any, features: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    from sklearn.metrics import f1_score

    predicted = classifier.predict(features)
    scores = {"accuracy": float((predicted == labels).mean())}
    if len(classifier.classes_) == 2:
        scores["f1"] = float(f1_score(labels, predicted, pos_label=classifier.classes_[1]))
    return scores


def _best(accuracies: list[float]) -> int:
    """The place of the first best; SentEval compares percentages with two decimals."""
    return int(np.argmax([round(100 * accuracy, 2) for accuracy in accuracies]))


def _choose_by_dev(
    features: np.ndarray, labels: np.ndarray, dev_features: np.ndarray, dev_labels: np.ndarray, grid: Sequence[float]
) -> tuple[float, Any]:
    """The best accuracy on dev, and its classifier."""
    fitted = [_fit(features, labels, c) for c in grid]
    accuracies = [float((classifier.predict(dev_features) == dev_labels).mean()) for classifier in fitted]
    best = _best(accuracies)
    return accuracies[best], fitted[best]


def _choose_by_folds(
    features: np.ndarray, labels: np.ndarray, folds: int, grid: Sequence[float], seed: int
) -> tuple[float, float]:
    """The C of the best mean accuracy, and that accuracy."""
    splits = _split(labels, folds, seed)
    accuracies = [
        float(
            np.mean(
                [
                    (_fit(features[rest], labels[rest], c).predict(features[held]) == labels[held]).mean()
                    for rest, held in splits
                ]
            )
        )
        for c in grid
    ]
    best = _best(accuracies)
    return float(grid[best]), accuracies[best]


def _cross_validate(
    features: np.ndarray, labels: np.ndarray, folds: int, inner: int, grid: Sequence[float], seed: int
) -> dict[str, float]:
    """Means over the folds; `accuracy_deviation` is the standard deviation of theirs."""
    runs, dev_accuracies = [], []
    for rest, held in _split(labels, folds, seed):
        c, accuracy = _choose_by_folds(features[rest], labels[rest], inner, grid, seed)
        dev_accuracies.append(accuracy)
        runs.append(_score(_fit(features[rest], labels[rest], c), features[held], labels[held]))
    scores = {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}
    spread = float(np.std([run["accuracy"] for run in runs]))
    return scores | {"accuracy_deviation": spread, "dev_accuracy": float(np.mean(dev_accuracies))}


def _split(labels: np.ndarray, folds: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    from sklearn.model_selection import StratifiedKFold

    return list(StratifiedKFold(folds, shuffle=True, random_state=seed).split(labels, labels))
