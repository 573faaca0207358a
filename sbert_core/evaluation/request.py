"""The checked settings of an evaluation, and the rows they select."""

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

_ROW_TASKS = tuple(task for task in get_args(Task) if task not in ("retrieval", "mining"))  # these two use ids
_TASKS_OF_OPTION: dict[str, tuple[str, ...]] = {
    "columns": (*_ROW_TASKS, "mining"),
    "label": ("sts", "pairs", "nli", "clustering", "transfer", "health"),
    "label_range": ("sts", "health"),
    "where": _ROW_TASKS,
    "limit": _ROW_TASKS,
    "group_column": ("sts",),
    "split_column": ("nli", "transfer"),
    "pairs": ("mining",),
    "cross_encoder": ("efficiency",),
    "sentences": ("efficiency",),
}
_LABELLED_TASKS = ("sts", "pairs", "nli", "clustering", "transfer")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The arguments of `evaluate`, which documents them."""

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
        for name, tasks in _TASKS_OF_OPTION.items():
            if getattr(self, name) not in (None, (), []) and self.task not in tasks:
                raise DataError(f"{name} is not for {self.task} but for {', '.join(tasks)}: leave {name} out")
        if self.label is None and self.task in _LABELLED_TASKS:
            there = ", ".join(column_names(self.data))
            raise DataError(f"{self.task} needs labels: name the label column of {self.data}, which has {there}")

    def name(self, where: Mapping[str, Any] | None = None) -> str:
        """The name of the data: the file, and the condition on its rows."""
        conditions = {**(self.where or {}), **(where or {})}
        condition = ", ".join(
            f"{column}={'|'.join(map(str, value)) if isinstance(value, list | tuple) else value}"
            for column, value in conditions.items()
        )
        return f"{self.data} ({condition})" if condition else self.data

    def read(
        self, kind: LabelKind = "none", where: Mapping[str, Any] | None = None, classes: Sequence[str] = ()
    ) -> Examples:
        """The selected rows; `where` restricts them further."""
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
