"""The result of an evaluation: figures, counts, curves to plot, and parts."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from sbert_core.errors import DataError


class Encode(Protocol):
    """What a task needs of a model: vectors of texts; `SentenceEncoder` has it.

    Tasks with queries use `encode_query` and `encode_document` of models that have them.
    """

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Returns one row per text."""
        ...


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The scores of a model on a data set."""

    task: str
    data: str  # name of the data: a file, a subset
    model: str
    main: str  # the name of the main figure
    scores: dict[str, float]  # figures by name; correlations and rates from 0 (or -1) to 1
    counts: dict[str, int]  # rows, classes ...
    curves: dict[str, list[list[float]]] = dataclasses.field(default_factory=dict)  # points to plot
    parts: list["Evaluation"] = dataclasses.field(default_factory=list)  # subsets, or probes

    def __post_init__(self) -> None:
        if self.main not in self.scores:
            raise DataError(f"{self.task} on {self.data}: the main figure {self.main!r} is not in {list(self.scores)}")

    @property
    def score(self) -> float:
        """The main figure."""
        return self.scores[self.main]

    def to_dict(self) -> dict[str, Any]:
        """Values for JSON, which has no NaN: an undefined figure is None."""
        return {
            "task": self.task,
            "data": self.data,
            "model": self.model,
            "main": self.main,
            "scores": {name: _plain(value) for name, value in self.scores.items()},
            "counts": {name: int(value) for name, value in self.counts.items()},
            "curves": {
                name: [[_plain(value) for value in point] for point in points] for name, points in self.curves.items()
            },
            "parts": [part.to_dict() for part in self.parts],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Evaluation":
        """The inverse of `to_dict`."""
        if not isinstance(values, Mapping):
            raise DataError(f"an evaluation is a mapping, got {type(values).__name__}")
        fields = {field.name for field in dataclasses.fields(cls)}
        missing = sorted(fields - {"curves", "parts"} - values.keys())
        if missing or values.keys() - fields:
            wrong = f"{missing[0]!r} is missing" if missing else f"{min(values.keys() - fields)!r} is not known"
            raise DataError(f"not an evaluation: {wrong}; it has {sorted(fields)}")
        return cls(
            task=values["task"],
            data=values["data"],
            model=values["model"],
            main=values["main"],
            scores={name: _number(value) for name, value in values["scores"].items()},
            counts=dict(values["counts"]),
            curves={
                name: [[_number(value) for value in point] for point in points]
                for name, points in values.get("curves", {}).items()
            },
            parts=[cls.from_dict(part) for part in values.get("parts", [])],
        )


def _plain(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
