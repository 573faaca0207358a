"""Matryoshka objective: vectors that can be truncated to their first components."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from sbert_core.errors import DataError
from sbert_core.training.losses.objective import Objective, check_between

if TYPE_CHECKING:
    from sbert_core.training.trained_encoder import TrainedEncoder


class Matryoshka(Objective):
    """Another objective, on the vectors and on their first few components at once (Kusupati et al. 2022).

        loss = sum over dims d of weight_d * objective(truncated to d)

    Vectors are truncated as `SentenceEncoder` truncates them: those of an encoder that `normalizes` are scaled to unit
    length again. A teacher's vectors are truncated likewise, and keep their length if the student's do. `dim` is the
    encoder's; weights are 1 unless given. All else is as in the other objective.
    """

    def __init__(
        self,
        objective: Objective,
        *,
        dim: int,
        dims: Sequence[int],
        weights: Sequence[float] | None = None,
        normalizes: bool = False,
    ) -> None:
        super().__init__()
        name = type(objective).__name__
        if not objective.truncatable:
            raise DataError(f"{name} cannot be trained on truncated vectors: leave out 'matryoshka_dims'")
        if not isinstance(dims, Sequence) or isinstance(dims, str) or not dims:
            raise DataError(f"option 'matryoshka_dims' is {dims!r}: list one dimension or more, such as [{dim}]")
        if any(type(size) is not int or not 0 < size <= dim for size in dims) or len(set(dims)) < len(dims):
            raise DataError(f"option 'matryoshka_dims' is {list(dims)}: give different whole numbers from 1 to {dim}")
        weights = [1.0] * len(dims) if weights is None else weights
        if not isinstance(weights, Sequence) or isinstance(weights, str) or len(weights) != len(dims):
            raise DataError(f"option 'matryoshka_weights' is {weights!r}: give one for each of {list(dims)}")
        self.objective = objective
        self.normalizes = normalizes
        self.dims = tuple(dims)
        self.weights = tuple(check_between("matryoshka_weights", weight, 0, float("inf")) for weight in weights)
        self.columns, self.labels = objective.columns, objective.labels
        self.distinct, self.grouped = objective.distinct, objective.grouped

    def views(self, texts: list[list[str]], rng: np.random.Generator) -> list[list[str]]:
        """The texts that the objective embeds."""
        return self.objective.views(texts, rng)

    def embed(self, encoder: "TrainedEncoder", views: list[list[str]]) -> list[Tensor]:
        """The vectors of the objective."""
        return self.objective.embed(encoder, views)

    def forward(self, vectors: list[Tensor], labels: Tensor | None) -> Tensor:
        """The weighted sum of the losses at all dims."""
        losses = []
        for size, weight in zip(self.dims, self.weights, strict=True):
            teacher = self._truncate(labels, size) if labels is not None and self.labels == "vector" else labels
            losses.append(weight * self.objective([self._truncate(column, size) for column in vectors], teacher))
        total: Tensor = sum(losses[1:], losses[0])
        return total

    def _truncate(self, vectors: Tensor, size: int) -> Tensor:
        """The first components (n, size); scaled to the length of the full vectors if the encoder normalises."""
        if not self.normalizes or size == vectors.shape[1]:
            return vectors[:, :size]
        return F.normalize(vectors[:, :size], dim=-1) * vectors.norm(dim=-1, keepdim=True)

    def logits(self, vectors: list[Tensor]) -> Tensor | None:
        """Those of the objective, for the full vectors."""
        return self.objective.logits(vectors)

    def after_step(self, encoder: "TrainedEncoder") -> None:
        """What the objective does."""
        self.objective.after_step(encoder)
