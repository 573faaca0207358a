"""Validation of what callers pass to the encoders: texts, and pairs of texts."""

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from sbert_core.errors import TextError

Item = TypeVar("Item", bound=Hashable)


def check_texts(texts: Iterable[str]) -> list[str]:
    """Returns `texts` as a list of str; anything else is a `TextError` that names the position."""
    _check_iterable(texts, "texts", "str")
    checked: list[str] = texts.to_pylist() if hasattr(texts, "to_pylist") else list(texts)
    for position, text in enumerate(checked):
        if not isinstance(text, str):
            raise TextError(f"texts[{position}] is {type(text).__name__}, expected str")
    return checked


def check_pairs(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Returns `pairs` as a list of tuples of two str; anything else is a `TextError` that names the position."""
    _check_iterable(pairs, "pairs", "pairs of str")
    checked = []
    for row, pair in enumerate(pairs):
        if not isinstance(pair, tuple | list | np.ndarray) or len(pair) != 2:
            raise TextError(f"pairs[{row}] is {type(pair).__name__}, expected a pair of str")
        for side, text in enumerate(pair):
            if not isinstance(text, str):
                raise TextError(f"pairs[{row}][{side}] is {type(text).__name__}, expected str")
        checked.append((pair[0], pair[1]))
    return checked


def distinct_items(items: Sequence[Item]) -> tuple[list[Item], np.ndarray]:
    """Returns the distinct items in order of first appearance, and for each item its row among them: (n,) int64."""
    positions: dict[Item, int] = {}
    rows = np.fromiter((positions.setdefault(item, len(positions)) for item in items), np.int64, len(items))
    return list(positions), rows


def _check_iterable(value: object, name: str, expected: str) -> None:
    if isinstance(value, str | bytes | dict | set) or not isinstance(value, Iterable):
        raise TextError(f"{name} is a {type(value).__name__}: pass a list of {expected}")
