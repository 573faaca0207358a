"""Parquet shards to batches of sentences."""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Sequence

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.metrics import Metrics

from sbert_core.errors import SbertBeamError
from sbert_core.schema import added_fields
from transforms.files import list_files, open_file

SLICE_ROWS = 8192

_TASK_KEY = b"sbert_beam.task"


class DataError(SbertBeamError, ValueError):
    """Input files are not there, not readable, or not what the job expects."""


@dataclasses.dataclass(frozen=True)
class Task:
    """A slice of one input file: what a worker reads, and the one part it becomes."""

    path: str
    name: str  # the path below the input folder: ids and part names are made of it
    first_row: int
    rows: int

    @property
    def part_name(self) -> str:
        """The name of the output file: it depends on the slice alone."""
        stem = self.name.rsplit("/", 1)[-1].rsplit(".", 1)[0]
        digest = hashlib.sha256(self.name.encode()).hexdigest()[:8]
        return f"{stem}-{digest}-{self.first_row:010d}.parquet"


@dataclasses.dataclass(frozen=True)
class InputFile:
    """What the footer of a Parquet file says."""

    path: str
    name: str
    schema: pa.Schema
    row_groups: tuple[int, ...]  # rows of each

    @property
    def rows(self) -> int:
        """Rows in the file."""
        return sum(self.row_groups)


def inspect_files(patterns: Sequence[str]) -> list[InputFile]:
    """Lists the input and reads every footer; a file that cannot be read is an error that names it."""
    listed = {path: name for pattern in patterns for path, name in list_files(pattern)}
    if not listed:
        raise DataError(f"no input files: nothing matches {', '.join(patterns)}")
    return [_inspect(path, name) for path, name in sorted(listed.items())]


def _inspect(path: str, name: str) -> InputFile:
    try:
        with open_file(path) as file:
            footer = pq.ParquetFile(file)
            groups = tuple(footer.metadata.row_group(g).num_rows for g in range(footer.num_row_groups))
            return InputFile(path, name, footer.schema_arrow, groups)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a readable Parquet file: {str(error).splitlines()[0]}") from error


def check_input(patterns: Sequence[str], text_column: str) -> int:
    """Checks all files before any work begins and returns how many rows they have.

    A file that is unreadable, has no text column, or differs from the first in its columns is an error that names it.
    """
    files = inspect_files(patterns)
    for file in files:
        check_columns(file.schema, text_column, file.path)
        if not file.schema.equals(files[0].schema):
            raise DataError(
                f"{file.path} and {files[0].path} differ in their columns: {_difference(file.schema, files[0].schema)}"
            )
    return sum(file.rows for file in files)


def check_columns(schema: pa.Schema, text_column: str, where: str) -> None:
    """Refuses a table that has no text to encode, or that has our columns already."""
    if text_column not in schema.names:
        raise DataError(f"{where} has no column {text_column!r}; it has: {', '.join(schema.names)}. See --text_column")
    kind = schema.field(text_column).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise DataError(f"{where}: column {text_column!r} is {kind}, expected text")
    taken = [field.name for field in added_fields(1) if field.name in schema.names]
    if taken:
        raise DataError(f"{where} already has a column {taken[0]!r}: rename or drop it, the job writes its own")


def _difference(schema: pa.Schema, other: pa.Schema) -> str:
    fields, others = ({field.name: str(field.type) for field in each} for each in (schema, other))
    names = [name for name in (*fields, *others) if fields.get(name) != others.get(name)]
    if not names:
        return "their order or nullability"
    return f"{names[0]!r} is {fields.get(names[0], 'missing')} and {others.get(names[0], 'missing')}"


def split_file(file: InputFile, slice_rows: int = SLICE_ROWS) -> Iterator[Task]:
    """Cuts a file into tasks of at most `slice_rows` rows, none across two row groups."""
    first_row = 0
    for rows in file.row_groups:
        for offset in range(0, rows, slice_rows):
            yield Task(file.path, file.name, first_row + offset, min(slice_rows, rows - offset))
        first_row += rows


def read_task(task: Task) -> pa.RecordBatch:
    """Reads the rows of a task, and no more of its row group than has to be decoded to get there."""
    with open_file(task.path) as file:
        parquet = pq.ParquetFile(file)
        start = 0
        for group in range(parquet.num_row_groups):
            rows = parquet.metadata.row_group(group).num_rows
            if start <= task.first_row < start + rows:
                break
            start += rows
        wanted, pieces = (task.first_row - start, task.first_row - start + task.rows), []
        position = 0
        for batch in parquet.iter_batches(batch_size=SLICE_ROWS, row_groups=[group]):
            low, high = max(wanted[0] - position, 0), min(wanted[1] - position, len(batch))
            if low < high:
                pieces.append(batch.slice(low, high - low))
            position += len(batch)
            if position >= wanted[1]:
                break
    return pa.concat_batches(pieces).replace_schema_metadata(task_metadata(task))


def task_metadata(task: Task) -> dict[bytes, bytes]:
    """How a task travels with its batch: in the schema's metadata."""
    return {_TASK_KEY: json.dumps(dataclasses.asdict(task)).encode()}


def task_of(batch: pa.RecordBatch) -> Task:
    """The task a batch was read for."""
    metadata = batch.schema.metadata or {}
    if _TASK_KEY not in metadata:
        raise DataError("this batch does not come from ReadSentences: only its batches have a place in the output")
    return Task(**json.loads(metadata[_TASK_KEY]))


@dataclasses.dataclass(kw_only=True, eq=False)
class ReadSentences(beam.PTransform):
    """Reads Parquet files into `pa.RecordBatch` of at most `slice_rows` rows, one per task.

    Input is a pipeline; `patterns` are globs or folders on any Beam filesystem. Order of batches is not kept;
    each carries its task in its schema's metadata. Counters: `read/tasks`, `read/rows`.
    """

    patterns: Sequence[str]
    slice_rows: int = SLICE_ROWS

    def __post_init__(self) -> None:
        super().__init__()
        if self.slice_rows < 1:
            raise DataError(f"slice_rows must be at least 1, got {self.slice_rows}")

    def expand(self, root: beam.Pipeline) -> beam.PCollection[pa.RecordBatch]:
        """Lists, splits, spreads, reads."""
        return (
            root
            | "Patterns" >> beam.Create([list(self.patterns)])
            | "ListFiles" >> beam.FlatMap(inspect_files)
            | "Split" >> beam.FlatMap(split_file, slice_rows=self.slice_rows)
            | "Spread" >> beam.Reshuffle()
            | "Read" >> beam.ParDo(_ReadFn())
        )


class _ReadFn(beam.DoFn):
    def __init__(self) -> None:
        self._tasks = Metrics.counter("read", "tasks")
        self._rows = Metrics.counter("read", "rows")

    def process(self, task: Task) -> Iterator[pa.RecordBatch]:
        self._tasks.inc()
        self._rows.inc(task.rows)
        yield read_task(task)
