import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score

from sbert_core.data.examples import Examples
from sbert_core.errors import DataError
from sbert_core.training.dev import read_dev, score_dev
from sbert_core.training.plan import DevSpec


class Table:
    """An encoder with fixed vectors."""

    vectors = {"a": [1, 0], "b": [0.6, 0.8], "c": [0, 1], "d": [-1, 0]}

    def encode(self, texts):
        return np.array([self.vectors[text] for text in texts], np.float32)


LEFT, RIGHT, THIRD = list("aaab"), list("bcdc"), list("dbba")


def test_each_task_has_its_figure():
    cosines = [0.6, 0.0, -1.0, 0.8]
    gold = np.array([0.5, 0.9, 0.1, 1.0], np.float32)
    assert score_dev(Table(), DevSpec(file="x"), Examples((LEFT, RIGHT), gold)) == pytest.approx(
        spearmanr(cosines, gold).statistic
    )
    truth = np.array([1, 0, 1, 1])
    expected = average_precision_score(truth, cosines)
    assert score_dev(Table(), DevSpec(file="x", task="pairs"), Examples((LEFT, RIGHT), truth)) == pytest.approx(
        expected
    )
    assert score_dev(Table(), DevSpec(file="x", task="triplets"), Examples((LEFT, RIGHT, THIRD))) == pytest.approx(0.5)


def test_missing_label_or_column_is_refused(tmp_path):
    path = tmp_path / "dev.tsv"
    path.write_text("a\tb\tscore\nx\ty\t0.5\n")
    with pytest.raises(DataError, match="name the label column"):
        read_dev(DevSpec(file=str(path), columns=("a", "b")))
    with pytest.raises(DataError, match="needs 3 text columns"):
        read_dev(DevSpec(file=str(path), task="triplets", columns=("a", "b")))
    assert len(read_dev(DevSpec(file=str(path), columns=("a", "b"), label="score"))) == 1
