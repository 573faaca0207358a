"""Checks of columns and models before a job begins."""

import dataclasses
import warnings
from collections.abc import Sequence

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from sbert_core.errors import DataError
from transforms.dataset.corpus import Corpus
from transforms.dataset.slices import InputSlice, read_rows

CHECKED_ROWS = 1000


def check_column(flag: str, column: str | None, columns: Sequence[str], where: str) -> None:
    """Checks that the column that a flag names exists."""
    if column is not None and column not in columns:
        raise DataError(f"{where} has no column {column!r}; it has: {', '.join(columns)}. See --{flag}")


def check_time_column(column: str | None, rows: InputSlice | None) -> None:
    """Checks that the first values of a column are times, or texts that can be parsed as times."""
    if column is None or rows is None:
        return
    values = _first_values(rows, column)
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    if not (is_text or pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_null(kind)):
        raise DataError(f"{rows.path}: column {column!r} is {kind}, expected times, dates or texts. See --time_column")
    try:
        with warnings.catch_warnings(action="ignore"):  # pandas warns about formats that it has to guess
            pd.to_datetime(values.to_pandas(), utc=True)
    except (ValueError, TypeError, OverflowError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(
            f"{rows.path}: column {column!r} cannot be read as times: {reason}. See --time_column"
        ) from error


def check_newest_column(column: str | None, rows: InputSlice | None) -> None:
    """Checks that the values of a column can be ordered."""
    if column is None or rows is None:
        return
    values = _first_values(rows, column)
    try:
        pc.rank(values, sort_keys="ascending", tiebreaker="min")
    except pa.ArrowException as error:
        raise DataError(
            f"{rows.path}: column {column!r} is {values.type}, whose values have no order. See --newest_column"
        ) from error


def check_cross_encoder(source: str | None) -> None:
    """Loads a cross-encoder, so that one that cannot be loaded is an error before the pairs are computed."""
    if source is not None:
        from sbert_core.encoder.cross_encoder import CrossEncoder  # takes seconds to import

        CrossEncoder.load(source, device="cpu")


def first_slice(corpus: Corpus) -> InputSlice | None:
    """The first rows of a corpus, if it has any."""
    return corpus.blocks[0].slices[0] if corpus.blocks else None


def _first_values(rows: InputSlice, column: str) -> pa.Array:
    first_rows = dataclasses.replace(rows, rows=min(rows.rows, CHECKED_ROWS))
    batch = read_rows(first_rows, [column])
    return batch.column(batch.schema.get_field_index(column))
