"""The padding-free forward pass against the padded one, for every supported architecture."""

import numpy as np
import pytest
import torch

from sbert_core.encoder.forward import PackedForward, PaddedForward
from sbert_core.encoder.packed_transformer import PackedTransformer
from sbert_core.encoder.pooling import POOLING_MODES, Pooling
from sbert_core.encoder.transformer import Transformer
from tests.tiny_models import ARCHITECTURES, PACKED, make_transformer


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_supported_architectures(tmp_path, architecture):
    body = Transformer.load(make_transformer(tmp_path, architecture))
    assert PackedTransformer.supports(body.model) == (architecture in PACKED)


@pytest.mark.parametrize("architecture", PACKED)
@torch.inference_mode()
def test_equals_padded_path(tmp_path, architecture):
    body = Transformer.load(make_transformer(tmp_path, architecture))
    pooling = Pooling(body.dim, POOLING_MODES)
    vocabulary = body.model.config.vocab_size
    random = np.random.default_rng(0)
    # Any id may occur, also the padding id: a text can contain that token.
    ids = [random.integers(0, vocabulary, length).astype(np.int32) for length in (24, 24, 9, 8, 8, 8, 2, 1)]
    packed = PackedForward(body, pooling)(ids, prompt_tokens=0)
    padded = PaddedForward(body, pooling, torch.device("cpu"))(ids, prompt_tokens=0)
    torch.testing.assert_close(packed, padded, atol=2e-6, rtol=1e-4)


def test_a_decoder_is_not_supported(tmp_path):
    body = Transformer.load(make_transformer(tmp_path))
    body.model.config.is_decoder = True
    assert not PackedTransformer.supports(body.model)
