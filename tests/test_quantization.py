import numpy as np
import pytest
from sentence_transformers.util.quantization import quantize_embeddings

from sbert_beam import calibrate, quantize


@pytest.fixture
def vectors():
    return np.random.default_rng(0).normal(size=(50, 20)).astype(np.float32)


@pytest.mark.parametrize("precision", ["float32", "int8", "uint8", "binary", "ubinary"])
@pytest.mark.parametrize("rows", [0, 1, 50])
def test_equals_sentence_transformers(vectors, precision, rows):
    ranges = calibrate(vectors)
    ours = quantize(vectors[:rows], precision, ranges)
    theirs = quantize_embeddings(vectors[:rows], precision, ranges=ranges)
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)


def test_float16(vectors):
    half = quantize(vectors, "float16")
    assert half.dtype == np.float16
    np.testing.assert_allclose(half, vectors, rtol=1e-3)


def test_values_outside_the_ranges_are_clipped(vectors):
    ranges = calibrate(vectors)
    assert (quantize(vectors[:1] + 100, "uint8", ranges) == 255).all()
    assert (quantize(vectors[:1] - 100, "int8", ranges) == -128).all()


def test_a_constant_dimension(vectors):
    vectors[:, 3] = 7
    assert (quantize(vectors, "uint8", calibrate(vectors))[:, 3] == 0).all()


@pytest.mark.parametrize(
    ("precision", "ranges", "message"),
    [
        ("int8", None, r"needs ranges \(2, dim\)"),
        ("uint8", np.zeros((2, 3)), "ranges are for 3 dimensions, vectors have 20"),
        ("int4", None, "'int4' is not known"),
    ],
)
def test_bad_arguments(vectors, precision, ranges, message):
    with pytest.raises(ValueError, match=message):
        quantize(vectors, precision, ranges)


def test_calibration_needs_vectors(vectors):
    with pytest.raises(ValueError, match="at least two vectors"):
        calibrate(vectors[:1])
