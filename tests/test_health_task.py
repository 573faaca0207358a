import numpy as np
import pytest
from scipy.spatial.distance import pdist
from scipy.stats import skew

from sbert_core.data.examples import Examples
from sbert_core.errors import DataError
from sbert_core.evaluation import health_task as health
from sbert_core.evaluation.health_task import evaluate_health


class Table:
    """Texts that are numbers of rows, encoded as these rows."""

    def __init__(self, rows) -> None:
        self.rows = np.asarray(rows, np.float32)

    def encode(self, texts) -> np.ndarray:
        return self.rows[[int(text) for text in texts]]


def names(n) -> list[str]:
    return [str(row) for row in range(n)]


@pytest.fixture
def rows() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(60, 12)).astype(np.float32) + 0.4


def test_figures_are_those_of_scipy(rows):
    evaluation = evaluate_health(Table(rows), Examples((names(60),)))
    unit = rows.astype(np.float64) / np.linalg.norm(rows, axis=1, keepdims=True)
    distances = pdist(unit)
    assert evaluation.scores["uniformity"] == pytest.approx(np.log(np.exp(-2 * distances**2).mean()), abs=1e-6)
    assert evaluation.scores["mean_cosine"] == pytest.approx((1 - distances**2 / 2).mean(), abs=1e-6)
    parts = np.linalg.svd(unit - unit.mean(axis=0), compute_uv=False) ** 2
    assert evaluation.scores["first_component"] == pytest.approx(parts[0] / parts.sum(), abs=1e-6)
    assert evaluation.scores["first_10_components"] == pytest.approx(parts[:10].sum() / parts.sum(), abs=1e-6)
    cosines = unit @ unit.T - 9 * np.eye(60)
    occurrences = np.bincount(np.argsort(-cosines, axis=1)[:, :10].ravel(), minlength=60)
    assert evaluation.scores["hubness"] == pytest.approx(skew(occurrences), abs=1e-6)
    assert evaluation.scores["anti_hubs"] == pytest.approx((occurrences == 0).mean())
    assert "alignment" not in evaluation.scores
    assert evaluation.counts == {"texts": 60, "without_direction": 0, "dimensions": 12}
    assert (evaluation.main, evaluation.task) == ("uniformity", "health")


def test_alignment_is_of_positive_pairs():
    table = Table([[1, 0], [0, 2], [3, 3], [-1, 0]])
    pairs = (["0", "0", "0"], ["0", "1", "2"])
    evaluation = evaluate_health(table, Examples((*pairs, ["3", "3", "3"])))
    assert evaluation.scores["alignment"] == pytest.approx((0 + 2 + 2 - np.sqrt(2)) / 3, abs=1e-6)
    assert evaluation.counts["positive_pairs"] == 3
    labelled = Examples((*pairs, ["3", "3", "3"]), np.array([0.8, 0.81, 1], np.float32))
    evaluation = evaluate_health(table, labelled)
    assert evaluation.scores["alignment"] == pytest.approx((2 + 2 - np.sqrt(2)) / 2, abs=1e-6)
    assert (
        sum(count for _, count in evaluation.curves["cosines of positive pairs"])
        == evaluation.counts["positive_pairs"]
        == 2
    )


def test_dead_dimensions_and_rows_without_direction(rows):
    rows[:, 3] = 0
    rows[7] = 0
    evaluation = evaluate_health(Table(rows), Examples((names(60),)))
    assert evaluation.scores["dead_dimensions"] == pytest.approx(1 / 12)
    assert evaluation.counts["without_direction"] == 1
    assert evaluation.counts["texts"] == 59


def test_a_hub_is_seen():
    spokes = np.hstack([np.eye(30), np.full((30, 1), 0.9)])
    hub = np.zeros((1, 31))
    hub[0, -1] = 1
    evaluation = evaluate_health(Table(np.vstack([hub, spokes])), Examples((names(31),)))
    assert evaluation.scores["hubness"] > 0.4


def test_a_collapsed_space():
    evaluation = evaluate_health(Table(np.ones((5, 4))), Examples((names(5),)))
    assert evaluation.scores["uniformity"] == pytest.approx(0, abs=1e-5)
    assert evaluation.scores["mean_cosine"] == pytest.approx(1)
    assert (evaluation.scores["dead_dimensions"], evaluation.scores["first_component"]) == (1, 1)


def test_samples_are_drawn_with_a_seed(rows, monkeypatch):
    table, examples = Table(rows), Examples((names(60), names(60)[::-1]))
    full = evaluate_health(table, examples)
    some = evaluate_health(table, examples, limit=20)
    assert some == evaluate_health(table, examples, limit=20)
    assert some.scores != evaluate_health(table, examples, limit=20, seed=1).scores
    assert (some.counts["texts"], some.counts["positive_pairs"]) == (20, 20)
    monkeypatch.setattr(health, "PAIR_ROWS", 10)
    fewer = evaluate_health(table, examples)
    assert sum(count for _, count in fewer.curves["cosines of random pairs"]) == 45
    assert fewer.scores["hubness"] == full.scores["hubness"]


def test_the_same_text_counts_once(rows):
    once = evaluate_health(Table(rows), Examples((names(60),)))
    assert evaluate_health(Table(rows), Examples((names(60) * 2,))) == once


def test_no_positive_pair_has_no_alignment(rows):
    evaluation = evaluate_health(Table(rows), Examples((names(60), names(60)), np.zeros(60, np.int64)))
    assert np.isnan(evaluation.scores["alignment"])
    assert evaluation.to_dict()["scores"]["alignment"] is None


@pytest.mark.parametrize(
    ("examples", "options", "message"),
    [
        (Examples((["0", "1", "1"],), name="few.tsv"), {}, "few.tsv has 2 distinct texts"),
        (Examples(([],)), {}, "0 distinct texts"),
        (Examples((names(4), names(4)), np.array([0, 1, 2, 0]), ("a", "b", "c")), {}, "do not mark positive pairs"),
        (Examples((names(4),)), {"limit": 2}, "limit must be at least 3"),
    ],
)
def test_bad_input_is_refused(rows, examples, options, message):
    with pytest.raises(DataError, match=message):
        evaluate_health(Table(rows), examples, **options)
