"""What there is to do: input files, and the slices of them that workers take one by one."""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Sequence

import pyarrow as pa

from sbert_core.errors import DataError
from sbert_core.schema import ID
from transforms.files import list_input, open_file
from transforms.formats import BATCH_ROWS, SUFFIXES, inspect_stream, read_stream

SLICE_ROWS = BATCH_ROWS

_TASK_KEY = b"sbert_beam.task"


@dataclasses.dataclass(frozen=True)
class Task:
    """A slice of one input file: what a worker reads, and the one part it becomes."""

    path: str
    name: str
    row_group: int
    skip_rows: int  # in the row group, before the slice
    first_row: int  # in the file
    rows: int

    @property
    def part_name(self) -> str:
        """The name of the output file: it depends on the slice alone."""
        stem = self.name.rsplit("/", 1)[-1].split(".", 1)[0]
        digest = hashlib.sha256(self.name.encode()).hexdigest()[:8]
        return f"{stem}-{digest}-{self.first_row:010d}.parquet"


@dataclasses.dataclass(frozen=True)
class InputFile:
    """An input file as it was found."""

    path: str
    name: str
    schema: pa.Schema
    row_groups: tuple[int, ...]  # rows of each

    @property
    def rows(self) -> int:
        """Rows in the file."""
        return sum(self.row_groups)


def inspect_files(patterns: Sequence[str]) -> list[InputFile]:
    """Lists the input and looks into every file; one that cannot be read is an error that names it."""
    listed = {path: name for pattern in patterns for path, name in list_input(pattern)}
    if not listed:
        wanted = ", ".join(map(repr, patterns))
        raise DataError(f"no input files: no {', '.join(SUFFIXES)} at {wanted} (a result is in its folder embeddings/)")
    return [_inspect(path, name) for path, name in sorted(listed.items())]


def _inspect(path: str, name: str) -> InputFile:
    try:
        with open_file(path) as file:
            return InputFile(path, name, *inspect_stream(file, path))
    except (pa.ArrowException, OSError, EOFError) as error:
        raise DataError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error


def check_files(files: Sequence[InputFile], text_column: str, id_column: str | None, added: Sequence[str]) -> None:
    """Checks all files before any work begins.

    A file without the text or id column, with a column that the job is to add, or with other columns than the first
    file is an error that names it.
    """
    for file in files:
        for flag, column in (("text_column", text_column), ("id_column", id_column)):
            if column is not None and column not in file.schema.names:
                raise DataError(
                    f"{file.path} has no column {column!r}; it has: {', '.join(file.schema.names)}. See --{flag}"
                )
        kind = file.schema.field(text_column).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
            raise DataError(f"{file.path}: column {text_column!r} is {kind}, expected text")
        taken = [name for name in added if name in file.schema.names]
        if taken:
            raise DataError(f"{file.path} already has a column {taken[0]!r}: see --{taken[0]}_column to rename ours")
        if not file.schema.equals(files[0].schema):
            difference = _difference(file.schema, files[0].schema)
            raise DataError(f"{file.path} and {files[0].path} differ in their columns: {difference}")


def _difference(schema: pa.Schema, other: pa.Schema) -> str:
    fields, others = ({field.name: str(field.type) for field in each} for each in (schema, other))
    names = [name for name in (*fields, *others) if fields.get(name) != others.get(name)]
    if not names:
        return "their order or nullability"
    return f"{names[0]!r} is {fields.get(names[0], 'missing')} and {others.get(names[0], 'missing')}"


def split_file(file: InputFile, slice_rows: int = SLICE_ROWS) -> Iterator[Task]:
    """Cuts a file into tasks of at most `slice_rows` rows, none across two row groups."""
    first_row = 0
    for group, rows in enumerate(file.row_groups):
        for skip in range(0, rows, slice_rows):
            yield Task(file.path, file.name, group, skip, first_row + skip, min(slice_rows, rows - skip))
        first_row += rows


def read_rows(task: Task, columns: Sequence[str] | None = None) -> pa.RecordBatch:
    """Reads the rows of a task, and no more of its row group than it takes to get there."""
    pieces, position, stop = [], 0, task.skip_rows + task.rows
    with open_file(task.path) as file:
        for batch in read_stream(file, task.path, task.row_group, columns):
            low, high = max(task.skip_rows - position, 0), min(stop - position, len(batch))
            if low < high:
                pieces.append(batch.slice(low, high - low))
            position += len(batch)
            if position >= stop:
                break
    return pa.concat_batches(pieces)


def read_task(task: Task, id_column: str | None = None) -> pa.RecordBatch:
    """Reads the rows of a task, which they then carry in their metadata.

    A file without ids gets them, from its name and the row's position in it: `name#row`.
    """
    batch = read_rows(task)
    if id_column is None and ID not in batch.schema.names:
        rows = range(task.first_row, task.first_row + task.rows)
        batch = batch.add_column(0, ID, pa.array([f"{task.name}#{row}" for row in rows]))
    return batch.replace_schema_metadata({_TASK_KEY: json.dumps(dataclasses.asdict(task)).encode()})


def task_of(batch: pa.RecordBatch) -> Task:
    """The task a batch was read for; it travels in the schema's metadata."""
    if not has_task(batch):
        raise DataError("this batch does not come from ReadSentences: only its batches have a place in the output")
    return Task(**json.loads(batch.schema.metadata[_TASK_KEY]))


def has_task(batch: pa.RecordBatch) -> bool:
    """Whether a batch comes from ReadSentences."""
    return _TASK_KEY in (batch.schema.metadata or {})


def without_task(metadata: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Metadata fit to be stored: a file does not say where its input lay."""
    return {key: value for key, value in metadata.items() if key != _TASK_KEY}
