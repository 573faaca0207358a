"""What can be found wrong with columns and models before a job begins."""

import dataclasses
import warnings
from collections.abc import Sequence

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from sbert_core.errors import DataError
from transforms.dataset.corpus import Corpus
from transforms.dataset.slices import Task, read_rows

LOOKED_AT_ROWS = 1000


def check_column(flag: str, column: str | None, columns: Sequence[str], where: str) -> None:
    """A column that a flag names must be there."""
    if column is not None and column not in columns:
        raise DataError(f"{where} has no column {column!r}; it has: {', '.join(columns)}. See --{flag}")


def check_time_column(column: str | None, task: Task | None) -> None:
    """The first values of a column of times must be times, or texts that can be read as such."""
    if column is None or task is None:
        return
    values = _first_values(task, column)
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    if not (is_text or pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_null(kind)):
        raise DataError(f"{task.path}: column {column!r} is {kind}, expected times, dates or texts. See --time_column")
    try:
        with warnings.catch_warnings(action="ignore"):  # of texts whose format is not obvious
            pd.to_datetime(values.to_pandas(), utc=True)
    except (ValueError, TypeError, OverflowError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(
            f"{task.path}: column {column!r} cannot be read as times: {reason}. See --time_column"
        ) from error


def check_newest_column(column: str | None, task: Task | None) -> None:
    """The values of the column that says which row is newest must have an order."""
    if column is None or task is None:
        return
    values = _first_values(task, column)
    try:
        pc.rank(values, sort_keys="ascending", tiebreaker="min")
    except pa.ArrowException as error:
        raise DataError(
            f"{task.path}: column {column!r} is {values.type}, whose values have no order. See --newest_column"
        ) from error


def check_cross_encoder(source: str | None) -> None:
    """A cross-encoder that cannot be loaded is told now, not when the pairs are there."""
    if source is not None:
        from sbert_core.encoder.cross_encoder import CrossEncoder  # takes seconds, and few need it

        CrossEncoder.load(source, device="cpu")


def first_task(corpus: Corpus) -> Task | None:
    """The first rows of a corpus, if it has any."""
    return corpus.blocks[0].slices[0] if corpus.blocks else None


def _first_values(task: Task, column: str) -> pa.Array:
    task = dataclasses.replace(task, rows=min(task.rows, LOOKED_AT_ROWS))
    batch = read_rows(task, [column])
    return batch.column(batch.schema.get_field_index(column))
