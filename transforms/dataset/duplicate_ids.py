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
from transforms.dataset.slices import slice_of

N_BUCKETS = 32


class IdBlock(NamedTuple):
    """The ids of one slice that belong to one bucket: 12 bytes each."""

    name: str  # of the file
    hashes: bytes  # (n,) uint64
    rows: bytes  # (n,) int32, counted from first_row
    first_row: int


def hash_ids(batch: pa.RecordBatch, id_column: str = ID) -> Iterator[tuple[int, IdBlock]]:
    """Hashes the ids of a batch and partitions them into buckets; equal ids have the same bucket."""
    input_slice = slice_of(batch)
    name, first_row = input_slice.name, input_slice.first_row
    try:
        values = ids_as_text(batch.column(id_column)).to_numpy(zero_copy_only=False)
    except (UnicodeDecodeError, pa.ArrowException) as error:
        place = f"{name} rows {first_row} to {first_row + input_slice.rows - 1}"
        raise DataError(f"{place}: an id in column {id_column!r} is not valid UTF-8. See --id_column") from error
    hashes = pd.util.hash_array(values, categorize=False)  # (n,) uint64, the same in every process
    buckets = hashes % N_BUCKETS
    for bucket in np.unique(buckets):
        rows = np.flatnonzero(buckets == bucket).astype(np.int32)
        yield int(bucket), IdBlock(name, hashes[rows].tobytes(), rows.tobytes(), first_row)


def find_duplicates(blocks: Iterable[IdBlock]) -> Iterator[str]:
    """Describes the first pair of rows in a bucket that share an id, if there is one."""
    ordered = sorted(blocks)  # so that the message does not depend on the order of arrival
    hashes = np.concatenate([np.frombuffer(block.hashes, np.uint64) for block in ordered])
    order = np.argsort(hashes, kind="stable")
    repeated = np.flatnonzero(hashes[order][1:] == hashes[order][:-1])
    if len(repeated):
        places = [
            f"{block.name} row {block.first_row + row}"
            for block in ordered
            for row in np.frombuffer(block.rows, np.int32)
        ]
        first, second = order[repeated[0]], order[repeated[0] + 1]
        yield (
            f"ids are not unique: {places[first]} and {places[second]} have the same id. Fix the duplicates, or see "
            "--id_column"
        )


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
    and one for each batch with rows without an id. Twelve bytes per row are shuffled.
    """

    id_column: str = ID

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, batches: beam.PCollection[pa.RecordBatch]) -> beam.PCollection[str]:
        """Groups ids by bucket and compares them there."""
        duplicates = (
            batches
            | "Hash" >> beam.FlatMap(hash_ids, id_column=self.id_column)
            | "GroupByBucket" >> beam.GroupByKey()
            | "FindDuplicates" >> beam.FlatMapTuple(lambda _, blocks: find_duplicates(blocks))
        )
        nulls = batches | "FindNulls" >> beam.FlatMap(find_nulls, id_column=self.id_column)
        return (nulls, duplicates) | "Problems" >> beam.Flatten()
