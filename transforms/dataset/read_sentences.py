"""Reads files of sentences into batches."""

import dataclasses
from collections.abc import Iterator, Sequence

import apache_beam as beam
import pyarrow as pa
from apache_beam.metrics import Metrics

import transforms.dataset.batch_coder  # noqa: F401 - registers how batches cross a shuffle
from sbert_core.data.text_stream import DEFAULT_FORMAT, TextFormat
from sbert_core.errors import DataError
from transforms.dataset.listing import absolute_pattern
from transforms.dataset.read_tasks import ReadTask, plan_tasks, read_task, share_rows
from transforms.dataset.slices import SLICE_ROWS, InputFile, inspect_files


@dataclasses.dataclass(kw_only=True, eq=False)
class ReadSentences(beam.PTransform):
    """Reads files into `pa.RecordBatch` of at most `slice_rows` rows, one per slice.

    Input is a pipeline; `patterns` are globs, folders, or datasets with a manifest, on any file system that Beam knows,
    of Parquet, JSON, CSV, TSV or text files. A job that has inspected its input passes the `files`, so that text files,
    whose rows can only be counted by reading them, are not read once more. Without `files` a worker lists and inspects
    the input when the pipeline runs. A worker reads the slices of a task one after the other, in one pass. Large row
    groups and text files are cut into several tasks only where there would be fewer than about `min_tasks`; see
    `transforms.dataset.read_tasks`. Files without a column `id` get one, unless `id_column` names another. The order of
    batches is not kept; the metadata of each has its slice. Counters: `read/tasks`, `read/slices`, `read/rows`.
    """

    patterns: Sequence[str]
    slice_rows: int = SLICE_ROWS
    id_column: str | None = None
    text_format: TextFormat = DEFAULT_FORMAT
    files: Sequence[InputFile] | None = None  # None: list and inspect `patterns` on a worker
    min_tasks: int = 1  # how many workers should read and encode at once

    def __post_init__(self) -> None:
        super().__init__()
        if self.slice_rows < 1:
            raise DataError(f"slice_rows must be at least 1, got {self.slice_rows}")
        if self.min_tasks < 1:
            raise DataError(f"min_tasks must be at least 1, got {self.min_tasks}")

    def expand(self, root: beam.Pipeline) -> beam.PCollection[pa.RecordBatch]:
        """Divides files into tasks, distributes the tasks and reads their slices."""
        return (
            (self._list_tasks(root) if self.files is None else self._create_tasks(root, self.files))
            | "Spread" >> beam.Reshuffle()
            | "Read" >> beam.ParDo(_ReadFn(self.id_column))
        )

    def _list_tasks(self, root: beam.Pipeline) -> beam.PCollection[ReadTask]:
        return (
            root
            | "Patterns" >> beam.Create([[absolute_pattern(pattern) for pattern in self.patterns]])
            | "ListTasks" >> beam.FlatMap(_list_tasks, self.text_format, self.slice_rows, self.min_tasks)
        )

    def _create_tasks(self, root: beam.Pipeline, files: Sequence[InputFile]) -> beam.PCollection[ReadTask]:
        task_rows = share_rows(files, self.min_tasks)
        return (
            root
            | "Files" >> beam.Create([file.for_workers() for file in files])
            | "Plan" >> beam.FlatMap(plan_tasks, slice_rows=self.slice_rows, task_rows=task_rows)
        )


def _list_tasks(patterns: list[str], text_format: TextFormat, slice_rows: int, min_tasks: int) -> Iterator[ReadTask]:
    files = inspect_files(patterns, text_format)
    task_rows = share_rows(files, min_tasks)
    for file in files:
        yield from plan_tasks(file.for_workers(), slice_rows, task_rows)


class _ReadFn(beam.DoFn):
    def __init__(self, id_column: str | None) -> None:
        self._id_column = id_column
        self._tasks = Metrics.counter("read", "tasks")
        self._slices = Metrics.counter("read", "slices")
        self._rows = Metrics.counter("read", "rows")

    def process(self, task: ReadTask) -> Iterator[pa.RecordBatch]:
        self._tasks.inc()
        for batch in read_task(task, self._id_column):
            self._slices.inc()
            self._rows.inc(len(batch))
            yield batch
