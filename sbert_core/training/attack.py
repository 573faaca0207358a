"""Adversarial training: token embeddings moved in the direction in which the loss grows."""

from typing import Literal

import torch
from torch import Tensor

from sbert_core.errors import ModelError

Attack = Literal["none", "fgsm", "fgm", "pgd"]

# Measured with MiniLM on 32 NLI triplets: the loss grows from 0.57 to 0.80 (fgsm) or 0.95 (fgm). pgd is close to fgm.
DEFAULT_EPSILON = 0.01


class TokenShift:
    """The perturbation added to the token embeddings of a batch; zero until `move`.

    Each text has its own shift. Its size is relative to the L2 norm of all token embeddings of the text taken as one
    vector, so that long and short texts, in any model, move by the same share. The direction depends on the gradient
    of the shift only, not on gradients that earlier batches of the step have left at the weights.
    """

    def __init__(self) -> None:
        self.chunk = 0
        """The chunk of the batch that is embedded next; every pass uses the same chunks."""
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
    def move(self, use_signs: bool, distance: float, radius: float) -> None:
        """Moves by `distance` along the gradient (or its signs), to at most `radius` from the start.

        Both are shares of the L2 norm of a text's token embeddings.
        """
        if not self._shifts or any(shift.grad is None for shift in self._shifts.values()):
            raise ModelError("adversarial training found no token embeddings: leave adversarial out")
        for chunk, shift in self._shifts.items():
            assert shift.grad is not None  # checked above
            gradient = shift.grad.flatten(1)  # (n, length * dim); zero on padding
            direction = torch.nn.functional.normalize(gradient.sign() if use_signs else gradient, dim=1, eps=1e-30)
            norms = self._norms[chunk]
            moved = shift.flatten(1) + distance * norms * direction
            limit = radius * norms
            moved = moved * (limit / moved.norm(dim=1, keepdim=True).clamp(min=1e-30)).clamp(max=1)
            shift.copy_(moved.view_as(shift))
            shift.grad = None
