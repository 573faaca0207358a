"""Merging values from many workers, in any order."""

from collections.abc import Callable, Iterable
from typing import Any

import apache_beam as beam
import numpy as np


class MergeFn(beam.CombineFn):
    """Merges all values with a function of two values, whose order must have no effect; None if there are no values."""

    def __init__(self, merge: Callable[[Any, Any], Any]) -> None:
        self._merge = merge

    def create_accumulator(self) -> Any:
        """No value yet."""
        return None

    def add_input(self, accumulator: Any, value: Any) -> Any:
        """Merges one value."""
        return value if accumulator is None else self._merge(accumulator, value)

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        """Merges the values of several workers."""
        merged = None
        for accumulator in accumulators:
            merged = merged if accumulator is None else self.add_input(merged, accumulator)
        return merged

    def extract_output(self, accumulator: Any) -> Any:
        """The merged value."""
        return accumulator


def add_arrays(first: tuple[np.ndarray, ...], second: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """The sums of the arrays of two tuples, position by position."""
    return tuple(a + b for a, b in zip(first, second, strict=True))
