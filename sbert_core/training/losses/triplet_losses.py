"""Objectives on triplets: given as three columns, or found in a batch from class labels."""

import abc

import torch
import torch.nn.functional as F
from torch import Tensor

from sbert_core.training.losses.distances import DISTANCES, all_distances, paired_distance
from sbert_core.training.losses.objective import Objective, check_at_least, check_choice, require_labels


class Triplet(Objective):
    """The positive is closer to the anchor than the negative by a margin.

        loss = mean over rows of max(d(a, p) - d(a, n) + margin, 0)

    d is the `distance`: Euclidean (margin 1 as in the Sentence-BERT paper), 1 - cosine, or Manhattan.
    """

    columns = (3, 3)

    def __init__(self, *, margin: float = 1.0, distance: str = "euclidean") -> None:
        super().__init__()
        self.margin = check_at_least("margin", margin, 0)
        self.distance = check_choice("distance", distance, DISTANCES)

    def forward(self, vectors: list[Tensor], labels: Tensor | None) -> Tensor:
        """Loss of the columns anchor, positive, negative; there are no labels."""
        anchor, positive, negative = vectors
        near, far = paired_distance(anchor, positive, self.distance), paired_distance(anchor, negative, self.distance)
        return F.relu(near - far + self.margin).mean()


class _BatchTriplet(Objective):
    """Triplets found in a batch of one column of texts with classes: a, p of one class, n of another."""

    columns = (1, 1)
    labels = "class"
    grouped = True

    def __init__(self, *, margin: float = 1.0, distance: str = "euclidean") -> None:
        super().__init__()
        self.margin = check_at_least("margin", margin, 0)
        self.distance = check_choice("distance", distance, DISTANCES)

    def forward(self, vectors: list[Tensor], labels: Tensor | None) -> Tensor:
        """Loss of labels (n,) int64; zero, with a gradient of zero, if they make no triplet."""
        labels = require_labels(self, labels)
        distances = all_distances(vectors[0], self.distance)  # (n, n)
        same = labels[:, None] == labels[None, :]
        itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
        losses = self.losses(distances, same & ~itself, ~same)
        return losses.sum() / max(len(losses), 1)

    @abc.abstractmethod
    def losses(self, distances: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """The losses to average; the masks (n, n) are true for positives and negatives of each anchor."""


def _hardest(distances: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """Farthest positive minus closest negative, of the anchors that have both."""
    anchors = positive.any(dim=1) & negative.any(dim=1)
    farthest = distances.masked_fill(~positive, -torch.inf).amax(dim=1)
    closest = distances.masked_fill(~negative, torch.inf).amin(dim=1)
    return farthest[anchors] - closest[anchors]


class BatchHardTriplet(_BatchTriplet):
    """Each anchor of a batch with its farthest positive and its closest negative (Hermans et al. 2017).

        loss = mean over anchors a of max(max_p d(a, p) - min_n d(a, n) + margin, 0)

    p has the class of a, n another; anchors without a positive or without a negative do not count.
    """

    def losses(self, distances: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """One loss per anchor."""
        return F.relu(_hardest(distances, positive, negative) + self.margin)


class BatchHardSoftMarginTriplet(_BatchTriplet):
    """Each anchor of a batch with its farthest positive and closest negative, without a margin to choose.

        loss = mean over anchors a of log(1 + exp(max_p d(a, p) - min_n d(a, n)))

    p has the class of a, n another; anchors without a positive or without a negative do not count.
    """

    def __init__(self, *, distance: str = "euclidean") -> None:
        super().__init__(distance=distance)

    def losses(self, distances: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """One loss per anchor."""
        return F.softplus(_hardest(distances, positive, negative))


class BatchAllTriplet(_BatchTriplet):
    """All triplets of a batch; those that keep the margin do not count.

    loss = mean over triplets (a, p, n) with d(a, p) - d(a, n) + margin > 0 of that difference
    """

    def losses(self, distances: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """One loss per triplet that breaks the margin."""
        anchors, positives = positive.nonzero(as_tuple=True)
        excess = distances[anchors, positives][:, None] - distances[anchors] + self.margin  # (pairs, n)
        return excess[negative[anchors] & (excess > 0)]


class BatchSemiHardTriplet(_BatchTriplet):
    """Each positive pair of a batch with the closest negative that is farther away (Schroff et al. 2015).

        loss = mean over pairs (a, p) of max(d(a, p) - d(a, n) + margin, 0)

    n is the closest negative with d(a, n) > d(a, p), or if there is none the farthest negative. Pairs without
    a negative do not count.
    """

    def losses(self, distances: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """One loss per positive pair."""
        anchors, positives = (positive & negative.any(dim=1, keepdim=True)).nonzero(as_tuple=True)
        near = distances[anchors, positives]  # (pairs,)
        far, is_negative = distances[anchors], negative[anchors]  # (pairs, n)
        closest_beyond = far.masked_fill(~is_negative | (far <= near[:, None]), torch.inf).amin(dim=1)
        farthest = far.masked_fill(~is_negative, -torch.inf).amax(dim=1)
        chosen = torch.where(closest_beyond.isfinite(), closest_beyond, farthest)
        return F.relu(near - chosen + self.margin)
