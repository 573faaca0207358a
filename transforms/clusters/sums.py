"""Sums of arrays that many workers add to."""

from collections.abc import Iterable
from typing import Any

import apache_beam as beam

WHOLE = 2.0**28  # parts of one that numbers are added up in: exact for 2**35 rows, so the order has no effect


class AddUpFn(beam.CombineFn):
    """Adds tuples of arrays, place by place; the sum of nothing is None."""

    def create_accumulator(self) -> Any:
        """Nothing yet."""
        return None

    def add_input(self, accumulator: Any, arrays: Any) -> Any:
        """Adds what one block has."""
        return arrays if accumulator is None else tuple(a + b for a, b in zip(accumulator, arrays, strict=True))

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        """Adds what several workers have."""
        merged = None
        for accumulator in accumulators:
            merged = merged if accumulator is None else self.add_input(merged, accumulator)
        return merged

    def extract_output(self, accumulator: Any) -> Any:
        """All of it."""
        return accumulator
