"""Objectives on labelled pairs of texts: a class, a score, or a binary label."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert_core.errors import DataError
from sbert_core.training.losses.distances import DISTANCES, paired_cosine, paired_distance
from sbert_core.training.losses.objective import Objective, check_at_least, check_between, check_choice, require_labels

CONCATENATIONS = ("u,v,|u-v|", "u,v", "|u-v|", "u*v", "|u-v|,u*v", "u,v,u*v", "u,v,|u-v|,u*v")


class Classification(Objective):
    """Class of a pair (u, v), such as entailment, as in the Sentence-BERT paper.

        loss = mean over rows of -log softmax(W [u; v; |u - v|])[label]

    W is (n_classes, k * dim) and is trained with the encoder; there is no bias. `concatenation` selects the k vectors
    that W is applied to, in the order written: the variants of the paper.
    """

    labels = "class"
    truncatable = False  # W has one width

    def __init__(self, *, dim: int, n_classes: int, concatenation: str = "u,v,|u-v|") -> None:
        super().__init__()
        if n_classes < 2:
            raise DataError(f"classification has {n_classes} class(es): use labels with at least two")
        check_choice("concatenation", concatenation, CONCATENATIONS)
        self.terms = concatenation.split(",")
        self.head = nn.Linear(len(self.terms) * dim, n_classes, bias=False)

    def logits(self, vectors: list[Tensor]) -> Tensor:
        """W [u; v; |u - v|], (n, n_classes)."""
        u, v = vectors
        parts = {"u": u, "v": v, "|u-v|": (u - v).abs(), "u*v": u * v}
        scores: Tensor = self.head(torch.cat([parts[term] for term in self.terms], dim=-1))
        return scores

    def forward(self, vectors: list[Tensor], labels: Tensor | None) -> Tensor:
        """Cross-entropy of labels (n,) int64."""
        return F.cross_entropy(self.logits(vectors), require_labels(self, labels))


class Regression(Objective):
    """Score of a pair as its cosine.

    loss = mean over rows of (cos(u, v) - score)^2
    """

    labels = "score"

    def forward(self, vectors: list[Tensor], labels: Tensor | None) -> Tensor:
        """Mean squared error against labels (n,) float."""
        cosines = paired_cosine(*vectors)
        return F.mse_loss(cosines, require_labels(self, labels).to(cosines.dtype))


class CoSENT(Objective):
    """Order of the scores of pairs: a pair of a higher score shall have the higher cosine.

        loss = log(1 + sum over rows i, j with score_i > score_j of exp(scale * (cos_j - cos_i)))

    One value per batch, not a mean over its rows. Zero if all scores are equal.
    """

    labels = "score"

    def __init__(self, *, scale: float = 20.0) -> None:
        super().__init__()
        self.scale = check_between("scale", scale, 0, float("inf"))

    def forward(self, vectors: list[Tensor], labels: Tensor | None) -> Tensor:
        """Loss of the order that labels (n,) float give."""
        labels = require_labels(self, labels)
        cosines = paired_cosine(*vectors) * self.scale
        excess = cosines[None, :] - cosines[:, None]  # (i, j)
        wrong_way = excess[labels[:, None] > labels[None, :]]
        return torch.cat([excess.new_zeros(1), wrong_way]).logsumexp(dim=0)


class Contrastive(Objective):
    """Pairs labelled 1 come together, pairs labelled 0 move apart up to a margin (Hadsell et al. 2006).

        loss = mean over rows of 1/2 (label d^2 + (1 - label) max(margin - d, 0)^2)

    d is the `distance` of u and v: 1 - cosine, Euclidean or Manhattan.
    """

    labels = "binary"

    def __init__(self, *, margin: float = 0.5, distance: str = "cosine") -> None:
        super().__init__()
        self.margin = check_at_least("margin", margin, 0)
        self.distance = check_choice("distance", distance, DISTANCES)

    def forward(self, vectors: list[Tensor], labels: Tensor | None) -> Tensor:
        """Loss of labels (n,), 0 or 1."""
        u, v = vectors
        distances = paired_distance(u, v, self.distance)
        same = require_labels(self, labels).to(distances.dtype)
        return (same * distances**2 + (1 - same) * F.relu(self.margin - distances) ** 2).mean() / 2


class OnlineContrastive(Contrastive):
    """Contrastive loss of the hard pairs of a batch only.

        loss = sum over hard positives of d^2 + sum over hard negatives of max(margin - d, 0)^2

    A positive is hard if it is farther apart than the closest negative, a negative if it is closer than the
    farthest positive. A batch of one kind of pair is measured against the mean distance instead. A sum, not a
    mean: easy pairs added to a batch change nothing.
    """

    def forward(self, vectors: list[Tensor], labels: Tensor | None) -> Tensor:
        """Loss of labels (n,), 0 or 1."""
        u, v = vectors
        distances = paired_distance(u, v, self.distance)
        same = require_labels(self, labels).bool()
        positives, negatives = distances[same], distances[~same]
        with torch.no_grad():  # only chooses pairs
            closest_negative = negatives.min() if len(negatives) else positives.mean()
            farthest_positive = positives.max() if len(positives) else negatives.mean()
        hard_positives = positives[positives > closest_negative]
        hard_negatives = negatives[negatives < farthest_positive]
        return (hard_positives**2).sum() + (F.relu(self.margin - hard_negatives) ** 2).sum()
