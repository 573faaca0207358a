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
from transforms.dataset.slices import SLICE_ROWS, InputFile, InputSlice, inspect_files, read_slice, split_file


@dataclasses.dataclass(kw_only=True, eq=False)
class ReadSentences(beam.PTransform):
    """Reads files into `pa.RecordBatch` of at most `slice_rows` rows, one per slice.

    Input is a pipeline; `patterns` are globs, folders, or datasets with a manifest, on any file system that Beam knows,
    of Parquet, JSON, CSV, TSV or text files. A job that has inspected its input passes the `files`, so that text files,
    whose rows can only be counted by reading them, are not read once more. Without `files` a worker lists and inspects
    the input when the pipeline runs. Files without a column `id` get one, unless `id_column` names another. The order
    of batches is not kept; the metadata of each has its slice. Counters: `read/slices`, `read/rows`.
    """

    patterns: Sequence[str]
    slice_rows: int = SLICE_ROWS
    id_column: str | None = None
    text_format: TextFormat = DEFAULT_FORMAT
    files: Sequence[InputFile] | None = None  # None: list and inspect `patterns` on a worker

    def __post_init__(self) -> None:
        super().__init__()
        if self.slice_rows < 1:
            raise DataError(f"slice_rows must be at least 1, got {self.slice_rows}")

    def expand(self, root: beam.Pipeline) -> beam.PCollection[pa.RecordBatch]:
        """Splits files into slices, distributes the slices and reads them."""
        return (
            (self._list_files(root) if self.files is None else self._create_files(root, self.files))
            | "Split" >> beam.FlatMap(split_file, slice_rows=self.slice_rows)
            | "Spread" >> beam.Reshuffle()
            | "Read" >> beam.ParDo(_ReadFn(self.id_column))
        )

    def _list_files(self, root: beam.Pipeline) -> beam.PCollection[InputFile]:
        return (
            root
            | "Patterns" >> beam.Create([[absolute_pattern(pattern) for pattern in self.patterns]])
            | "ListFiles" >> beam.FlatMap(inspect_files, text_format=self.text_format)
        )

    def _create_files(self, root: beam.Pipeline, files: Sequence[InputFile]) -> beam.PCollection[InputFile]:
        return root | "Files" >> beam.Create([file.for_workers() for file in files])


class _ReadFn(beam.DoFn):
    def __init__(self, id_column: str | None) -> None:
        self._id_column = id_column
        self._slices = Metrics.counter("read", "slices")
        self._rows = Metrics.counter("read", "rows")

    def process(self, input_slice: InputSlice) -> Iterator[pa.RecordBatch]:
        self._slices.inc()
        self._rows.inc(input_slice.rows)
        yield read_slice(input_slice, self._id_column)
