"""Pairs task: how well a similarity separates positive from negative pairs."""

import numpy as np

from sbert_core.data.examples import Examples
from sbert_core.errors import DataError
from sbert_core.evaluation.curves import calibration, cosine_histogram
from sbert_core.evaluation.metrics import (
    DISTANCES,
    SIMILARITIES,
    at_precision,
    average_precision,
    best_accuracy,
    best_f1,
)
from sbert_core.evaluation.result import Encode, Evaluation
from sbert_core.evaluation.vectors import check_examples, encode_columns, labels_of

MAIN = "cosine_average_precision"


def evaluate_pairs(
    encoder: Encode, examples: Examples, *, minimum_precision: float = 0.9, model: str = "model"
) -> Evaluation:
    """Binary classification of pairs by cosine, dot product, Euclidean and Manhattan distance.

    For each of them: the best accuracy and F1 (with its precision, recall and Matthews' correlation) that a threshold
    can give, and that threshold; average precision; and the threshold with the highest recall whose precision is at
    least `minimum_precision`: if there is none, recall is 0 and the threshold nan. A pair is predicted positive
    from the threshold on; for distances, up to it. Thresholds are chosen on the same rows they are scored on.
    Curves: `scores of positives`, `scores of negatives` and `calibration`, all of cosine.
    """
    check_examples("pairs", examples, [2], "binary labels")
    labels = labels_of(examples)
    left, right = encode_columns(encoder, examples.texts)
    scored = {name: similarity(left, right) for name, similarity in SIMILARITIES.items()}
    scores: dict[str, float] = {}
    try:
        for name, values in scored.items():
            figures = _decide(values, labels, minimum_precision, -1 if name in DISTANCES else 1)
            scores |= {f"{name}_{figure}": value for figure, value in figures.items()}
    except DataError as error:
        raise DataError(f"{examples.name}: {error}") from error
    cosines = scored["cosine"]
    curves = {
        "scores of positives": cosine_histogram(cosines[labels == 1]),
        "scores of negatives": cosine_histogram(cosines[labels == 0]),
        "calibration": calibration(cosines, labels),
    }
    counts = {"rows": len(labels), "positives": int(labels.sum()), "negatives": int((labels == 0).sum())}
    return Evaluation("pairs", examples.name, model, MAIN, scores, counts, curves)


def _decide(scores: np.ndarray, labels: np.ndarray, minimum_precision: float, sign: int) -> dict[str, float]:
    """Figures of one similarity; `sign` is -1 for distances, to report their thresholds as positive numbers."""
    from sklearn.metrics import matthews_corrcoef  # slow to import

    accuracy, f1 = best_accuracy(scores, labels), best_f1(scores, labels)
    precise = at_precision(scores, labels, minimum_precision)
    return {
        "accuracy": accuracy.accuracy,
        "accuracy_threshold": sign * accuracy.threshold,
        "f1": f1.f1,
        "precision": f1.precision,
        "recall": f1.recall,
        "f1_threshold": sign * f1.threshold,
        "mcc": float(matthews_corrcoef(labels, scores >= f1.threshold)),
        "average_precision": average_precision(scores, labels),
        f"recall_at_precision_{minimum_precision:g}": precise.recall,
        f"threshold_at_precision_{minimum_precision:g}": sign * precise.threshold,
    }
