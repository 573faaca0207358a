"""From one vector per token to one vector per sentence."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sbert_core.errors import ModelError

POOLING_MODES = ("cls", "mean", "max", "mean_sqrt_len", "weighted_mean", "last")


class Pooling(nn.Module):
    """Pools token vectors into a sentence vector; several modes are concatenated in the order given.

    - `cls`: the first token.
    - `mean`, `max`: over the sentence's own tokens; padding never counts.
    - `mean_sqrt_len`: the sum divided by the square root of the number of tokens.
    - `weighted_mean`: token i (from 1) has weight i.
    - `last`: the last token.

    With `include_prompt=False` the tokens of a prompt are excluded from every mode.
    """

    def __init__(self, token_dim: int, modes: str | Sequence[str] = "mean", include_prompt: bool = True) -> None:
        super().__init__()
        self.modes = (modes,) if isinstance(modes, str) else tuple(modes)
        unknown = [mode for mode in self.modes if mode not in POOLING_MODES]
        if unknown or not self.modes:
            raise ModelError(f"pooling modes {list(self.modes)} are not known: use {', '.join(POOLING_MODES)}")
        self.token_dim = token_dim
        self.include_prompt = include_prompt
        self.dim = token_dim * len(self.modes)

    def forward(self, tokens: Tensor, mask: Tensor | None = None, prompt_tokens: int = 0) -> Tensor:
        """Pools `tokens` (n, length, token_dim) into (n, dim).

        `mask` (n, length) is 1 on a sentence's tokens and 0 on the padding after them; None means no padding.
        `prompt_tokens` is the number of tokens of the prompt at the front.
        """
        skipped = 0 if self.include_prompt else min(prompt_tokens, tokens.shape[1] - 1)
        tokens = tokens[:, skipped:]
        if mask is None:
            mask = tokens.new_ones(tokens.shape[:2])
            if self.modes == ("mean",):  # the common case, without weights
                return tokens.mean(dim=1)
        else:
            mask = mask[:, skipped:].to(tokens.dtype)
        return torch.cat([_pool(tokens, mask, mode, skipped) for mode in self.modes], dim=-1)


def _pool(tokens: Tensor, mask: Tensor, mode: str, skipped: int) -> Tensor:
    if mode == "cls":
        return tokens[:, 0]
    if mode == "last":
        last = mask.sum(dim=1).long().clamp(min=1) - 1  # (n,)
        return tokens[torch.arange(len(tokens), device=tokens.device), last]
    if mode == "max":
        return tokens.masked_fill(mask[..., None] == 0, float("-inf")).amax(dim=1)
    weights = mask
    if mode == "weighted_mean":
        weights = mask * torch.arange(skipped + 1, skipped + 1 + tokens.shape[1], device=mask.device, dtype=mask.dtype)
    total = (tokens * weights[..., None]).sum(dim=1)  # (n, token_dim)
    size = weights.sum(dim=1, keepdim=True).clamp(min=1e-9)
    return total / (size.sqrt() if mode == "mean_sqrt_len" else size)
