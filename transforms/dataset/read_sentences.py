"""Shards of sentences to batches."""

import dataclasses
from collections.abc import Iterator, Sequence

import apache_beam as beam
import pyarrow as pa
from apache_beam.metrics import Metrics

import transforms.dataset.batch_coder  # noqa: F401 - registers how batches cross a shuffle
from sbert_core.data.text_stream import DEFAULT_FORMAT, TextFormat
from sbert_core.errors import DataError
from transforms.dataset.listing import absolute_pattern
from transforms.dataset.slices import SLICE_ROWS, Task, inspect_files, read_task, split_file


@dataclasses.dataclass(kw_only=True, eq=False)
class ReadSentences(beam.PTransform):
    """Reads files into `pa.RecordBatch` of at most `slice_rows` rows, one per task.

    Input is a pipeline; `patterns` are globs, folders, or datasets with a manifest, on any Beam filesystem, of
    Parquet, JSON, CSV, TSV or text files. Files without a column `id`, or the one that `id_column` names, get one.
    Order of batches is not kept; each carries its task in its schema's metadata. Counters: `read/tasks`, `read/rows`.
    """

    patterns: Sequence[str]
    slice_rows: int = SLICE_ROWS
    id_column: str | None = None
    text_format: TextFormat = DEFAULT_FORMAT
    skip: Sequence[str] = ()  # names of files to leave out

    def __post_init__(self) -> None:
        super().__init__()
        if self.slice_rows < 1:
            raise DataError(f"slice_rows must be at least 1, got {self.slice_rows}")

    def expand(self, root: beam.Pipeline) -> beam.PCollection[pa.RecordBatch]:
        """Lists, splits, spreads, reads."""
        return (
            root
            | "Patterns" >> beam.Create([[absolute_pattern(pattern) for pattern in self.patterns]])
            | "ListFiles" >> beam.FlatMap(inspect_files, text_format=self.text_format, skip=frozenset(self.skip))
            | "Split" >> beam.FlatMap(split_file, slice_rows=self.slice_rows)
            | "Spread" >> beam.Reshuffle()
            | "Read" >> beam.ParDo(_ReadFn(self.id_column))
        )


class _ReadFn(beam.DoFn):
    def __init__(self, id_column: str | None) -> None:
        self._id_column = id_column
        self._tasks = Metrics.counter("read", "tasks")
        self._rows = Metrics.counter("read", "rows")

    def process(self, task: Task) -> Iterator[pa.RecordBatch]:
        self._tasks.inc()
        self._rows.inc(task.rows)
        yield read_task(task, self._id_column)
