"""Metrics as functions of arrays: similarity, correlation, binary decisions, rankings, mined pairs.

Scores are similarities: higher means more similar, and a distance is used as its negative.
"""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np

from sbert_core.errors import DataError

BLOCK_ROWS = 8192  # converted to float64 at once
_CONSTANT_RANGE = 1e-9  # relative; a smaller range of scores is rounding of float32 vectors


def cosine_similarity(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Cosines (n,) of paired rows (n, dim); 0 where a row has no direction."""
    return _by_blocks(_cosines, left, right)


def dot_similarity(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Dot products (n,) of paired rows."""
    return _by_blocks(lambda a, b: np.einsum("nd,nd->n", a, b), left, right)


def euclidean_similarity(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Negative Euclidean distances (n,) of paired rows."""
    return _by_blocks(lambda a, b: -np.linalg.norm(a - b, axis=1), left, right)


def manhattan_similarity(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Negative sums of absolute differences (n,) of paired rows."""
    return _by_blocks(lambda a, b: -np.abs(a - b).sum(axis=1), left, right)


SIMILARITIES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "cosine": cosine_similarity,
    "dot": dot_similarity,
    "euclidean": euclidean_similarity,
    "manhattan": manhattan_similarity,
}
DISTANCES = ("euclidean", "manhattan")  # similarities that are negative distances


def _by_blocks(
    function: Callable[[np.ndarray, np.ndarray], np.ndarray], left: np.ndarray, right: np.ndarray
) -> np.ndarray:
    if left.shape != right.shape or left.ndim != 2:
        raise DataError(f"expected two arrays of paired rows, got shapes {left.shape} and {right.shape}")
    blocks = [slice(start, start + BLOCK_ROWS) for start in range(0, len(left), BLOCK_ROWS)]
    parts = [function(left[block].astype(np.float64), right[block].astype(np.float64)) for block in blocks]
    return np.concatenate([np.empty(0), *parts])


def _cosines(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    products = np.einsum("nd,nd->n", left, right)
    return np.clip(np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0), -1, 1)


def pearson(scores: np.ndarray, gold: np.ndarray) -> float:
    """Pearson's correlation of scores (n,) and gold values (n,)."""
    from scipy.stats import pearsonr

    return float(pearsonr(*_checked_for_correlation(scores, gold)).statistic)


def spearman(scores: np.ndarray, gold: np.ndarray) -> float:
    """Spearman's rank correlation; equal values share their mean rank."""
    from scipy.stats import spearmanr

    return float(spearmanr(*_checked_for_correlation(scores, gold)).statistic)


def _checked_for_correlation(scores: np.ndarray, gold: np.ndarray) -> list[np.ndarray]:
    columns = [np.asarray(scores, np.float64), np.asarray(gold, np.float64)]
    if columns[0].shape != columns[1].shape or columns[0].ndim != 1:
        raise DataError(f"scores and gold values must pair up, got shapes {columns[0].shape} and {columns[1].shape}")
    if len(columns[0]) < 2:
        raise DataError(f"a correlation needs at least 2 rows, got {len(columns[0])}")
    for name, values in zip(("score", "gold value"), columns, strict=True):
        if not np.isfinite(values).all():
            raise DataError(f"the {name} of row {np.flatnonzero(~np.isfinite(values))[0]} is not finite")
        if np.ptp(values) <= _CONSTANT_RANGE * np.abs(values).max():
            raise DataError(
                f"every {name} of {len(values)} rows is {values[0]:.6g}: a correlation needs values that vary"
            )
    return columns


class BestAccuracy(NamedTuple):
    """The highest accuracy, and its threshold: rows with at least this score are predicted positive."""

    accuracy: float
    threshold: float


class BestF1(NamedTuple):
    """The highest F1 with its precision, recall and threshold."""

    f1: float
    precision: float
    recall: float
    threshold: float


class AtPrecision(NamedTuple):
    """The highest recall at a required precision; nan, 0 and nan if it is never reached."""

    precision: float
    recall: float
    threshold: float


class _Cuts(NamedTuple):
    """Counts at each threshold between two different scores, from the highest threshold on."""

    true_positives: np.ndarray
    predicted: np.ndarray  # rows that are predicted positive
    thresholds: np.ndarray


def _cut(scores: np.ndarray, labels: np.ndarray) -> _Cuts:
    """Counts at all thresholds. Rows of equal score stay together; a threshold is half-way to the next lower score."""
    order = np.argsort(-scores, kind="stable")
    scores, labels = scores[order], labels[order]
    ends = np.flatnonzero(np.append(scores[1:] != scores[:-1], True)) if len(scores) else np.empty(0, np.int64)
    below = scores[np.minimum(ends + 1, len(scores) - 1)]
    middles = scores[ends] / 2 + below / 2
    # The middle of adjacent floats may be rounded to the lower one, which would include its row.
    thresholds = np.where((middles == below) & (below < scores[ends]), scores[ends], middles)
    return _Cuts(np.cumsum(labels)[ends], ends + 1, thresholds)


def best_accuracy(scores: np.ndarray, labels: np.ndarray) -> BestAccuracy:
    """The best accuracy of all thresholds for labels (n,) of 0 and 1; of equal ones the highest threshold."""
    scores, labels = _checked_for_decision(scores, labels)
    cuts = _cut(scores, labels)
    negatives = len(labels) - labels.sum()
    correct = cuts.true_positives + negatives - (cuts.predicted - cuts.true_positives)
    best = int(np.argmax(correct))
    if correct[best] <= negatives:  # predicting no positives is no worse
        return BestAccuracy(float(negatives / len(labels)), float(np.nextafter(scores.max(), np.inf)))
    return BestAccuracy(float(correct[best] / len(labels)), float(cuts.thresholds[best]))


def best_f1(scores: np.ndarray, labels: np.ndarray) -> BestF1:
    """The best F1 of all thresholds."""
    scores, labels = _checked_for_decision(scores, labels)
    return _best_f1(_cut(scores, labels), int(labels.sum()))


def average_precision(scores: np.ndarray, labels: np.ndarray) -> float:
    """Mean over the positives of the precision at their score: the area below the steps of precision and recall."""
    scores, labels = _checked_for_decision(scores, labels)
    return _average_precision(_cut(scores, labels), int(labels.sum()))


def at_precision(scores: np.ndarray, labels: np.ndarray, minimum: float) -> AtPrecision:
    """The threshold with the highest recall, of equal ones the highest, whose precision is at least `minimum`."""
    if not 0 < minimum <= 1:
        raise DataError(f"the minimum precision must be above 0 and at most 1, got {minimum}")
    scores, labels = _checked_for_decision(scores, labels)
    cuts = _cut(scores, labels)
    precision = cuts.true_positives / cuts.predicted
    allowed = np.flatnonzero(precision >= minimum)
    if not len(allowed):
        return AtPrecision(np.nan, 0.0, np.nan)
    best = allowed[np.argmax(cuts.true_positives[allowed])]  # the first: the same recall with fewer false positives
    return AtPrecision(
        float(precision[best]), float(cuts.true_positives[best] / labels.sum()), float(cuts.thresholds[best])
    )


def _best_f1(cuts: _Cuts, total: int) -> BestF1:
    if not cuts.true_positives.any():
        return BestF1(0.0, 0.0, 0.0, np.nan)
    precision, recall = cuts.true_positives / cuts.predicted, cuts.true_positives / total
    # The order of operations is that of sentence-transformers: rounding decides between equal values.
    found = 2 * precision * recall / np.where(cuts.true_positives > 0, precision + recall, 1)
    best = int(np.argmax(found))
    return BestF1(*(float(values[best]) for values in (found, precision, recall, cuts.thresholds)))


def _average_precision(cuts: _Cuts, total: int) -> float:
    return float((cuts.true_positives / cuts.predicted * np.diff(cuts.true_positives, prepend=0)).sum() / total)


def _checked_for_decision(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scores, labels = np.asarray(scores, np.float64), np.asarray(labels)
    if scores.shape != labels.shape or scores.ndim != 1:
        raise DataError(f"scores and labels must pair up, got shapes {scores.shape} and {labels.shape}")
    if not np.isfinite(scores).all():
        raise DataError(f"the score of row {np.flatnonzero(~np.isfinite(scores))[0]} is not finite")
    if not np.isin(labels, (0, 1)).all():
        raise DataError(f"labels must be 0 or 1, got {labels[~np.isin(labels, (0, 1))][0]}")
    kinds = np.unique(labels)
    if len(kinds) < 2:
        problem = f"all {len(labels)} labels are {kinds[0]}" if len(kinds) else "there are no rows"
        raise DataError(f"{problem}: use rows with positive and negative labels")
    return scores, labels.astype(np.int64)


class MinedScores(NamedTuple):
    """Agreement of mined pairs with the gold pairs."""

    average_precision: float
    best: BestF1


def mined_scores(pairs: np.ndarray, scores: np.ndarray, gold: Collection[tuple[int, int]]) -> MinedScores:
    """Average precision and best F1 of pairs (n, 2) of rows with scores (n,) against the gold pairs, in any order.

    A gold pair that was not mined is missed at every threshold.
    """
    gold_pairs = {(min(pair), max(pair)) for pair in gold}
    if not gold_pairs:
        raise DataError("there are no gold pairs: give at least one")
    found = np.asarray(pairs, np.int64).reshape(-1, 2)
    scores = np.asarray(scores, np.float64)
    if len(found) != len(scores):
        raise DataError(f"{len(found)} pairs have {len(scores)} scores")
    keys = found.min(axis=1) << 32 | found.max(axis=1)
    if len(np.unique(keys)) < len(keys):
        raise DataError("a pair occurs twice: give each pair of rows once")
    is_gold = np.isin(keys, [low << 32 | high for low, high in gold_pairs]).astype(np.int64)
    cuts = _cut(scores, is_gold)
    return MinedScores(_average_precision(cuts, len(gold_pairs)), _best_f1(cuts, len(gold_pairs)))


def ranking_scores(relevance: np.ndarray, totals: np.ndarray, ks: Sequence[int]) -> dict[str, float]:
    """Figures at each k of rankings, as means over the queries.

    Args:
        relevance: (n, depth) bool, whether the result at each place, best first, is relevant; depth is at least the
            largest k, with False after the end of the corpus.
        totals: (n,), the number of relevant documents of each query in the corpus, found or not; at least 1.
        ks: numbers of places to score.

    Returns:
        `accuracy@k`: share of queries with a relevant result among the first k; `precision@k`, `recall@k`; `mrr@k`: one
        over the place of the first relevant one, 0 if it is past k; `ndcg@k`: gains 1, discount log2(place + 1);
        `map@k`: the precisions at relevant places, summed and divided by the maximum possible number.
    """
    relevance, totals = np.asarray(relevance, bool), np.asarray(totals, np.int64)
    _check_ranking(relevance, totals, ks)
    places = np.arange(1, relevance.shape[1] + 1)
    discounts = 1 / np.log2(places + 1)
    ideal = np.cumsum(discounts)
    hits = np.cumsum(relevance, axis=1)
    scores: dict[str, float] = {}
    for k in ks:
        top, maximum = relevance[:, :k], np.minimum(totals, k)
        found = hits[:, k - 1]
        values = {
            "accuracy": found > 0,
            "precision": found / k,
            "recall": found / totals,
            "mrr": np.where(found > 0, 1 / (top.argmax(axis=1) + 1), 0),
            "ndcg": (top * discounts[:k]).sum(axis=1) / ideal[maximum - 1],
            "map": (top * hits[:, :k] / places[:k]).sum(axis=1) / maximum,
        }
        scores |= {f"{name}@{k}": float(value.mean()) for name, value in values.items()}
    return scores


def _check_ranking(relevance: np.ndarray, totals: np.ndarray, ks: Sequence[int]) -> None:
    if relevance.ndim != 2 or totals.shape != relevance.shape[:1]:
        raise DataError(f"expected a row of places and a total per query, got {relevance.shape} and {totals.shape}")
    if not len(relevance):
        raise DataError("there are no queries: give at least one")
    if not ks or min(ks) < 1 or max(ks) > relevance.shape[1]:
        raise DataError(f"each k must be from 1 to the {relevance.shape[1]} places of the ranking, got {list(ks)}")
    if (totals < np.maximum(relevance.sum(axis=1), 1)).any():
        row = np.flatnonzero(totals < np.maximum(relevance.sum(axis=1), 1))[0]
        raise DataError(
            f"query {row} has {totals[row]} relevant documents in total, but {relevance[row].sum()} in its ranking"
        )
