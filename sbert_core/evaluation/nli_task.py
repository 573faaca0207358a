"""NLI task: the accuracy of a simple classifier on two frozen vectors."""

import numpy as np
from threadpoolctl import threadpool_limits

from sbert_core.data.examples import Examples
from sbert_core.errors import DataError
from sbert_core.evaluation.result import Encode, Evaluation
from sbert_core.evaluation.vectors import check_examples, encode_columns, labels_of

MAIN = "accuracy"


def evaluate_nli(
    encoder: Encode, train: Examples, test: Examples, *, c: float = 1.0, model: str = "model"
) -> Evaluation:
    """Accuracy on `test` of a logistic regression on [u; v; |u - v|], trained on the frozen vectors of `train`.

    `c` is scikit-learn's inverse strength of regularisation. Also the macro-averaged F1, and `majority`: the accuracy
    of always predicting the most frequent class of `train`.
    """
    from sklearn.linear_model import LogisticRegression  # takes a second
    from sklearn.metrics import f1_score

    for examples in (train, test):
        check_examples("nli", examples, [2], "classes")
    if train.classes != test.classes:
        raise DataError(
            f"{train.name} has the classes {', '.join(train.classes)} and {test.name} has {', '.join(test.classes)}: "
            "read the test data with the classes of the training data"
        )
    if not c > 0:
        raise DataError(f"c must be above 0, got {c}")
    train_labels, test_labels = labels_of(train), labels_of(test)
    kinds, counts = np.unique(train_labels, return_counts=True)
    if len(kinds) < 2:
        raise DataError(f"{train.name} has one class only: use rows of at least two classes")
    vectors = encode_columns(encoder, [*train.texts, *test.texts])
    with threadpool_limits(1):  # with several threads the order of sums changes the outcome
        classifier = LogisticRegression(C=c, max_iter=1000).fit(_features(*vectors[:2]), train_labels)
        predicted = classifier.predict(_features(*vectors[2:]))
    scores = {
        "accuracy": float((predicted == test_labels).mean()),
        "macro_f1": float(f1_score(test_labels, predicted, average="macro")),
        "majority": float((test_labels == kinds[np.argmax(counts)]).mean()),
    }
    sizes = {"train_rows": len(train), "rows": len(test), "classes": len(kinds)}
    return Evaluation("nli", test.name, model, MAIN, scores, sizes)


def _features(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.concatenate([left, right, np.abs(left - right)], axis=1)
