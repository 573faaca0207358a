"""The lossy mode: close to float32, and independent of the batch."""

import numpy as np
import pytest
import torch

from sbert_beam import ModelError, SentenceEncoder
from sbert_core.encoder.int8 import int8_linear
from tests.tiny_models import make_transformer


@pytest.fixture(scope="module")
def int8_encoder() -> SentenceEncoder:
    return SentenceEncoder.load("default", device="cpu", precision="int8")


@pytest.mark.slow
def test_close_to_float32(int8_encoder, default_encoder, sentences):
    cosines = (int8_encoder.encode(sentences) * default_encoder.encode(sentences)).sum(axis=1)
    assert cosines.mean() > 0.99
    assert cosines.min() > 0.95
    assert cosines.max() < 0.99999  # it is not computed in float32
    assert int8_encoder.fingerprint != default_encoder.fingerprint


@pytest.mark.slow
def test_other_texts_do_not_matter(int8_encoder, sentences):
    together = int8_encoder.encode(sentences)
    for row, text in enumerate(sentences):
        np.testing.assert_allclose(int8_encoder.encode([text])[0], together[row], atol=1e-5)


def clips_sums() -> bool:
    """Whether the largest possible product is clipped on this processor."""
    ones = torch.ones(16, 64)
    return bool((int8_linear(ones, torch.zeros(16), False)(ones) < 63).any())


@pytest.mark.parametrize("after_gelu", [False, True])
def test_linear_is_close(after_gelu):
    torch.manual_seed(0)
    weight, bias, tokens = torch.randn(24, 64), torch.randn(24), torch.randn(10, 64) * 3
    if after_gelu:
        tokens = torch.nn.functional.gelu(tokens)
    tokens[3] = 0  # the scale of a row of zeros must not be zero
    exact = torch.nn.functional.linear(tokens, weight, bias)
    approximate = int8_linear(weight, bias, after_gelu)(tokens.clone())
    # Without VNNI sums of two large products are clipped, and random weights have many.
    assert ((approximate - exact).norm() / exact.norm()) < (0.06 if clips_sums() else 0.02)
    torch.testing.assert_close(approximate[3], bias)


def test_only_for_packed_models(tmp_path):
    with pytest.raises(ModelError, match="not T5EncoderModel on cpu"):
        SentenceEncoder.load(make_transformer(tmp_path, "t5"), device="cpu", precision="int8")


def test_without_fbgemm(tmp_path, monkeypatch):
    monkeypatch.setattr(type(torch.backends.quantized), "supported_engines", ["none"])
    with pytest.raises(ModelError, match="needs torch with FBGEMM"):
        SentenceEncoder.load(make_transformer(tmp_path), device="cpu", precision="int8")
