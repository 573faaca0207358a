"""What all tasks need: checked rows, and their vectors."""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from sbert_core.data.examples import Examples
from sbert_core.errors import DataError, ModelError
from sbert_core.evaluation.result import Encode

Role = Literal["text", "query", "document"]


def check_examples(task: str, examples: Examples, columns: Sequence[int], labels: str = "") -> None:
    """Checks that there are rows, with the number of text columns and the labels that the task needs."""
    if not len(examples):
        raise DataError(f"{examples.name} has no rows: {task} needs some")
    if len(examples.texts) not in columns:
        raise DataError(
            f"{task} needs {' or '.join(map(str, columns))} text column(s), but {examples.name} has "
            f"{len(examples.texts)}: name them with columns"
        )
    if labels and (examples.labels is None or examples.labels.ndim != 1):
        raise DataError(f"{task} needs {labels}: name the label column of {examples.name}")


def labels_of(examples: Examples) -> np.ndarray:
    """The labels (n,) of rows that passed `check_examples` with labels."""
    assert examples.labels is not None
    return examples.labels


def encode_columns(encoder: Encode, columns: Sequence[Sequence[str]], roles: Sequence[Role] = ()) -> list[np.ndarray]:
    """Vectors (n, dim) of the texts of each column.

    `roles` are the roles of the columns, for models with prompts for queries and documents; without them, all texts are
    encoded with the default prompt. Columns of one role are encoded in one call, so that equal texts are encoded once.
    """
    all_roles: list[Role] = list(roles) or ["text"] * len(columns)
    vectors: dict[int, np.ndarray] = {}
    for role in dict.fromkeys(all_roles):
        own = [number for number, other in enumerate(all_roles) if other == role]
        found = _encode(_encode_method(encoder, role), [text for number in own for text in columns[number]])
        stops = np.cumsum([len(columns[number]) for number in own])[:-1]
        vectors |= dict(zip(own, np.split(found, stops), strict=True))
    return [vectors[number] for number in range(len(columns))]


def _encode_method(encoder: Encode, role: Role) -> Callable[[Sequence[str]], np.ndarray]:
    """The method for the role; a model without prompts has `encode` only."""
    if role == "text":
        return encoder.encode
    method: Callable[[Sequence[str]], np.ndarray] = getattr(encoder, f"encode_{role}", encoder.encode)
    return method


def _encode(encode: Callable[[Sequence[str]], np.ndarray], texts: list[str]) -> np.ndarray:
    vectors = np.asarray(encode(texts))
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise ModelError(
            f"the encoder returned an array of shape {vectors.shape} for {len(texts)} texts: expected one row per text"
        )
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        row = int(np.flatnonzero(~finite)[0])
        raise ModelError(f"the encoder returned a vector that is not finite for {texts[row][:60]!r}: check the model")
    return vectors
