"""The padding-free forward pass against the padded one, for every architecture it claims."""

import numpy as np
import pytest
import torch

from sbert_core.encoder.forward import PackedForward, PaddedForward, batch_end
from sbert_core.encoder.packed_transformer import PackedTransformer
from sbert_core.encoder.pooling import POOLING_MODES, Pooling
from sbert_core.encoder.transformer import Transformer
from tests.tiny_models import ARCHITECTURES, PACKED, make_transformer


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_supports_what_it_claims(tmp_path, architecture):
    body = Transformer.load(make_transformer(tmp_path, architecture))
    assert PackedTransformer.supports(body.model) == (architecture in PACKED)


@pytest.mark.parametrize("architecture", PACKED)
@torch.inference_mode()
def test_equals_padded_path(tmp_path, architecture):
    body = Transformer.load(make_transformer(tmp_path, architecture))
    pooling = Pooling(body.dim, POOLING_MODES)
    vocabulary = body.model.config.vocab_size
    random = np.random.default_rng(0)
    # Every id may occur, the padding id too: a text can spell it out.
    ids = [random.integers(0, vocabulary, length).astype(np.int32) for length in (24, 24, 9, 8, 8, 8, 2, 1)]
    packed = PackedForward(body, pooling)(ids, prompt_tokens=0)
    padded = PaddedForward(body, pooling, torch.device("cpu"))(ids, prompt_tokens=0)
    torch.testing.assert_close(packed, padded, atol=2e-6, rtol=1e-4)


def test_a_decoder_is_not_packed(tmp_path):
    body = Transformer.load(make_transformer(tmp_path))
    body.model.config.is_decoder = True
    assert not PackedTransformer.supports(body.model)


@pytest.mark.parametrize(
    ("lengths", "budget", "pads", "ends"),
    [
        ([5, 4, 3, 2, 1], 9, False, [2, 5]),
        ([5, 4, 3, 2, 1], 9, True, [1, 3, 5]),
        ([50, 4], 9, False, [1, 2]),
        ([50, 4], 9, True, [1, 2]),
        ([3, 3, 3], 9, False, [3]),
        ([3, 3, 3], 9, True, [3]),
    ],
)
def test_batches(lengths, budget, pads, ends):
    found = [0]
    while found[-1] < len(lengths):
        found.append(batch_end(np.array(lengths), found[-1], budget, pads))
    assert found[1:] == ends
