"""Semantic textual similarity beside scipy and sentence-transformers."""

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

from sbert_core.data.examples import Examples
from sbert_core.errors import DataError
from sbert_core.evaluation.metrics import SIMILARITIES
from sbert_core.evaluation.result import Evaluation
from sbert_core.evaluation.sts_task import evaluate_sts
from tests.evaluation_peers import GivenVectors, draw

ROWS = 30


@pytest.fixture
def encoder() -> GivenVectors:
    return draw(2 * ROWS)


@pytest.fixture
def examples() -> Examples:
    left, right = [f"text {row}" for row in range(ROWS)], [f"text {row}" for row in range(ROWS, 2 * ROWS)]
    return Examples((left, right), np.random.default_rng(1).integers(0, 6, ROWS).astype(np.float32), name="here")


def test_figures_are_those_of_sentence_transformers(encoder, examples):
    found = evaluate_sts(encoder, examples, model="fake")
    peer = EmbeddingSimilarityEvaluator(
        *examples.texts, examples.labels.tolist(), similarity_fn_names=list(SIMILARITIES), write_csv=False
    )(encoder)
    assert len(found.scores) == 8
    for name in SIMILARITIES:
        for correlation in ("pearson", "spearman"):
            expected = pytest.approx(peer[f"{correlation}_{name}"], abs=1e-5)
            assert found.scores[f"{name}_{correlation}"] == expected
    assert (found.task, found.data, found.model, found.main) == ("sts", "here", "fake", "cosine_spearman")
    assert (found.counts, found.parts) == ({"rows": ROWS}, [])
    assert sum(count for _, count in found.curves["scores"]) == ROWS


def test_groups(encoder, examples):
    groups = ["x"] * 12 + [2014] * 8 + ["x"] * 10
    found = evaluate_sts(encoder, examples, groups)
    assert [(part.data, part.counts["rows"]) for part in found.parts] == [("x", 22), ("2014", 8)]
    rows = np.array([group == "x" for group in groups])
    cosines = SIMILARITIES["cosine"](*(encoder.encode(column) for column in examples.texts))
    one = spearmanr(cosines[rows], examples.labels[rows]).statistic
    other = spearmanr(cosines[~rows], examples.labels[~rows]).statistic
    assert found.parts[0].score == pytest.approx(one)
    assert found.score == found.scores["cosine_spearman"] == pytest.approx((one + other) / 2)
    assert found.scores["cosine_spearman_weighted"] == pytest.approx((22 * one + 8 * other) / 30)
    assert found.scores["cosine_spearman_pooled"] == pytest.approx(spearmanr(cosines, examples.labels).statistic)
    assert found.scores["cosine_pearson_pooled"] == pytest.approx(pearsonr(cosines, examples.labels).statistic)
    assert found.counts == {"rows": ROWS, "groups": 2}
    assert len(found.scores) == 24
    assert Evaluation.from_dict(found.to_dict()) == found


def test_one_group_is_the_whole(encoder, examples):
    whole, found = evaluate_sts(encoder, examples), evaluate_sts(encoder, examples, ["x"] * ROWS)
    assert found.score == pytest.approx(whole.score)
    assert found.parts[0].scores == whole.scores


def test_what_does_not_vary(examples):
    same = GivenVectors(dict.fromkeys([text for column in examples.texts for text in column], np.ones(3)))
    with pytest.raises(
        DataError, match="here, cosine against gold: every score of 30 rows is 1: a correlation needs values that vary"
    ):
        evaluate_sts(same, examples)


def test_a_group_that_cannot_be_scored(encoder, examples):
    examples.labels[:3] = 2
    with pytest.raises(DataError, match="odd, cosine against gold: every gold value of 3 rows is 2"):
        evaluate_sts(encoder, examples, ["odd"] * 3 + ["good"] * 27)
    with pytest.raises(DataError, match="odd, cosine against gold: a correlation needs at least 2 rows, got 1"):
        evaluate_sts(encoder, examples, ["odd"] + ["good"] * 29)
    with pytest.raises(DataError, match="here has 30 rows and 2 groups"):
        evaluate_sts(encoder, examples, ["a", "b"])


def test_bad_examples(encoder, examples):
    with pytest.raises(DataError, match="has no rows"):
        evaluate_sts(encoder, examples.take(np.array([])))
    with pytest.raises(DataError, match="sts needs gold scores"):
        evaluate_sts(encoder, Examples(examples.texts))
    with pytest.raises(DataError, match="2 text column"):
        evaluate_sts(encoder, Examples(examples.texts[:1], examples.labels))
