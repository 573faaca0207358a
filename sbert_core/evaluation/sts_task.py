"""STS task: correlation of similarities with human scores."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from sbert_core.data.examples import Examples
from sbert_core.errors import DataError
from sbert_core.evaluation.curves import cosine_histogram
from sbert_core.evaluation.metrics import SIMILARITIES, pearson, spearman
from sbert_core.evaluation.result import Encode, Evaluation
from sbert_core.evaluation.vectors import check_examples, encode_columns, labels_of

MAIN = "cosine_spearman"


def evaluate_sts(
    encoder: Encode, examples: Examples, groups: Sequence[object] | None = None, *, model: str = "model"
) -> Evaluation:
    """Spearman and Pearson of gold scores with cosine, dot product, negative Euclidean and Manhattan distance.

    With `groups`, the subset, year or language of each row, every group is scored separately and is one of the
    `parts`. Three figures then summarise them; papers differ in which one they report:

    - `cosine_spearman`: the unweighted mean of the groups (SentEval's "mean");
    - `cosine_spearman_weighted`: the mean of the groups weighted by their rows (SentEval's "wmean");
    - `cosine_spearman_pooled`: one correlation over the rows of all groups together ("all" in later papers).

    For the figures per year that papers call "all", group by year: each part is then pooled over its subsets.
    """
    check_examples("sts", examples, [2], "gold scores")
    gold = labels_of(examples)
    left, right = encode_columns(encoder, examples.texts)
    scored = {name: similarity(left, right) for name, similarity in SIMILARITIES.items()}
    pooled = _score(scored, gold, examples.name, model)
    if groups is None:
        return pooled
    if len(groups) != len(examples):
        raise DataError(f"{examples.name} has {len(examples)} rows and {len(groups)} groups: give one group per row")
    numbers = {name: number for number, name in enumerate(dict.fromkeys(groups))}
    member = np.array([numbers[name] for name in groups])
    parts = []
    for name, number in numbers.items():
        rows = member == number
        parts.append(_score({key: of[rows] for key, of in scored.items()}, gold[rows], str(name), model))
    return _mean(pooled, parts)


def _score(scored: dict[str, np.ndarray], gold: np.ndarray, name: str, model: str) -> Evaluation:
    scores = {}
    for similarity, values in scored.items():
        try:
            scores[f"{similarity}_spearman"] = spearman(values, gold)
            scores[f"{similarity}_pearson"] = pearson(values, gold)
        except DataError as error:
            raise DataError(f"{name}, {similarity} against gold: {error}") from error
    curves = {"scores": cosine_histogram(scored["cosine"])}
    return Evaluation("sts", name, model, MAIN, scores, {"rows": len(gold)}, curves)


def _mean(pooled: Evaluation, parts: list[Evaluation]) -> Evaluation:
    """The means of the parts, followed by the pooled figures."""
    weights = [part.counts["rows"] for part in parts]
    values = {name: [part.scores[name] for part in parts] for name in pooled.scores}
    scores = (
        {name: float(np.mean(column)) for name, column in values.items()}
        | {f"{name}_weighted": float(np.average(column, weights=weights)) for name, column in values.items()}
        | {f"{name}_pooled": value for name, value in pooled.scores.items()}
    )
    counts = pooled.counts | {"groups": len(parts)}
    return dataclasses.replace(pooled, scores=scores, counts=counts, parts=parts)
