"""Ids that occur twice, found across the whole corpus."""

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
from transforms.dataset.slices import task_of

BUCKETS = 32


class IdBlock(NamedTuple):
    """The ids of one slice that fall into one bucket: 12 bytes each."""

    name: str  # of the file
    hashes: bytes  # (n,) uint64
    rows: bytes  # (n,) int32, counted from first_row
    first_row: int


def hash_ids(batch: pa.RecordBatch, id_column: str = ID) -> Iterator[tuple[int, IdBlock]]:
    """Hashes a batch's ids and deals them to buckets; equal ids meet in one."""
    task = task_of(batch)
    try:
        values = ids_as_text(batch.column(id_column)).to_numpy(zero_copy_only=False)
    except (UnicodeDecodeError, pa.ArrowException) as error:
        place = f"{task.name} rows {task.first_row} to {task.first_row + task.rows - 1}"
        raise DataError(f"{place}: an id in column {id_column!r} is not valid UTF-8. See --id_column") from error
    hashes = pd.util.hash_array(values, categorize=False)  # (n,) uint64, the same in every process
    buckets = hashes % BUCKETS
    for bucket in np.unique(buckets):
        rows = np.flatnonzero(buckets == bucket).astype(np.int32)
        yield int(bucket), IdBlock(task.name, hashes[rows].tobytes(), rows.tobytes(), task.first_row)


def find_duplicates(blocks: Iterable[IdBlock]) -> Iterator[str]:
    """Describes the first pair of rows in a bucket that share an id, if there is one."""
    known = sorted(blocks)
    hashes = np.concatenate([np.frombuffer(block.hashes, np.uint64) for block in known])
    order = np.argsort(hashes, kind="stable")
    twice = np.flatnonzero(hashes[order][1:] == hashes[order][:-1])
    if len(twice):
        places = [
            f"{block.name} row {block.first_row + row}"
            for block in known
            for row in np.frombuffer(block.rows, np.int32)
        ]
        first, second = order[twice[0]], order[twice[0] + 1]
        yield f"ids are not unique: {places[first]} and {places[second]} have the same. Mend them, or see --id_column"


def find_nulls(batch: pa.RecordBatch, id_column: str = ID) -> Iterator[str]:
    """Describes the first row of a batch that has no id, if there is one."""
    rows = np.flatnonzero(batch.column(id_column).is_null())
    if len(rows):
        task = task_of(batch)
        yield f"{task.name} row {task.first_row + rows[0]} has no id: column {id_column!r} is null. See --id_column"


@dataclasses.dataclass(kw_only=True, eq=False)
class FindDuplicateIds(beam.PTransform):
    """Tells of ids that two rows of the corpus share, and of rows without an id.

    Input is `pa.RecordBatch` of ReadSentences; output is a message for each of 32 buckets that has any, so one id
    that occurs twice is enough for one. Twelve bytes per row are shuffled.
    """

    id_column: str = ID

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, batches: beam.PCollection[pa.RecordBatch]) -> beam.PCollection[str]:
        """Equal ids meet in a bucket."""
        duplicates = (
            batches
            | "Hash" >> beam.FlatMap(hash_ids, id_column=self.id_column)
            | "Meet" >> beam.GroupByKey()
            | "FindDuplicates" >> beam.FlatMap(lambda bucket: find_duplicates(bucket[1]))
        )
        nulls = batches | "FindNulls" >> beam.FlatMap(find_nulls, id_column=self.id_column)
        return (nulls, duplicates) | "Problems" >> beam.Flatten()
