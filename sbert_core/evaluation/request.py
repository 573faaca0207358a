"""What an evaluation is asked to do, checked, and the rows it is about."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from sbert_core.data.examples import Examples, LabelKind, read_examples
from sbert_core.data.tables import column_names
from sbert_core.errors import DataError

Task = Literal[
    "sts",
    "pairs",
    "triplets",
    "nli",
    "retrieval",
    "clustering",
    "transfer",
    "mining",
    "efficiency",
    "health",
    "probes",
]

_OF_ROWS = tuple(task for task in get_args(Task) if task not in ("retrieval", "mining"))  # the two go by ids
# Options that only some tasks have.
_OF_TASKS: dict[str, tuple[str, ...]] = {
    "columns": (*_OF_ROWS, "mining"),
    "label": ("sts", "pairs", "nli", "clustering", "transfer", "health"),
    "label_range": ("sts", "health"),
    "where": _OF_ROWS,
    "limit": _OF_ROWS,
    "group_column": ("sts",),
    "split_column": ("nli", "transfer"),
    "pairs": ("mining",),
    "cross_encoder": ("efficiency",),
    "sentences": ("efficiency",),
}
_LABELLED = ("sts", "pairs", "nli", "clustering", "transfer")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """What was asked for; `evaluate` says what each of them means."""

    task: str
    data: str
    columns: Sequence[str]
    label: str | None
    label_range: tuple[float, float] | None
    where: Mapping[str, Any] | None
    limit: int | None
    group_column: str | None
    split_column: str | None
    pairs: str | None
    cross_encoder: str | None
    sentences: int | None
    device: str
    seed: int

    def __post_init__(self) -> None:
        if self.task not in get_args(Task):
            raise DataError(f"there is no task {self.task!r}: use {', '.join(get_args(Task))}")
        for name, tasks in _OF_TASKS.items():
            if getattr(self, name) not in (None, (), []) and self.task not in tasks:
                raise DataError(f"{name} means nothing to {self.task}: it is for {', '.join(tasks)}")
        if self.label is None and self.task in _LABELLED:
            there = ", ".join(column_names(self.data))
            raise DataError(f"{self.task} needs labels: name the label column of {self.data}, which has {there}")

    def name(self, where: Mapping[str, Any] | None = None) -> str:
        """What the data are called: the file, and which rows of it."""
        conditions = {**(self.where or {}), **(where or {})}
        told = ", ".join(
            f"{column}={'|'.join(map(str, value)) if isinstance(value, list | tuple) else value}"
            for column, value in conditions.items()
        )
        return f"{self.data} ({told})" if told else self.data

    def read(
        self, kind: LabelKind = "none", where: Mapping[str, Any] | None = None, classes: Sequence[str] = ()
    ) -> Examples:
        """The rows that were asked for, and of these those with `where`."""
        examples = self.read_labels(self.label if kind != "none" else None, kind, where, classes)
        return dataclasses.replace(examples, name=self.name(where))

    def read_labels(
        self, label: str | None, kind: LabelKind, where: Mapping[str, Any] | None = None, classes: Sequence[str] = ()
    ) -> Examples:
        """The same rows with another column as labels."""
        return read_examples(
            self.data,
            self.columns,
            label,
            kind,
            where={**(self.where or {}), **(where or {})},
            limit=self.limit,
            label_range=self.label_range if kind == "score" else None,
            classes=classes,
            seed=self.seed,
        )
