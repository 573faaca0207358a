"""What every task begins with: rows that can be scored, and their vectors."""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from sbert_core.data.examples import Examples
from sbert_core.errors import DataError, ModelError
from sbert_core.evaluation.result import Encode

Role = Literal["text", "query", "document"]


def check_examples(task: str, examples: Examples, columns: Sequence[int], labels: str = "") -> None:
    """Refuses rows that are none, have another number of text columns, or lack the labels that the task needs."""
    if not len(examples):
        raise DataError(f"{examples.name} has no rows: {task} has nothing to score")
    if len(examples.texts) not in columns:
        raise DataError(
            f"{task} is about {' or '.join(map(str, columns))} text column(s), and {examples.name} gives "
            f"{len(examples.texts)}: name them with columns"
        )
    if labels and (examples.labels is None or examples.labels.ndim != 1):
        raise DataError(f"{task} needs {labels}: name the label column of {examples.name}")


def labels_of(examples: Examples) -> np.ndarray:
    """The labels (n,) of rows that were checked to have some."""
    assert examples.labels is not None
    return examples.labels


def encode_columns(encoder: Encode, columns: Sequence[Sequence[str]], roles: Sequence[Role] = ()) -> list[np.ndarray]:
    """Vectors (n, dim) of the texts of each column.

    `roles` say which columns are queries and which documents, for models that have prompts for these; without them,
    all texts are encoded the default way. Columns of one role go to the encoder at once, which may meet a text twice.
    """
    given: list[Role] = list(roles) or ["text"] * len(columns)
    vectors: dict[int, np.ndarray] = {}
    for role in dict.fromkeys(given):
        own = [number for number, other in enumerate(given) if other == role]
        found = _encode(_way_to_encode(encoder, role), [text for number in own for text in columns[number]])
        stops = np.cumsum([len(columns[number]) for number in own])[:-1]
        vectors |= dict(zip(own, np.split(found, stops), strict=True))
    return [vectors[number] for number in range(len(columns))]


def _way_to_encode(encoder: Encode, role: Role) -> Callable[[Sequence[str]], np.ndarray]:
    """An encoder that has no prompts need not tell queries from documents."""
    if role == "text":
        return encoder.encode
    way: Callable[[Sequence[str]], np.ndarray] = getattr(encoder, f"encode_{role}", encoder.encode)
    return way


def _encode(encode: Callable[[Sequence[str]], np.ndarray], texts: list[str]) -> np.ndarray:
    vectors = np.asarray(encode(texts))
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise ModelError(f"the encoder gives an array of shape {vectors.shape} for {len(texts)} texts: expected rows")
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        row = int(np.flatnonzero(~finite)[0])
        raise ModelError(f"the encoder gives a vector that is not finite for {texts[row][:60]!r}: it cannot be scored")
    return vectors
