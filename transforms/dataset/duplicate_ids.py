"""Finds ids that occur twice in a corpus, and rows without an id."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import apache_beam as beam
import numpy as np
import pandas as pd
import pyarrow as pa

from sbert_core.data.columns import ids_as_text
from sbert_core.data.schema import ID
from sbert_core.errors import DataError
from transforms.dataset.slices import InputSlice, read_slice, slice_of

ROWS_PER_BUCKET = 2**22
"""Rows in a bucket, about: one worker sorts their hashes, 12 bytes each."""

BUCKETS_IF_UNKNOWN = 64
MAX_BUCKETS = 1024
"""At 4 billion rows. More would leave few rows of a slice in each bucket."""


class IdBlock(NamedTuple):
    """The ids of one slice that belong to one bucket: 12 bytes each, and the slice."""

    input_slice: InputSlice
    hashes: bytes  # (n,) uint64
    rows: bytes  # (n,) int32, counted from the first row of the slice


def count_buckets(rows: int | None) -> int:
    """The number of buckets for a corpus; None: its size is not known."""
    return BUCKETS_IF_UNKNOWN if rows is None else min(max(-(-rows // ROWS_PER_BUCKET), 1), MAX_BUCKETS)


def hash_ids(batch: pa.RecordBatch, id_column: str = ID, buckets: int = 1) -> Iterator[tuple[int, IdBlock]]:
    """Hashes the ids of a batch and partitions them into buckets; equal ids have the same bucket."""
    input_slice = slice_of(batch)
    hashes = _hash(_texts(batch, input_slice, id_column))
    numbers = hashes % np.uint64(buckets)
    for number in np.unique(numbers):
        rows = np.flatnonzero(numbers == number).astype(np.int32)
        yield int(number), IdBlock(input_slice, hashes[rows].tobytes(), rows.tobytes())


def _texts(batch: pa.RecordBatch, input_slice: InputSlice, id_column: str) -> np.ndarray:
    """The ids of a slice as texts (n,)."""
    try:
        return ids_as_text(batch.column(id_column)).to_numpy(zero_copy_only=False)
    except (UnicodeDecodeError, pa.ArrowException) as error:
        first_row = input_slice.first_row
        place = f"{input_slice.name} rows {first_row} to {first_row + input_slice.rows - 1}"
        raise DataError(f"{place}: an id in column {id_column!r} is not valid UTF-8. See --id_column") from error


def _hash(values: np.ndarray) -> np.ndarray:
    """Hashes (n,) uint64 of texts (n,), the same in every process."""
    return pd.util.hash_array(values, categorize=False)


def find_duplicates(blocks: Iterable[IdBlock], id_column: str = ID) -> Iterator[str]:
    """Describes the first pair of rows in a bucket that share an id, if there is one.

    Rows with the same hash are read again, because different ids may have the same hash.
    """
    # Sorted, so that the message does not depend on the order of arrival.
    ordered = sorted(blocks, key=lambda block: (block.input_slice.name, block.input_slice.first_row))
    hashes = np.concatenate([np.frombuffer(block.hashes, np.uint64) for block in ordered])
    order = np.argsort(hashes, kind="stable")
    is_repeated = hashes[order][1:] == hashes[order][:-1]
    if not is_repeated.any():
        return
    ends = np.cumsum([len(block.rows) // 4 for block in ordered])
    rows = np.concatenate([np.frombuffer(block.rows, np.int32) for block in ordered])
    groups = np.split(order, np.flatnonzero(~is_repeated) + 1)
    read: dict[int, np.ndarray] = {}  # the ids of the slice that was read last
    for group in (group for group in groups if len(group) > 1):
        places: dict[str | None, str] = {}
        for position in group:
            number = int(np.searchsorted(ends, position, side="right"))
            input_slice, row = ordered[number].input_slice, int(rows[position])
            if number not in read:
                read = {number: _texts(read_slice(input_slice), input_slice, id_column)}
            text, place = read[number][row], f"{input_slice.name} row {input_slice.first_row + row}"
            if text in places:
                yield (
                    f"ids are not unique: {places[text]} and {place} have the same id. Fix the duplicates, or see "
                    "--id_column"
                )
                return
            places[text] = place


def find_nulls(batch: pa.RecordBatch, id_column: str = ID) -> Iterator[str]:
    """Describes the first row of a batch that has no id, if there is one."""
    rows = np.flatnonzero(batch.column(id_column).is_null())
    if len(rows):
        input_slice = slice_of(batch)
        place = f"{input_slice.name} row {input_slice.first_row + rows[0]}"
        yield f"{place} has no id: column {id_column!r} is null. See --id_column"


@dataclasses.dataclass(kw_only=True, eq=False)
class FindDuplicateIds(beam.PTransform):
    """Finds ids that two rows of the corpus share, and rows without an id.

    Input is `pa.RecordBatch` of ReadSentences. Output is one message for each bucket of ids in which some occur twice,
    and one for each batch with rows without an id. Twelve bytes per row are shuffled, and for each batch and bucket the
    description of a slice.
    """

    id_column: str = ID
    rows: int | None = None  # of the corpus, if they are known: decides the number of buckets

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, batches: beam.PCollection[pa.RecordBatch]) -> beam.PCollection[str]:
        """Groups ids by bucket and compares them there."""
        duplicates = (
            batches
            | "Hash" >> beam.FlatMap(hash_ids, id_column=self.id_column, buckets=count_buckets(self.rows))
            | "GroupByBucket" >> beam.GroupByKey()
            | "FindDuplicates" >> beam.FlatMapTuple(lambda _, blocks: find_duplicates(blocks, self.id_column))
        )
        nulls = batches | "FindNulls" >> beam.FlatMap(find_nulls, id_column=self.id_column)
        return (nulls, duplicates) | "Problems" >> beam.Flatten()
