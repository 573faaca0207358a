"""What there is to do: input files, and the slices of them that workers take one by one."""

import base64
import contextlib
import dataclasses
import functools
import json
import zlib
from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from sbert_core.data.columns import check_columns, plain_batch, plain_schema
from sbert_core.data.manifest import SkippedFile
from sbert_core.data.schema import ID
from sbert_core.data.text_stream import DEFAULT_FORMAT, BadFileError, TextFormat
from sbert_core.errors import DataError
from transforms.dataset.files import open_file
from transforms.dataset.formats import BATCH_ROWS, inspect_stream, read_stream, suffix_of
from transforms.dataset.listing import first_line, list_inputs
from transforms.dataset.published import check_content

SLICE_ROWS = BATCH_ROWS

_TASK_KEY = b"sbert_beam.task"
_UNREADABLE = (pa.ArrowException, OSError, BeamIOError, EOFError, UnicodeError, zlib.error, BadFileError)


@dataclasses.dataclass(frozen=True)
class Task:
    """A slice of one input file: what a worker reads, and the one part it becomes."""

    path: str
    name: str
    row_group: int
    skip_rows: int  # in the row group, before the slice
    first_row: int  # in the file
    rows: int
    version: str = ""  # of the file when it was inspected
    text_format: TextFormat = DEFAULT_FORMAT
    json_schema: str = ""  # of a JSON file: its columns
    sha256: str = ""  # of the file, where a manifest has it: it is checked before the first read


@dataclasses.dataclass(frozen=True)
class InputFile:
    """An input file as it was found."""

    path: str
    name: str
    schema: pa.Schema
    row_groups: tuple[int, ...]  # rows of each
    version: str = ""  # another one when the file is changed
    text_format: TextFormat = DEFAULT_FORMAT
    sha256: str = ""  # of a part of a dataset

    @property
    def rows(self) -> int:
        """Rows in the file."""
        return sum(self.row_groups)

    @property
    def is_blank(self) -> bool:
        """Whether it is a text file without content: a shard without rows, whose columns are not known."""
        return not self.schema.names and not self.rows


def inspect_files(
    patterns: Sequence[str], text_format: TextFormat = DEFAULT_FORMAT, skip: Collection[str] = ()
) -> list[InputFile]:
    """Lists the input and looks into every file; one that cannot be read is an error that names it.

    Files whose names are in `skip` are left out.
    """
    files = []
    for path, name in list_inputs(patterns):
        if name not in skip:
            files.append(inspect_file(path, name, text_format))
    return files


def inspect_file(path: str, name: str, text_format: TextFormat = DEFAULT_FORMAT) -> InputFile:
    """Looks into a file; one that cannot be read is an error that names it."""
    with _naming(path):
        return _inspect(path, name, text_format)


def inspect_readable_files(
    patterns: Sequence[str], text_format: TextFormat = DEFAULT_FORMAT
) -> tuple[list[InputFile], list[SkippedFile]]:
    """The same, but files that cannot be read are set aside with the reason.

    Every file is read to its end: damage to a Parquet file may show nowhere else. It is an error if no file is left.
    """
    files: list[InputFile] = []
    skipped: list[SkippedFile] = []
    for path, name in list_inputs(patterns):
        try:
            files.append(_inspect(path, name, text_format, whole=True))
        except _UNREADABLE as error:
            skipped.append(SkippedFile(name=name, reason=first_line(error)))
    if not files:
        raise DataError(
            f"none of the {len(skipped)} input files can be read; the first is {skipped[0].name}: {skipped[0].reason}"
        )
    return files, skipped


def _inspect(path: str, name: str, text_format: TextFormat, *, whole: bool = False) -> InputFile:
    open_stream = functools.partial(open_file, path)
    with open_stream():  # says best what is no file
        version = _version(path)
    schema, row_groups = inspect_stream(open_stream, path, text_format, whole=whole)
    return InputFile(path, name, plain_schema(schema), row_groups, version, text_format)


def _version(path: str) -> str:
    """Changes when a file is written again."""
    metadata = FileSystems.get_filesystem(path).metadata(path)
    return f"{metadata.size_in_bytes}@{metadata.last_updated_in_seconds}"


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """Errors of a file that cannot be read name it."""
    try:
        yield
    except _UNREADABLE as error:
        raise DataError(f"{path} cannot be read: {first_line(error)}") from error


def check_files(files: Sequence[InputFile], text_column: str, id_column: str | None, added: Sequence[str]) -> None:
    """Checks all files before any work begins.

    A file without the text or id column, with a column that the job is to add or of a type that it cannot use, or with
    other columns than the first file is an error that names it. Blank files have no columns to check.
    """
    filled = [file for file in files if not file.is_blank]
    for file in filled:
        for flag, column in (("text_column", text_column), ("id_column", id_column)):
            if column is not None and column not in file.schema.names:
                raise DataError(
                    f"{file.path} has no column {column!r}; it has: {', '.join(file.schema.names)}. See --{flag}"
                )
        check_columns(file.path, file.schema, text_column, id_column or ID)
        taken = [name for name in added if name in file.schema.names]
        if taken:
            raise DataError(f"{file.path} already has a column {taken[0]!r}: see --{taken[0]}_column to rename ours")
        if not file.schema.equals(filled[0].schema):
            difference = _difference(file.schema, filled[0].schema)
            raise DataError(f"{file.path} and {filled[0].path} differ in their columns: {difference}")


def _difference(schema: pa.Schema, other: pa.Schema) -> str:
    fields, others = ({field.name: str(field.type) for field in each} for each in (schema, other))
    names = [name for name in (*fields, *others) if fields.get(name) != others.get(name)]
    if not names:
        return "their order or nullability"
    return f"{names[0]!r} is {fields.get(names[0], 'missing')} and {others.get(names[0], 'missing')}"


def split_file(file: InputFile, slice_rows: int = SLICE_ROWS) -> Iterator[Task]:
    """Cuts a file into tasks of at most `slice_rows` rows, none across two row groups."""
    json_schema = ""
    if suffix_of(file.path) in (".json", ".jsonl"):
        json_schema = base64.b64encode(file.schema.serialize()).decode()
    task = Task(file.path, file.name, 0, 0, 0, 0, file.version, file.text_format, json_schema, file.sha256)
    first_row = 0
    for group, rows in enumerate(file.row_groups):
        for skip in range(0, rows, slice_rows):
            size = min(slice_rows, rows - skip)
            yield dataclasses.replace(task, row_group=group, skip_rows=skip, first_row=first_row + skip, rows=size)
        first_row += rows


def read_rows(task: Task, columns: Sequence[str] | None = None) -> pa.RecordBatch:
    """Reads the rows of a task, and no more of its row group than it takes to get there.

    A file that cannot be read any more, or is not the one that was inspected, is an error that names it.
    """
    check_content(task.path, task.sha256)
    pieces, position, stop = [], 0, task.skip_rows + task.rows
    schema = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(task.json_schema))) if task.json_schema else None
    open_stream = functools.partial(open_file, task.path)
    with _naming(task.path):
        for batch in read_stream(open_stream, task.path, task.row_group, columns, task.text_format, schema):
            low, high = max(task.skip_rows - position, 0), min(stop - position, len(batch))
            if low < high:
                pieces.append(plain_batch(batch.slice(low, high - low)))
            position += len(batch)
            if position >= stop:
                break
        is_changed = position < stop or (task.version and task.version != _version(task.path))
    if is_changed:
        raise DataError(f"{task.path} was changed while the job ran: run it again when the input is complete")
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
    fields = json.loads(batch.schema.metadata[_TASK_KEY])
    return Task(**{**fields, "text_format": TextFormat(**fields["text_format"])})


def has_task(batch: pa.RecordBatch) -> bool:
    """Whether a batch comes from ReadSentences."""
    return _TASK_KEY in (batch.schema.metadata or {})


def without_task(metadata: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Metadata fit to be stored: a file does not say where its input lay."""
    return {key: value for key, value in metadata.items() if key != _TASK_KEY}
