"""Transfer tasks of SentEval: what a logistic regression can read off frozen vectors."""

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
# SentEval's grids of scikit-learn's C: one where a dev set or an inner cross-validation chooses, another where a
# cross-validation of the training data does.
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
    """Accuracy of a logistic regression on frozen vectors, the way SentEval does it; the vectors are not standardised.

    The data given choose how C of the regression is chosen, and what is scored:

    - `train` alone (MR, CR, SUBJ, MPQA): the mean over `folds` of cross-validation, C by `inner_folds` of a
      cross-validation of the rest of the rows;
    - `train` and `test` (TREC, MRPC): scored on test, C by `folds` of cross-validation of train;
    - `train`, `dev` and `test` (SST2): scored on test, C by the accuracy on dev.

    Of one text column the vector is what is learned from; of two (MRPC) it is [|u - v|; u * v]. With two classes F1 of
    the second one is told too. `dev_accuracy` is what the choice of C saw. The folds are stratified and drawn by
    `seed`: the same data give the same figures.

    Args:
        encoder: of all texts.
        train: rows with classes.
        dev: likewise, with the classes of train.
        test: likewise.
        folds: of the cross-validation.
        inner_folds: as many as `folds` unless given.
        grid: the values of C to choose from; by default SentEval's.
        seed: of the folds.
        model: its name.
    """
    if dev is not None and test is None:
        raise DataError("transfer has a dev set and no test set: give both, or neither for cross-validation")
    given = [examples for examples in (train, dev, test) if examples is not None]
    for examples in given:
        check_examples("transfer", examples, [1, 2], "classes")
        if examples.classes != train.classes or len(examples.texts) != len(train.texts):
            raise DataError(
                f"{train.name} and {examples.name} differ in their classes or columns: "
                "read all with the columns and the classes of the training data"
            )
    if grid is not None and (not grid or min(grid) <= 0):
        raise DataError(f"grid must be values of C above 0, got {list(grid)}")
    known = labels_of(train)
    inner = folds if inner_folds is None else inner_folds
    if dev is None:
        _check_folds(known, folds, inner if test is None else 2, train.name)
    elif len(np.unique(known)) < 2:
        raise DataError(f"{train.name} has one class only: a classifier needs at least two")
    vectors = encode_columns(encoder, [column for examples in given for column in examples.texts])
    width = len(train.texts)
    features = [_features(vectors[at * width : (at + 1) * width]) for at in range(len(given))]
    with threadpool_limits(1):  # with several threads the order of sums changes the outcome
        if test is None:
            scores = _cross_validate(features[0], known, folds, inner, grid or GRID, seed)
        elif dev is None:
            c, seen = _choose_by_folds(features[0], known, folds, grid or FOLDS_GRID, seed)
            scores = _score(_fit(features[0], known, c), features[1], labels_of(test)) | {"dev_accuracy": seen}
        else:
            seen, fitted = _choose_by_dev(features[0], known, features[1], labels_of(dev), grid or GRID)
            scores = _score(fitted, features[2], labels_of(test)) | {"dev_accuracy": seen}
    counts = {"train_rows": len(train), "rows": len(train if test is None else test), "classes": len(np.unique(known))}
    if dev is not None:
        counts["dev_rows"] = len(dev)
    else:
        counts["folds"] = folds
    return Evaluation("transfer", (test or train).name, model, MAIN, scores, counts)


def _check_folds(labels: np.ndarray, folds: int, inner: int, name: str) -> None:
    """Refuses folds that cannot have rows of every class."""
    if min(folds, inner) < 2:
        raise DataError(f"cross-validation needs at least 2 folds, got {min(folds, inner)}")
    kinds, counts = np.unique(labels, return_counts=True)
    if len(kinds) < 2:
        raise DataError(f"{name} has one class only: a classifier needs at least two")
    # What is left of a class when one of the outer folds is taken away must be enough for the inner ones.
    least = max(folds, -(-inner * folds // (folds - 1)))
    if counts.min() < least:
        raise DataError(
            f"{name} has {counts.min()} rows of its rarest class, and {folds} folds need {least}: ask for fewer folds"
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

    said = classifier.predict(features)
    scores = {"accuracy": float((said == labels).mean())}
    if len(classifier.classes_) == 2:
        scores["f1"] = float(f1_score(labels, said, pos_label=classifier.classes_[1]))
    return scores


def _best(accuracies: list[float]) -> int:
    """The first of the best; SentEval compares in percent with two decimals."""
    return int(np.argmax([round(100 * accuracy, 2) for accuracy in accuracies]))


def _choose_by_dev(
    features: np.ndarray, labels: np.ndarray, dev_features: np.ndarray, dev_labels: np.ndarray, grid: Sequence[float]
) -> tuple[float, Any]:
    """The accuracy on dev, and the classifier that reaches it."""
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
    runs, seen = [], []
    for rest, held in _split(labels, folds, seed):
        c, accuracy = _choose_by_folds(features[rest], labels[rest], inner, grid, seed)
        seen.append(accuracy)
        runs.append(_score(_fit(features[rest], labels[rest], c), features[held], labels[held]))
    scores = {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}
    spread = float(np.std([run["accuracy"] for run in runs]))
    return scores | {"accuracy_deviation": spread, "dev_accuracy": float(np.mean(seen))}


def _split(labels: np.ndarray, folds: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    from sklearn.model_selection import StratifiedKFold

    return list(StratifiedKFold(folds, shuffle=True, random_state=seed).split(labels, labels))
