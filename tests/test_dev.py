import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score

from sbert_core.data.examples import Examples
from sbert_core.errors import DataError
from sbert_core.training.dev import read_dev, score_dev
from sbert_core.training.plan import Dev


class Table:
    """Knows the vectors of some texts."""

    vectors = {"a": [1, 0], "b": [0.6, 0.8], "c": [0, 1], "d": [-1, 0]}

    def encode(self, texts):
        return np.array([self.vectors[text] for text in texts], np.float32)


LEFT, RIGHT, THIRD = list("aaab"), list("bcdc"), list("dbba")


def test_each_task_has_its_figure():
    cosines = [0.6, 0.0, -1.0, 0.8]
    gold = np.array([0.5, 0.9, 0.1, 1.0], np.float32)
    assert score_dev(Table(), "sts", Examples((LEFT, RIGHT), gold)) == pytest.approx(spearmanr(cosines, gold).statistic)
    truth = np.array([1, 0, 1, 1])
    expected = average_precision_score(truth, cosines)
    assert score_dev(Table(), "pairs", Examples((LEFT, RIGHT), truth)) == pytest.approx(expected)
    assert score_dev(Table(), "triplets", Examples((LEFT, RIGHT, THIRD))) == pytest.approx(0.5)


def test_what_cannot_be_scored_is_told(tmp_path):
    path = tmp_path / "dev.tsv"
    path.write_text("a\tb\tscore\nx\ty\t0.5\n")
    with pytest.raises(DataError, match="name the label column"):
        read_dev(Dev(file=str(path), columns=("a", "b")))
    with pytest.raises(DataError, match="about 3 text columns"):
        read_dev(Dev(file=str(path), task="triplets", columns=("a", "b")))
    assert len(read_dev(Dev(file=str(path), columns=("a", "b"), label="score"))) == 1
