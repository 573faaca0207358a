"""Three ways to run a batch of token ids: without padding, with padding, and as a table look-up.

Each takes the ids of its sentences, longest first, and gives their vectors (n, dim).
"""

from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from sbert_core.encoder.packed_transformer import MakeLinear, PackedTransformer, float_linear
from sbert_core.encoder.pooling import Pooling
from sbert_core.encoder.static_embedding import StaticEmbedding
from sbert_core.encoder.transformer import Transformer


class PackedForward:
    """Sentences end to end, no padding: the fast way on CPU."""

    batch_tokens = 2048  # larger batches leave the cache, smaller ones starve the matrix product
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
        self.batch_tokens = 2048 if device.type == "cpu" else 32_768
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


def batch_end(n_tokens: np.ndarray, start: int, batch_tokens: int, pads: bool) -> int:
    """Where a batch that begins at `start` ends, so that it holds at most `batch_tokens`, padding included.

    `n_tokens` (n,) is sorted from long to short. A batch holds at least one sentence.
    """
    if pads:
        rows = batch_tokens // int(n_tokens[start])
    else:
        totals = np.cumsum(n_tokens[start : start + batch_tokens])
        rows = int(np.searchsorted(totals, batch_tokens, side="right"))
    return min(start + max(rows, 1), len(n_tokens))
