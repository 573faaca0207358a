"""Figures of merit as plain functions of arrays: similarity, correlation, binary decisions, rankings, mined pairs.

Scores are similarities throughout, the higher the more alike: a distance enters as its negative.
"""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np

from sbert_core.errors import DataError

BLOCK_ROWS = 8192  # whose float64 copies are in memory at once
_SAME = 1e-9  # scores that differ by less, relatively, differ by the rounding of float32 vectors


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
DISTANCES = ("euclidean", "manhattan")  # whose similarity is the negative of what people read


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
        if np.ptp(values) <= _SAME * np.abs(values).max():
            raise DataError(
                f"every {name} of {len(values)} rows is {values[0]:.6g}: what does not vary correlates with nothing"
            )
    return columns


class BestAccuracy(NamedTuple):
    """The highest share of right decisions, and the score from which on rows are called positive to reach it."""

    accuracy: float
    threshold: float


class BestF1(NamedTuple):
    """The highest F1, with its precision and recall, and the score from which on rows are called positive."""

    f1: float
    precision: float
    recall: float
    threshold: float


class AtPrecision(NamedTuple):
    """The most that can be found at a wanted precision; nan, 0 and nan where it is never reached."""

    precision: float
    recall: float
    threshold: float


class _Cuts(NamedTuple):
    """What each threshold between two different scores gives, from the highest on."""

    hits: np.ndarray  # positives above the threshold
    taken: np.ndarray  # rows above it
    thresholds: np.ndarray


def _cut(scores: np.ndarray, labels: np.ndarray) -> _Cuts:
    """Rows of equal score are never parted. A threshold is half-way to the next score below."""
    order = np.argsort(-scores, kind="stable")
    scores, labels = scores[order], labels[order]
    ends = np.flatnonzero(np.append(scores[1:] != scores[:-1], True)) if len(scores) else np.empty(0, np.int64)
    below = scores[np.minimum(ends + 1, len(scores) - 1)]
    middles = scores[ends] / 2 + below / 2
    # The middle of neighbouring numbers may be rounded to the lower one, which is not to be taken.
    thresholds = np.where((middles == below) & (below < scores[ends]), scores[ends], middles)
    return _Cuts(np.cumsum(labels)[ends], ends + 1, thresholds)


def best_accuracy(scores: np.ndarray, labels: np.ndarray) -> BestAccuracy:
    """The best accuracy any threshold gives for labels (n,) of 0 and 1; of equal ones the highest threshold."""
    scores, labels = _checked_for_decision(scores, labels)
    cuts = _cut(scores, labels)
    negatives = len(labels) - labels.sum()
    right = cuts.hits + negatives - (cuts.taken - cuts.hits)
    best = int(np.argmax(right))
    if right[best] <= negatives:  # calling nothing positive is as good
        return BestAccuracy(float(negatives / len(labels)), float(np.nextafter(scores.max(), np.inf)))
    return BestAccuracy(float(right[best] / len(labels)), float(cuts.thresholds[best]))


def best_f1(scores: np.ndarray, labels: np.ndarray) -> BestF1:
    """The best F1 any threshold gives."""
    scores, labels = _checked_for_decision(scores, labels)
    return _best_f1(_cut(scores, labels), int(labels.sum()))


def average_precision(scores: np.ndarray, labels: np.ndarray) -> float:
    """Mean over the positives of the precision at their score: the area below the steps of precision and recall."""
    scores, labels = _checked_for_decision(scores, labels)
    return _average_precision(_cut(scores, labels), int(labels.sum()))


def at_precision(scores: np.ndarray, labels: np.ndarray, wanted: float) -> AtPrecision:
    """The threshold with the highest recall, of equal ones the highest, whose precision is at least `wanted`."""
    if not 0 < wanted <= 1:
        raise DataError(f"the wanted precision must be above 0 and at most 1, got {wanted}")
    scores, labels = _checked_for_decision(scores, labels)
    cuts = _cut(scores, labels)
    precision = cuts.hits / cuts.taken
    good = np.flatnonzero(precision >= wanted)
    if not len(good):
        return AtPrecision(np.nan, 0.0, np.nan)
    # The same recall with fewer wrong ones is better.
    best = good[np.argmax(cuts.hits[good])]
    return AtPrecision(float(precision[best]), float(cuts.hits[best] / labels.sum()), float(cuts.thresholds[best]))


def matthews(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Matthews' correlation of decisions and labels, both 0 and 1; 0 if all decisions are one."""
    predicted, labels = np.asarray(predicted, np.float64), np.asarray(labels, np.float64)
    spread = predicted.std() * labels.std()
    return float(((predicted - predicted.mean()) * (labels - labels.mean())).mean() / spread) if spread else 0.0


def _best_f1(cuts: _Cuts, total: int) -> BestF1:
    if not cuts.hits.any():
        return BestF1(0.0, 0.0, 0.0, np.nan)
    precision, recall = cuts.hits / cuts.taken, cuts.hits / total
    # In the order of operations of sentence-transformers: its rounding decides between equal ones.
    found = 2 * precision * recall / np.where(cuts.hits > 0, precision + recall, 1)
    best = int(np.argmax(found))
    return BestF1(*(float(values[best]) for values in (found, precision, recall, cuts.thresholds)))


def _average_precision(cuts: _Cuts, total: int) -> float:
    return float((cuts.hits / cuts.taken * np.diff(cuts.hits, prepend=0)).sum() / total)


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
        told = f"all {len(labels)} labels are {kinds[0]}" if len(kinds) else "there are no rows"
        raise DataError(f"{told}: positives and negatives are needed to tell them apart")
    return scores, labels.astype(np.int64)


class MinedScores(NamedTuple):
    """How well pairs found by their score agree with the pairs there are."""

    average_precision: float
    best: BestF1


def mined_scores(pairs: np.ndarray, scores: np.ndarray, gold: Collection[tuple[int, int]]) -> MinedScores:
    """Average precision and best F1 of pairs (n, 2) of rows with scores (n,) against the gold pairs, in any order.

    A gold pair that was not found counts as missed at every threshold.
    """
    wanted = {(min(pair), max(pair)) for pair in gold}
    if not wanted:
        raise DataError("there are no gold pairs to find")
    found = np.asarray(pairs, np.int64).reshape(-1, 2)
    scores = np.asarray(scores, np.float64)
    if len(found) != len(scores):
        raise DataError(f"{len(found)} pairs have {len(scores)} scores")
    keys = found.min(axis=1) << 32 | found.max(axis=1)
    if len(np.unique(keys)) < len(keys):
        raise DataError("a pair is there twice: each pair of rows has one score")
    right = np.isin(keys, [low << 32 | high for low, high in wanted]).astype(np.int64)
    cuts = _cut(scores, right)
    return MinedScores(_average_precision(cuts, len(wanted)), _best_f1(cuts, len(wanted)))


def ranking_scores(relevance: np.ndarray, totals: np.ndarray, ks: Sequence[int]) -> dict[str, float]:
    """Figures at each k of rankings, as means over the queries.

    Args:
        relevance: (n, depth) bool, whether what stands at each place, the best first, is relevant; at least as deep as
            the greatest k, with False where the corpus ends.
        totals: (n,), how many relevant ones each query has in the corpus, found or not; at least 1.
        ks: how many places count.

    Returns:
        `accuracy@k`: share of queries with a relevant one among the first k; `precision@k`, `recall@k`; `mrr@k`: one
        over the place of the first relevant one, 0 if it is past k; `ndcg@k`: gains 1, discount log2(place + 1);
        `map@k`: the precisions at relevant places, summed and divided by the most there can be.
    """
    relevance, totals = np.asarray(relevance, bool), np.asarray(totals, np.int64)
    _check_ranking(relevance, totals, ks)
    places = np.arange(1, relevance.shape[1] + 1)
    discounts = 1 / np.log2(places + 1)
    ideal = np.cumsum(discounts)
    hits = np.cumsum(relevance, axis=1)
    scores: dict[str, float] = {}
    for k in ks:
        top, most = relevance[:, :k], np.minimum(totals, k)
        found = hits[:, k - 1]
        values = {
            "accuracy": found > 0,
            "precision": found / k,
            "recall": found / totals,
            "mrr": np.where(found > 0, 1 / (top.argmax(axis=1) + 1), 0),
            "ndcg": (top * discounts[:k]).sum(axis=1) / ideal[most - 1],
            "map": (top * hits[:, :k] / places[:k]).sum(axis=1) / most,
        }
        scores |= {f"{name}@{k}": float(value.mean()) for name, value in values.items()}
    return scores


def _check_ranking(relevance: np.ndarray, totals: np.ndarray, ks: Sequence[int]) -> None:
    if relevance.ndim != 2 or totals.shape != relevance.shape[:1]:
        raise DataError(f"expected a row of places and a total per query, got {relevance.shape} and {totals.shape}")
    if not len(relevance):
        raise DataError("there are no queries to rank for")
    if not ks or min(ks) < 1 or max(ks) > relevance.shape[1]:
        raise DataError(f"each k must be from 1 to the {relevance.shape[1]} places of the ranking, got {list(ks)}")
    if (totals < np.maximum(relevance.sum(axis=1), 1)).any():
        row = np.flatnonzero(totals < np.maximum(relevance.sum(axis=1), 1))[0]
        raise DataError(f"query {row} has {totals[row]} relevant in all, and {relevance[row].sum()} among its places")
