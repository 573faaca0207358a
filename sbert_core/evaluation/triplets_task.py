"""Triplets task: whether the anchor is nearer to the positive than to the negative."""

from sbert_core.data.examples import Examples
from sbert_core.evaluation.curves import cosine_histogram
from sbert_core.evaluation.metrics import SIMILARITIES
from sbert_core.evaluation.result import Encode, Evaluation
from sbert_core.evaluation.vectors import check_examples, encode_columns

MAIN = "cosine_accuracy"


def evaluate_triplets(encoder: Encode, examples: Examples, *, model: str = "model") -> Evaluation:
    """The share of triplets whose positive is nearer than the negative, by cosine, Euclidean and Manhattan distance.

    Equal distances do not count. For a model with prompts, the anchor is a query and the others are documents.
    Curves: `scores of positives` and `scores of negatives`, of cosine.
    """
    check_examples("triplets", examples, [3])
    anchors, positives, negatives = encode_columns(encoder, examples.texts, ["query", "document", "document"])
    scores = {}
    for name in ("cosine", "euclidean", "manhattan"):
        nearer = SIMILARITIES[name](anchors, positives) > SIMILARITIES[name](anchors, negatives)
        scores[f"{name}_accuracy"] = float(nearer.mean())
    curves = {
        "scores of positives": cosine_histogram(SIMILARITIES["cosine"](anchors, positives)),
        "scores of negatives": cosine_histogram(SIMILARITIES["cosine"](anchors, negatives)),
    }
    return Evaluation("triplets", examples.name, model, MAIN, scores, {"rows": len(examples)}, curves)
