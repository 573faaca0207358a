"""Input files, and the slices of them that workers read one at a time."""

import base64
import dataclasses
import functools
import json
from collections.abc import Iterator, Sequence

import pyarrow as pa
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from sbert_core.data.columns import check_columns, check_has_columns, plain_batch, plain_schema
from sbert_core.data.formats import (
    BATCH_ROWS,
    UNREADABLE,
    first_line,
    inspect_stream,
    naming_file,
    read_stream,
    suffix_of,
)
from sbert_core.data.manifest import SkippedFile
from sbert_core.data.schema import ID
from sbert_core.data.text_stream import DEFAULT_FORMAT, TextFormat
from sbert_core.errors import DataError
from transforms.dataset.files import open_file
from transforms.dataset.listing import list_inputs
from transforms.dataset.published import BEAM_DATASETS

SLICE_ROWS = BATCH_ROWS

_SLICE_KEY = b"sbert_beam.slice"


@dataclasses.dataclass(frozen=True)
class InputSlice:
    """Consecutive rows of one input file: what a worker reads at once, and what becomes one part."""

    path: str
    name: str
    row_group: int
    skip_rows: int  # in the row group, before the slice
    first_row: int  # in the file
    rows: int
    version: str = ""  # of the file when it was inspected
    text_format: TextFormat = DEFAULT_FORMAT
    json_schema: str = ""  # of a JSON file: its columns
    sha256: str = ""  # of the file, if a manifest records it; checked before the first read


@dataclasses.dataclass(frozen=True)
class InputFile:
    """An input file as it was when it was inspected."""

    path: str
    name: str
    schema: pa.Schema
    row_groups: tuple[int, ...]  # rows of each
    version: str = ""  # changes when the file is written again
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

    @property
    def is_json(self) -> bool:
        """Whether reading it needs the schema that inspection found."""
        return suffix_of(self.path) in (".json", ".jsonl")

    def for_workers(self) -> "InputFile":
        """The file without a schema that only checks need: it is in the job graph, once per input file."""
        return self if self.is_json else dataclasses.replace(self, schema=pa.schema([]))


def inspect_files(patterns: Sequence[str], text_format: TextFormat = DEFAULT_FORMAT) -> list[InputFile]:
    """Lists the input and inspects every file; one that cannot be read is an error that names it."""
    return [inspect_file(path, name, text_format) for path, name in list_inputs(patterns)]


def inspect_file(path: str, name: str, text_format: TextFormat = DEFAULT_FORMAT) -> InputFile:
    """Inspects a file; one that cannot be read is an error that names it."""
    with naming_file(path, BeamIOError):
        return _inspect(path, name, text_format)


def inspect_readable_files(
    patterns: Sequence[str], text_format: TextFormat = DEFAULT_FORMAT
) -> tuple[list[InputFile], list[SkippedFile]]:
    """The same, but files that cannot be read are returned apart, each with the reason.

    Every file is read to its end: damage to a Parquet file may show nowhere else. It is an error if no file is left.
    """
    files: list[InputFile] = []
    skipped: list[SkippedFile] = []
    for path, name in list_inputs(patterns):
        try:
            files.append(_inspect(path, name, text_format, to_end=True))
        except (*UNREADABLE, BeamIOError) as error:
            skipped.append(SkippedFile(name=name, reason=first_line(error)))
    if not files:
        raise DataError(
            f"none of the {len(skipped)} input files can be read; the first is {skipped[0].name}: {skipped[0].reason}"
        )
    return files, skipped


def _inspect(path: str, name: str, text_format: TextFormat, *, to_end: bool = False) -> InputFile:
    open_stream = functools.partial(open_file, path)
    with open_stream():  # its error for a path that is not a file is the clearest
        version = _version(path)
    schema, row_groups = inspect_stream(open_stream, path, text_format, to_end=to_end)
    return InputFile(path, name, plain_schema(schema), row_groups, version, text_format)


def _version(path: str) -> str:
    """Changes when a file is written again."""
    metadata = FileSystems.get_filesystem(path).metadata(path)
    return f"{metadata.size_in_bytes}@{metadata.last_updated_in_seconds}"


def check_files(
    files: Sequence[InputFile], text_column: str, id_column: str | None, added_columns: Sequence[str]
) -> None:
    """Checks the columns of all files before any work begins.

    A file is refused if it lacks the text or id column, already has one of the columns that the job adds, has a column
    of a type that the job cannot use, or has other columns than the first file. Blank files have no columns to check.
    """
    filled = [file for file in files if not file.is_blank]
    for file in filled:
        for flag, column in (("text_column", text_column), ("id_column", id_column)):
            if column is not None and column not in file.schema.names:
                check_has_columns(file.path, file.schema.names, [column], f". See --{flag}")
        check_columns(file.path, file.schema, text_column, id_column or ID)
        taken = [name for name in added_columns if name in file.schema.names]
        if taken:
            raise DataError(
                f"{file.path} already has a column {taken[0]!r}: choose another name with --{taken[0]}_column"
            )
        if not file.schema.equals(filled[0].schema):
            difference = _difference(file.schema, filled[0].schema)
            raise DataError(f"{file.path} and {filled[0].path} differ in their columns: {difference}")


def _difference(schema: pa.Schema, other: pa.Schema) -> str:
    fields, others = ({field.name: str(field.type) for field in each} for each in (schema, other))
    names = [name for name in (*fields, *others) if fields.get(name) != others.get(name)]
    if not names:
        return "their order or nullability"
    return f"{names[0]!r} is {fields.get(names[0], 'missing')} and {others.get(names[0], 'missing')}"


def split_file(file: InputFile, slice_rows: int = SLICE_ROWS) -> Iterator[InputSlice]:
    """Cuts a file into slices of at most `slice_rows` rows, none across two row groups."""
    json_schema = base64.b64encode(file.schema.serialize()).decode() if file.is_json else ""
    first_row = 0
    for group, rows in enumerate(file.row_groups):
        for skip in range(0, rows, slice_rows):
            yield InputSlice(
                path=file.path,
                name=file.name,
                row_group=group,
                skip_rows=skip,
                first_row=first_row + skip,
                rows=min(slice_rows, rows - skip),
                version=file.version,
                text_format=file.text_format,
                json_schema=json_schema,
                sha256=file.sha256,
            )
        first_row += rows


def read_rows(input_slice: InputSlice, columns: Sequence[str] | None = None) -> pa.RecordBatch:
    """Reads the rows of a slice, and no more of its row group than needed.

    A file that cannot be read any more, or has changed since it was inspected, is an error that names it.
    """
    path = input_slice.path
    BEAM_DATASETS.check_content(path, input_slice.sha256)
    schema = None
    if input_slice.json_schema:
        schema = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(input_slice.json_schema)))
    open_stream = functools.partial(open_file, path)
    pieces, position, stop = [], 0, input_slice.skip_rows + input_slice.rows
    with naming_file(path, BeamIOError):
        for batch in read_stream(open_stream, path, input_slice.row_group, columns, input_slice.text_format, schema):
            low, high = max(input_slice.skip_rows - position, 0), min(stop - position, len(batch))
            if low < high:
                pieces.append(plain_batch(batch.slice(low, high - low)))
            position += len(batch)
            if position >= stop:
                break
        is_changed = position < stop or (input_slice.version and input_slice.version != _version(path))
    if is_changed:
        raise DataError(f"{path} was changed while the job ran: run it again when the input is complete")
    return pa.concat_batches(pieces)


def read_slice(input_slice: InputSlice, id_column: str | None = None) -> pa.RecordBatch:
    """Reads the rows of a slice; the slice is in the metadata of the batch.

    Rows without ids get some, from the name of the file and the position in it: `name#row`.
    """
    batch = read_rows(input_slice)
    if id_column is None and ID not in batch.schema.names:
        rows = range(input_slice.first_row, input_slice.first_row + input_slice.rows)
        batch = batch.add_column(0, ID, pa.array([f"{input_slice.name}#{row}" for row in rows]))
    return batch.replace_schema_metadata({_SLICE_KEY: json.dumps(dataclasses.asdict(input_slice)).encode()})


def slice_of(batch: pa.RecordBatch) -> InputSlice:
    """The slice that a batch was read from, as the metadata of its schema has it."""
    if not has_slice(batch):
        raise DataError("this batch does not come from ReadSentences: only its batches have a place in the output")
    fields = json.loads(batch.schema.metadata[_SLICE_KEY])
    return InputSlice(**{**fields, "text_format": TextFormat(**fields["text_format"])})


def has_slice(batch: pa.RecordBatch) -> bool:
    """Whether a batch comes from ReadSentences."""
    return _SLICE_KEY in (batch.schema.metadata or {})


def without_slice(metadata: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Metadata to be stored: the bytes of a part do not depend on where its input was."""
    return {key: value for key, value in metadata.items() if key != _SLICE_KEY}
