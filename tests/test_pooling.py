"""Pooling by hand."""

import pytest
import torch

from sbert_beam import ModelError
from sbert_core.encoder.heads import Dense, LayerNorm, Normalize
from sbert_core.encoder.pooling import Pooling

TOKENS = torch.tensor([[[1.0, -2.0], [3.0, -8.0], [100.0, 100.0]], [[4.0, 0.0], [0.0, 4.0], [2.0, 2.0]]])
MASK = torch.tensor([[1, 1, 0], [1, 1, 1]])


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("cls", [[1.0, -2.0], [4.0, 0.0]]),
        ("mean", [[2.0, -5.0], [2.0, 2.0]]),
        ("max", [[3.0, -2.0], [4.0, 4.0]]),
        ("mean_sqrt_len", [[4 / 2**0.5, -10 / 2**0.5], [6 / 3**0.5, 6 / 3**0.5]]),
        ("weighted_mean", [[7 / 3, -18 / 3], [10 / 6, 14 / 6]]),
        ("last", [[3.0, -8.0], [2.0, 2.0]]),
    ],
)
def test_by_hand(mode, expected):
    torch.testing.assert_close(Pooling(2, mode)(TOKENS, MASK), torch.tensor(expected))


@pytest.mark.parametrize("mode", ["cls", "mean", "max", "mean_sqrt_len", "weighted_mean", "last"])
def test_no_mask_means_no_padding(mode):
    torch.testing.assert_close(Pooling(2, mode)(TOKENS), Pooling(2, mode)(TOKENS, torch.ones(2, 3)))


def test_concatenation_keeps_the_order():
    pooled = Pooling(2, ["max", "cls"])(TOKENS, MASK)
    assert pooled.tolist() == [[3.0, -2.0, 1.0, -2.0], [4.0, 4.0, 4.0, 0.0]]


def test_a_prompt_as_long_as_the_text():
    assert torch.isfinite(Pooling(2, "max", include_prompt=False)(TOKENS, None, prompt_tokens=99)).all()


@pytest.mark.parametrize("modes", ["median", ["mean", "median"], []])
def test_unknown_mode(modes):
    with pytest.raises(ModelError, match="use cls, mean, max"):
        Pooling(2, modes)


def test_everything_can_be_trained():
    tokens = TOKENS.clone().requires_grad_()
    vectors = Pooling(2, ["mean", "max", "weighted_mean"])(tokens, MASK)
    for head in (Dense(6, 4, residual=True), LayerNorm(4), Normalize()):
        vectors = head(vectors)
    vectors[:, 0].sum().backward()
    assert tokens.grad[0, 0].abs().sum() > 0
    assert tokens.grad[0, 2].abs().sum() == 0  # padding gets no gradient
