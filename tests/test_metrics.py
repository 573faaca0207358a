"""Figures of merit: by hand, and beside scikit-learn, scipy and sentence-transformers."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, spearmanr
from sentence_transformers import util
from sentence_transformers.sentence_transformer.evaluation import BinaryClassificationEvaluator
from sklearn.metrics import average_precision_score, ndcg_score, precision_recall_curve

from sbert_core.errors import DataError
from sbert_core.evaluation import metrics
from sbert_core.evaluation.metrics import (
    SIMILARITIES,
    at_precision,
    average_precision,
    best_accuracy,
    best_f1,
    mined_scores,
    pearson,
    ranking_scores,
    spearman,
)

SCORES = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
LABELS = np.array([1, 1, 0, 1, 0, 0])


def test_similarities_by_hand():
    left = np.array([[3.0, 4.0], [1.0, 0.0], [0.0, 0.0]], np.float32)
    right = np.array([[3.0, 0.0], [0.0, 2.0], [1.0, 1.0]], np.float32)
    found = {name: similarity(left, right) for name, similarity in SIMILARITIES.items()}
    np.testing.assert_allclose(found["cosine"], [0.6, 0, 0])
    np.testing.assert_allclose(found["dot"], [9, 0, 0])
    np.testing.assert_allclose(found["euclidean"], [-4, -math.sqrt(5), -math.sqrt(2)])
    np.testing.assert_allclose(found["manhattan"], [-4, -3, -2])
    assert all(values.dtype == np.float64 for values in found.values())


@pytest.mark.parametrize("name", SIMILARITIES)
def test_similarities_are_those_of_sentence_transformers(name, monkeypatch):
    monkeypatch.setattr(metrics, "BLOCK_ROWS", 7)
    left, right = np.random.default_rng(0).normal(size=(2, 20, 5)).astype(np.float32)
    peer = {"cosine": util.pairwise_cos_sim, "dot": util.pairwise_dot_score}
    peer |= {"euclidean": util.pairwise_euclidean_sim, "manhattan": util.pairwise_manhattan_sim}
    expected = peer[name](torch.from_numpy(left), torch.from_numpy(right)).numpy()
    np.testing.assert_allclose(SIMILARITIES[name](left, right), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SIMILARITIES)
def test_similarities_of_nothing_and_of_what_does_not_pair(name):
    assert SIMILARITIES[name](np.empty((0, 3)), np.empty((0, 3))).shape == (0,)
    with pytest.raises(DataError, match=r"paired rows, got shapes \(2, 3\) and \(1, 3\)"):
        SIMILARITIES[name](np.zeros((2, 3)), np.zeros((1, 3)))


def test_a_cosine_is_never_past_one():
    rows = np.random.default_rng(0).normal(size=(1000, 7)).astype(np.float32)
    assert SIMILARITIES["cosine"](rows, rows * 3).max() <= 1


def test_correlations():
    rng = np.random.default_rng(0)
    gold = rng.integers(0, 6, 50).astype(np.float32)
    scores = gold + rng.normal(size=50)
    assert pearson(scores, gold) == pytest.approx(pearsonr(scores, gold).statistic, abs=1e-12)
    assert spearman(scores, gold) == pytest.approx(spearmanr(scores, gold).statistic, abs=1e-12)
    assert spearman(np.array([1, 2, 3, 10]), np.array([1, 2, 3, 4])) == pytest.approx(1)
    assert pearson(np.array([1, 2]), np.array([2, 1])) == pytest.approx(-1)


@pytest.mark.parametrize("correlation", [pearson, spearman])
def test_correlations_that_are_not_defined(correlation):
    with pytest.raises(DataError, match=r"every score of 3 rows is 0\.25: a correlation needs values that vary"):
        correlation(np.full(3, 0.25), np.arange(3))
    with pytest.raises(DataError, match="every gold value of 3 rows is 4"):
        correlation(np.arange(3), np.full(3, 4))
    with pytest.raises(DataError, match="every score of 3 rows is 0:"):
        correlation(np.zeros(3), np.arange(3))
    with pytest.raises(DataError, match="every score of 3 rows is 1:"):
        correlation(np.array([1, 1 - 1e-16, 1 - 2e-16]), np.arange(3))
    with pytest.raises(DataError, match="the score of row 1 is not finite"):
        correlation(np.array([1, np.nan, 2]), np.arange(3))
    with pytest.raises(DataError, match="needs at least 2 rows, got 1"):
        correlation(np.zeros(1), np.zeros(1))
    with pytest.raises(DataError, match="needs at least 2 rows, got 0"):
        correlation(np.zeros(0), np.zeros(0))
    with pytest.raises(DataError, match="must pair up"):
        correlation(np.zeros(3), np.zeros(2))


def test_decisions_by_hand():
    assert best_accuracy(SCORES, LABELS) == pytest.approx((5 / 6, 0.75))
    assert best_f1(SCORES, LABELS) == pytest.approx((6 / 7, 3 / 4, 1, 0.55))
    assert average_precision(SCORES, LABELS) == pytest.approx((1 + 1 + 3 / 4) / 3)
    assert at_precision(SCORES, LABELS, 0.9) == pytest.approx((1, 2 / 3, 0.75))
    assert at_precision(SCORES, LABELS, 0.75) == pytest.approx((0.75, 1, 0.55))
    assert at_precision(SCORES, LABELS, 0.1) == pytest.approx((0.75, 1, 0.55))


def test_decisions_where_the_best_is_nothing():
    scores, labels = np.array([0.9, 0.5, 0.1]), np.array([0, 0, 1])
    accuracy, threshold = best_accuracy(scores, labels)
    assert accuracy == pytest.approx(2 / 3)
    assert threshold == np.nextafter(0.9, 1)
    assert not (scores >= threshold).any()
    assert best_f1(scores, labels) == pytest.approx((0.5, 1 / 3, 1, 0.1))
    precision, recall, threshold = at_precision(scores, labels, 0.5)
    assert (math.isnan(precision), recall, math.isnan(threshold)) == (True, 0, True)


def test_equal_scores_are_not_parted():
    scores, labels = np.array([0.5, 0.5, 0.5, 0.2]), np.array([1, 0, 1, 0])
    for order in ([0, 1, 2, 3], [1, 3, 2, 0]):
        assert best_accuracy(scores[order], labels[order]) == pytest.approx((0.75, 0.35))
        assert best_f1(scores[order], labels[order]) == pytest.approx((0.8, 2 / 3, 1, 0.35))
        assert average_precision(scores[order], labels[order]) == pytest.approx(2 / 3)


def test_a_threshold_between_neighbouring_numbers():
    upper = 0.5
    scores = np.array([np.nextafter(upper, 0), upper])
    for found in (best_accuracy(scores, np.array([0, 1])), best_f1(scores, np.array([0, 1]))):
        assert (scores >= found.threshold).tolist() == [False, True]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ties", [False, True])
def test_decisions_are_those_of_the_peers(seed, ties):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, 60)
    scores = labels * 0.7 + rng.normal(size=60)
    if ties:
        scores = scores.round(0)
    peer = BinaryClassificationEvaluator
    assert best_accuracy(scores, labels) == pytest.approx(peer.find_best_acc_and_threshold(scores, labels, True))
    assert best_f1(scores, labels) == pytest.approx(peer.find_best_f1_and_threshold(scores, labels, True))
    assert average_precision(scores, labels) == pytest.approx(average_precision_score(labels, scores))
    precisions, recalls, _ = precision_recall_curve(labels, scores)
    for minimum in (0.5, 0.7, 0.9):
        found = at_precision(scores, labels, minimum)
        assert found.recall == pytest.approx(recalls[precisions >= minimum].max())
        if found.recall:
            taken = scores >= found.threshold
            assert labels[taken].mean() == pytest.approx(found.precision)
            assert found.precision >= minimum


def test_equal_f1_is_chosen_as_sentence_transformers_does():
    rng = np.random.default_rng(0)
    for _ in range(300):  # F1 of few rows is often the same at two thresholds, but for rounding
        labels = np.append(rng.integers(0, 2, 25), [0, 1])
        scores = labels * rng.random() + rng.normal(size=27)
        peer = BinaryClassificationEvaluator.find_best_f1_and_threshold(scores, labels, True)
        assert best_f1(scores, labels) == pytest.approx(peer)


@pytest.mark.parametrize("decide", [best_accuracy, best_f1, average_precision, lambda s, y: at_precision(s, y, 0.5)])
def test_decisions_that_cannot_be_scored(decide):
    with pytest.raises(DataError, match="all 3 labels are 1: use rows with positive and negative labels"):
        decide(SCORES[:3], np.ones(3, int))
    with pytest.raises(DataError, match="all 3 labels are 0"):
        decide(SCORES[:3], np.zeros(3, int))
    with pytest.raises(DataError, match="there are no rows"):
        decide(np.zeros(0), np.zeros(0))
    with pytest.raises(DataError, match="labels must be 0 or 1, got 2"):
        decide(SCORES[:3], np.array([0, 1, 2]))
    with pytest.raises(DataError, match="the score of row 2 is not finite"):
        decide(np.array([0, 1, np.inf]), np.array([0, 1, 1]))
    with pytest.raises(DataError, match="must pair up"):
        decide(SCORES, np.array([0, 1]))


@pytest.mark.parametrize("minimum", [0, -0.1, 1.1, math.nan])
def test_minimum_precision_is_a_share(minimum):
    with pytest.raises(DataError, match="minimum precision must be above 0 and at most 1"):
        at_precision(SCORES, LABELS, minimum)


def test_mined_pairs_by_hand():
    pairs, scores = np.array([[0, 1], [3, 2], [0, 4], [1, 2]]), np.array([0.9, 0.8, 0.7, 0.6])
    found = mined_scores(pairs, scores, [(1, 0), (2, 1), (5, 6)])  # one of them was not found
    assert found.average_precision == pytest.approx((1 + 2 / 4) / 3)
    assert found.best == pytest.approx((4 / 7, 0.5, 2 / 3, 0.6))
    perfect = mined_scores(pairs[:2], scores[:2], [(0, 1), (2, 3)])
    assert (perfect.average_precision, perfect.best.f1) == (1, 1)


def test_mined_pairs_without_a_right_one():
    for pairs in (np.array([[0, 1]]), np.empty((0, 2), int)):
        found = mined_scores(pairs, np.ones(len(pairs)), [(2, 3)])
        assert found.average_precision == 0
        assert found.best[:3] == (0, 0, 0)
        assert math.isnan(found.best.threshold)


def test_mined_pairs_refused():
    with pytest.raises(DataError, match="there are no gold pairs"):
        mined_scores(np.array([[0, 1]]), np.ones(1), [])
    with pytest.raises(DataError, match="2 pairs have 1 scores"):
        mined_scores(np.array([[0, 1], [1, 2]]), np.ones(1), [(0, 1)])
    with pytest.raises(DataError, match="a pair occurs twice"):
        mined_scores(np.array([[0, 1], [1, 0]]), np.ones(2), [(0, 1)])


def test_rankings_by_hand():
    relevance = np.array([[0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0]], bool)
    found = ranking_scores(relevance, np.array([3, 1, 1]), [1, 4])
    first = (1 / math.log2(3) + 1 / math.log2(5)) / (1 + 1 / math.log2(3) + 1 / math.log2(4))
    assert found == pytest.approx(
        {
            "accuracy@1": 1 / 3,
            "precision@1": 1 / 3,
            "recall@1": 1 / 3,
            "mrr@1": 1 / 3,
            "ndcg@1": 1 / 3,
            "map@1": 1 / 3,
            "accuracy@4": 2 / 3,
            "precision@4": (2 / 4 + 0 + 1 / 4) / 3,
            "recall@4": (2 / 3 + 0 + 1) / 3,
            "mrr@4": (1 / 2 + 0 + 1) / 3,
            "ndcg@4": (first + 0 + 1) / 3,
            "map@4": ((1 / 2 + 2 / 4) / 3 + 0 + 1) / 3,
        }
    )


def test_ndcg_is_that_of_scikit_learn():
    relevance = np.random.default_rng(1).random((30, 12)) < 0.3
    relevance[:, 5] = True
    places = -np.arange(12.0)[None].repeat(30, axis=0)
    found = ranking_scores(relevance, relevance.sum(axis=1), [3, 10])
    for k in (3, 10):
        assert found[f"ndcg@{k}"] == pytest.approx(ndcg_score(relevance.astype(int), places, k=k))


def test_rankings_refused():
    some = np.ones((2, 3), bool)
    for ks in ([4], [0], []):
        with pytest.raises(DataError, match=r"each k must be from 1 to the 3 places"):
            ranking_scores(some, np.array([3, 3]), ks)
    with pytest.raises(DataError, match="query 1 has 2 relevant documents in total, but 3 in its ranking"):
        ranking_scores(some, np.array([3, 2]), [1])
    with pytest.raises(DataError, match="query 0 has 0 relevant documents in total"):
        ranking_scores(np.zeros((1, 2), bool), np.array([0]), [1])
    with pytest.raises(DataError, match="no queries"):
        ranking_scores(np.zeros((0, 2), bool), np.zeros(0), [1])
    with pytest.raises(DataError, match="a total per query"):
        ranking_scores(some, np.array([3]), [1])
