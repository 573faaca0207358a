"""Distillation objectives: the vectors of a teacher, or the margin of its scores."""

import torch
import torch.nn.functional as F
from torch import Tensor

from sbert_core.errors import DataError
from sbert_core.training.losses.objective import Objective, require_labels


class Distillation(Objective):
    """The student reproduces the vectors of the teacher.

        loss = mean over columns c, rows i and dimensions k of (u_c,i,k - t_i,k)^2

    The labels are the teacher's vectors t (n, dim). Every text column is trained towards them: one column to copy
    the teacher; a text and its translations to extend the teacher's space to other languages.
    """

    columns = (1, None)
    labels = "vector"

    def forward(self, vectors: list[Tensor], labels: Tensor | None) -> Tensor:
        """Mean squared error against labels (n, dim) float."""
        teacher = require_labels(self, labels)
        if teacher.shape != vectors[0].shape:
            raise DataError(
                f"the teacher's vectors are {tuple(teacher.shape)}, the student's {tuple(vectors[0].shape)}: give both "
                "the same dimension, such as by reducing the teacher's with PCA"
            )
        return torch.stack([F.mse_loss(column, teacher.to(column.dtype)) for column in vectors]).mean()


class MarginDistillation(Objective):
    """The student reproduces the score margin of a cross-encoder between two passages (MarginMSE).

        loss = mean over rows of (q . p - q . n - margin)^2

    The columns are query, positive, negative; the label is the teacher's score of (q, p) minus that of (q, n). The
    dot product is that of the vectors without normalisation: for unit vectors margins are at most 2.
    """

    columns = (3, 3)
    labels = "score"

    def forward(self, vectors: list[Tensor], labels: Tensor | None) -> Tensor:
        """Mean squared error against labels (n,) float."""
        query, positive, negative = vectors
        margins = (query * positive).sum(dim=-1) - (query * negative).sum(dim=-1)
        return F.mse_loss(margins, require_labels(self, labels).to(margins.dtype))
