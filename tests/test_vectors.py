"""What every task begins with, and the points it leaves for plots."""

import numpy as np
import pytest

from sbert_beam import SentenceEncoder
from sbert_core.data.examples import Examples
from sbert_core.errors import DataError, ModelError
from sbert_core.evaluation.curves import calibration, cosine_histogram
from sbert_core.evaluation.vectors import check_examples, encode_columns
from tests.evaluation_peers import GivenVectors, draw
from tests.tiny_models import make_transformer


def test_columns_are_encoded_at_once():
    encoder = draw(3)
    first, second = encode_columns(encoder, [["text 0", "text 1"], ["text 2"]])
    assert (first.shape, second.shape, encoder.calls) == ((2, 8), (1, 8), 1)
    np.testing.assert_array_equal(second[0], encoder.encode(["text 2"])[0])


def test_a_real_encoder_fits(tmp_path):
    encoder = SentenceEncoder.load(make_transformer(tmp_path), device="cpu")
    first, second = encode_columns(encoder, [["the dog", "a fox"], ["the dog"]])
    np.testing.assert_array_equal(first[0], second[0])


def test_vectors_that_are_none():
    with pytest.raises(ModelError, match="a vector that is not finite for 'b': check the model"):
        encode_columns(GivenVectors({"a": np.zeros(2), "b": np.array([1, np.nan])}), [["a"], ["b"]])
    with pytest.raises(ModelError, match=r"shape \(1,\) for 1 texts"):
        encode_columns(GivenVectors({"a": np.float32(1)}), [["a"]])


def test_examples_that_cannot_be_scored():
    with pytest.raises(DataError, match="here has no rows: sts needs some"):
        check_examples("sts", Examples(([], []), np.zeros(0), name="here"), [2], "scores")
    with pytest.raises(DataError, match=r"sts needs 2 text column\(s\), but here has 1"):
        check_examples("sts", Examples((["a"],), name="here"), [2])
    with pytest.raises(DataError, match="sts needs gold scores: name the label column of here"):
        check_examples("sts", Examples((["a"], ["b"]), name="here"), [2], "gold scores")
    with pytest.raises(DataError, match="sts needs gold scores"):
        check_examples("sts", Examples((["a"], ["b"]), np.zeros((1, 3))), [2], "gold scores")
    check_examples("triplets", Examples((["a"], ["b"], ["c"])), [3])


def test_histogram():
    found = cosine_histogram(np.array([-1.0, 0.0, 0.01, 0.96, 1.0]))
    assert len(found) == 40
    assert [point for point in found if point[1]] == [[-1, 1], [0, 2], [0.95, 2]]
    assert sum(count for _, count in cosine_histogram(np.empty(0))) == 0


def test_calibration():
    scores = np.arange(100) / 100
    found = calibration(scores, (scores >= 0.5).astype(int))
    assert [share for _, share in found] == [0] * 5 + [1] * 5
    assert [score for score, _ in found] == pytest.approx([0.045 + 0.1 * step for step in range(10)])
    assert calibration(np.full(4, 0.3), np.array([0, 1, 1, 1])) == [[pytest.approx(0.3), 0.75]]
