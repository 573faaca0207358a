"""Vectors whose first components are good vectors too."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from sbert_core.errors import DataError
from sbert_core.training.objective import Objective, check_between

if TYPE_CHECKING:
    from sbert_core.training.model import TrainedEncoder


class Matryoshka(Objective):
    """Another objective, on the vectors and on their first few components at once (Kusupati et al. 2022).

        loss = sum over dims d of weight_d * objective(vectors[:, :d])

    Truncated vectors are not normalised anew: an objective that means cosine does so itself. A teacher's vectors
    are truncated likewise. `dim` is the encoder's; weights are 1 unless given. In everything else it is the other
    objective.
    """

    def __init__(
        self, objective: Objective, *, dim: int, dims: Sequence[int], weights: Sequence[float] | None = None
    ) -> None:
        super().__init__()
        name = type(objective).__name__
        if not objective.truncatable:
            raise DataError(f"{name} cannot learn truncated vectors: leave out 'matryoshka_dims'")
        if not isinstance(dims, Sequence) or isinstance(dims, str) or not dims:
            raise DataError(f"option 'matryoshka_dims' is {dims!r}: list one dimension or more, such as [{dim}]")
        if any(type(size) is not int or not 0 < size <= dim for size in dims) or len(set(dims)) < len(dims):
            raise DataError(f"option 'matryoshka_dims' is {list(dims)}: give different whole numbers from 1 to {dim}")
        weights = [1.0] * len(dims) if weights is None else weights
        if not isinstance(weights, Sequence) or len(weights) != len(dims):
            raise DataError(f"option 'matryoshka_weights' is {weights!r}: give one for each of {list(dims)}")
        self.objective = objective
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
            teacher = labels[:, :size] if labels is not None and self.labels == "vector" else labels
            losses.append(weight * self.objective([column[:, :size] for column in vectors], teacher))
        total: Tensor = sum(losses[1:], losses[0])
        return total

    def logits(self, vectors: list[Tensor]) -> Tensor | None:
        """The objective's, of the whole vectors."""
        return self.objective.logits(vectors)

    def after_step(self, encoder: "TrainedEncoder") -> None:
        """What the objective does."""
        self.objective.after_step(encoder)
