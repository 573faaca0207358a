"""Batches by number of tokens: similar lengths together, smaller batches when memory runs out."""

from collections.abc import Callable

import numpy as np
import torch

from sbert_core.errors import ModelError

DEFAULT_CPU_TOKENS = 2048
"""Larger batches do not fit the processor's cache; smaller ones use matrix products badly."""
DEFAULT_GPU_TOKENS = 32_768


def default_batch_tokens(device: torch.device) -> int:
    """Returns how many tokens a batch of a transformer holds on this device, unless the caller chooses."""
    return DEFAULT_CPU_TOKENS if device.type == "cpu" else DEFAULT_GPU_TOKENS


class TokenBatches:
    """Splits rows of known length into batches of at most `batch_tokens`, longest rows first.

    When a GPU runs out of memory the batch is halved and retried, and `batch_tokens` stays at the smaller value.
    """

    def __init__(self, batch_tokens: int, *, pads: bool) -> None:
        """With `pads` every row of a batch counts as long as the longest."""
        if batch_tokens < 1:
            raise ModelError(f"batch_tokens must be at least 1, got {batch_tokens}")
        self.batch_tokens = batch_tokens
        self._pads = pads

    def run(self, n_tokens: np.ndarray, compute: Callable[[np.ndarray], None]) -> None:
        """Calls `compute` with the row numbers of each batch, longest row first; `n_tokens` is (n,), all above 0."""
        order = np.argsort(-n_tokens, kind="stable")
        sorted_tokens = n_tokens[order]
        start = 0
        while start < len(order):
            stop = batch_end(sorted_tokens, start, self.batch_tokens, self._pads)
            try:
                compute(order[start:stop])
            except torch.OutOfMemoryError:
                if stop - start == 1:
                    raise
                self.batch_tokens = max(1, int(sorted_tokens[start]) * (stop - start) // 2)
                torch.cuda.empty_cache()
                continue
            start = stop


def batch_end(n_tokens: np.ndarray, start: int, batch_tokens: int, pads: bool) -> int:
    """Returns where a batch that begins at `start` ends, so that it holds at most `batch_tokens`, padding included.

    `n_tokens` (n,) is sorted from long to short. A batch holds at least one row.
    """
    if pads:
        rows = batch_tokens // int(n_tokens[start])
    else:
        totals = np.cumsum(n_tokens[start : start + batch_tokens])
        rows = int(np.searchsorted(totals, batch_tokens, side="right"))
    return min(start + max(rows, 1), len(n_tokens))
