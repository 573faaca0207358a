"""Adversarial training: the token embeddings of each text, moved to where the loss is larger."""

from typing import Literal

import torch
from torch import Tensor

from sbert_core.errors import ModelError

Attack = Literal["none", "fgsm", "fgm", "pgd"]

# Of 32 triplets of NLI with MiniLM the loss goes from 0.57 to 0.80 (fgsm) or 0.95 (fgm); of 32 pairs pgd is as fgm.
DEFAULT_EPSILON = 0.01


class TokenShift:
    """What is added to the token embeddings of the texts of a batch; zero until `move`.

    Every text has a shift of its own, whose length is measured against that of the text's token embeddings, all of
    them as one vector: a long text and a short one, in whichever model, are moved by the same share. Gradients of
    weights stay out of it: what earlier batches of a step have left there has no effect on the direction.
    """

    def __init__(self) -> None:
        self.chunk = 0
        """Which part of the batch is embedded next; every pass goes through the same parts."""
        self._shifts: dict[int, Tensor] = {}  # of each chunk (n, length, dim), or (n, dim) of a static encoder
        self._norms: dict[int, Tensor] = {}  # (n, 1): the length of each text's token embeddings

    def __call__(self, embedded: Tensor, mask: Tensor | None) -> Tensor:
        """Maps embeddings (n, length, dim) with their mask (n, length) to shifted ones."""
        if self.chunk not in self._shifts:
            self._shifts[self.chunk] = torch.zeros_like(embedded).requires_grad_()
            own = embedded.detach() if mask is None else embedded.detach() * mask[..., None]
            self._norms[self.chunk] = own.flatten(1).norm(dim=1, keepdim=True)
        return embedded + self._shifts[self.chunk]

    @torch.no_grad()
    def move(self, signs: bool, pace: float, radius: float) -> None:
        """Goes `pace` along the gradient (or its signs), but no further than `radius` from the start.

        Both are shares of the length of a text's token embeddings.
        """
        if not self._shifts or any(shift.grad is None for shift in self._shifts.values()):
            raise ModelError("adversarial training found no token embeddings to move: leave adversarial out")
        for chunk, shift in self._shifts.items():
            assert shift.grad is not None  # checked above
            gradient = shift.grad.flatten(1)  # (n, length * dim); zero on padding
            direction = torch.nn.functional.normalize(gradient.sign() if signs else gradient, dim=1, eps=1e-30)
            norms = self._norms[chunk]
            away = shift.flatten(1) + pace * norms * direction
            limit = radius * norms
            away = away * (limit / away.norm(dim=1, keepdim=True).clamp(min=1e-30)).clamp(max=1)
            shift.copy_(away.view_as(shift))
            shift.grad = None
