"""Three ways to run a batch of token ids: without padding, with padding, and as a table lookup.

Each takes the ids of its sentences, longest first, and returns their vectors (n, dim).
"""

from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from sbert_core.encoder.int8 import int8_linear
from sbert_core.encoder.model_folder import EncoderParts
from sbert_core.encoder.packed_transformer import MakeLinear, PackedTransformer, float_linear
from sbert_core.encoder.pooling import Pooling
from sbert_core.encoder.static_embedding import StaticEmbedding
from sbert_core.encoder.token_batches import DEFAULT_CPU_TOKENS, default_batch_tokens
from sbert_core.encoder.transformer import Transformer
from sbert_core.errors import ModelError


class PackedForward:
    """Concatenated sentences without padding: the fastest way on CPU."""

    batch_tokens = DEFAULT_CPU_TOKENS
    pads = False

    def __init__(self, body: Transformer, pooling: Pooling, make_linear: MakeLinear = float_linear) -> None:
        self._transformer = PackedTransformer(body.model, make_linear)
        self._pooling = pooling

    def __call__(self, ids: list[np.ndarray], prompt_tokens: int) -> Tensor:
        """Maps each sentence's ids to its pooled vector."""
        groups = [(len(list(group)), length) for length, group in groupby(map(len, ids))]
        tokens = torch.from_numpy(np.concatenate(ids)).long()
        pooled = [self._pooling(part, None, prompt_tokens) for part in self._transformer(tokens, groups)]
        return torch.cat(pooled)


class PaddedForward:
    """Sentences padded to the longest of the batch: any architecture, any device."""

    pads = True

    def __init__(self, body: Transformer, pooling: Pooling, device: torch.device) -> None:
        self.batch_tokens = default_batch_tokens(device)
        self._body = body
        self._pooling = pooling
        self._device = device

    def __call__(self, ids: list[np.ndarray], prompt_tokens: int) -> Tensor:
        """Maps each sentence's ids to its pooled vector."""
        shape = (len(ids), len(ids[0]))
        padded = np.full(shape, self._body.pad_id, dtype=np.int64)
        mask = np.zeros(shape, dtype=np.int64)
        for row, sentence in enumerate(ids):
            padded[row, : len(sentence)] = sentence
            mask[row, : len(sentence)] = 1
        on_device = torch.from_numpy(mask).to(self._device)
        tokens = self._body(torch.from_numpy(padded).to(self._device), on_device)
        return self._pooling(tokens.float(), on_device, prompt_tokens)


class StaticForward:
    """The mean of the tokens' rows in a table."""

    batch_tokens = 1_000_000
    pads = False

    def __init__(self, body: StaticEmbedding, device: torch.device) -> None:
        self._body = body
        self._device = device

    def __call__(self, ids: list[np.ndarray], prompt_tokens: int) -> Tensor:
        """Maps each sentence's ids to the mean of their vectors."""
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        tokens = torch.from_numpy(np.concatenate(ids)).to(self._device)
        starts = torch.from_numpy((np.cumsum(lengths) - lengths).astype(np.int32)).to(self._device)
        return self._body(tokens, starts)


Forward = PackedForward | PaddedForward | StaticForward


def choose_forward(parts: EncoderParts, device: torch.device, precision: str) -> Forward:
    """Moves the body to `device` and returns the fastest way to run it there in this precision."""
    body, pooling = parts.body.eval(), parts.pooling
    if isinstance(body, StaticEmbedding):
        return StaticForward(body.to(device), device)
    assert pooling is not None  # `read_folder` requires it
    if device.type == "cpu" and precision in ("float32", "int8") and PackedTransformer.supports(body.model):
        return PackedForward(body, pooling, int8_linear if precision == "int8" else float_linear)
    if precision == "int8":
        raise ModelError(
            f"precision='int8' is for BERT-like models on CPU, not {type(body.model).__name__} on {device}: use 'auto'"
        )
    body.to(device=device, dtype=getattr(torch, precision))
    return PaddedForward(body, pooling, device)
