"""The base class of objectives: required columns and labels, the texts to embed, and the loss of their vectors."""

import abc
import math
import sys
from collections.abc import Collection
from typing import TYPE_CHECKING, Literal

import numpy as np
from torch import Tensor, nn

from sbert_core.errors import DataError

if TYPE_CHECKING:
    from sbert_core.training.trained_encoder import TrainedEncoder

_MAX_FLOAT = sys.float_info.max

Labels = Literal["none", "class", "binary", "score", "vector"]


class Objective(nn.Module, abc.ABC):
    """A loss of the vectors of one batch. Base class.

    Vectors are those of the encoder, in float32 and outside autocast; a loss that uses cosine normalises them itself.
    In a run with several processes, vectors and labels are those of the whole global batch.
    """

    columns: tuple[int, int | None] = (2, 2)  # minimum and maximum number of text columns; None: no maximum
    labels: Labels = "none"
    distinct: bool = False  # every other row of a batch is a negative: no text twice in one batch
    queued: bool = False  # uses negatives of earlier batches: a batch may have one row
    grouped: bool = False  # needs several rows of each class in a batch
    truncatable: bool = True  # the loss can be computed for the first components of the vectors

    def __init__(self) -> None:
        super().__init__()

    def views(self, texts: list[list[str]], rng: np.random.Generator) -> list[list[str]]:
        """The texts to embed; by default the columns as they are."""
        return texts

    def embed(self, encoder: "TrainedEncoder", views: list[list[str]]) -> list[Tensor]:
        """Vectors (n, dim) of each view; by default by the encoder that is trained."""
        vectors: list[Tensor] = encoder(views)
        return vectors

    @abc.abstractmethod
    def forward(self, vectors: list[Tensor], labels: Tensor | None) -> Tensor:
        """The loss, a scalar: the mean over the batch unless the objective defines another."""

    def logits(self, vectors: list[Tensor]) -> Tensor | None:
        """Scores (n, choices) whose softmax is a distribution per row, if the objective has one."""
        return None

    def after_step(self, encoder: "TrainedEncoder") -> None:
        """Called after each step of the optimizer."""


def require_labels(objective: Objective, labels: Tensor | None) -> Tensor:
    """The labels, which this objective requires."""
    if labels is None:
        raise DataError(
            f"{type(objective).__name__} needs labels ({objective.labels}), but the batch has none: "
            "name the label column of the data"
        )
    return labels


def check_at_least(option: str, value: float, minimum: float) -> float:
    """The value of an option, if it is a finite number of at least `minimum`."""
    if not _is_number(value) or value < minimum:
        raise DataError(f"option {option!r} is {value!r}: give a number of at least {minimum:g}")
    return value


def check_between(option: str, value: float, low: float, high: float) -> float:
    """The value of an option, if it is a number above `low` and at most `high`."""
    if not _is_number(value) or not low < value <= high:
        upper = f" and at most {high:g}" if math.isfinite(high) else ""
        raise DataError(f"option {option!r} is {value!r}: give a number above {low:g}{upper}")
    return value


def check_choice(option: str, value: str, choices: Collection[str]) -> str:
    """The value of an option, if it is one of `choices`."""
    if value not in choices:
        raise DataError(f"option {option!r} is {value!r}: use one of {', '.join(map(repr, choices))}")
    return value


def _is_number(value: object) -> bool:
    # Compared as it is: an integer may be too large for a float.
    return type(value) in (int, float) and -_MAX_FLOAT <= value <= _MAX_FLOAT  # type: ignore[operator]
