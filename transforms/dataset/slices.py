"""Input files, and the slices of them that workers read one at a time."""

import base64
import concurrent.futures
import contextlib
import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
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
_INSPECTORS = 16  # threads: in an object store each footer takes round trips
_TEXT_INSPECTORS = 4  # text is parsed to its end, which takes a core each, and memory for a JSON array

_Result = TypeVar("_Result")


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
    """Lists the input and inspects every file; one that cannot be read is an error that names it.

    Of several such files it is the first in the order of the listing.
    """
    return inspect_listed(list_inputs(patterns), text_format)


def inspect_listed(
    listed: Sequence[tuple[str, str]], text_format: TextFormat = DEFAULT_FORMAT, *, to_end: bool = False
) -> list[InputFile]:
    """Inspects files, (path, name) each, in threads; the result has their order."""

    def inspect(path: str, name: str) -> InputFile:
        with naming_file(path, BeamIOError):
            return _inspect(path, name, text_format, to_end=to_end)

    return _map_in_threads(inspect, listed)


def inspect_readable_files(
    patterns: Sequence[str], text_format: TextFormat = DEFAULT_FORMAT
) -> tuple[list[InputFile], list[SkippedFile]]:
    """The same, but files that cannot be read are returned apart, each with the reason.

    Every file is read to its end: damage to a Parquet file may show nowhere else. It is an error if no file is left.
    """

    def inspect(path: str, name: str) -> InputFile | SkippedFile:
        try:
            return _inspect(path, name, text_format, to_end=True)
        except (*UNREADABLE, BeamIOError) as error:
            return SkippedFile(name=name, reason=first_line(error))

    found = _map_in_threads(inspect, list_inputs(patterns))
    files = [each for each in found if isinstance(each, InputFile)]
    skipped = [each for each in found if isinstance(each, SkippedFile)]
    if not files:
        raise DataError(
            f"none of the {len(skipped)} input files can be read; the first is {skipped[0].name}: {skipped[0].reason}"
        )
    return files, skipped


def _map_in_threads(inspect: Callable[[str, str], _Result], listed: Sequence[tuple[str, str]]) -> list[_Result]:
    """What `inspect` returns for each path and name, in their order, or the first error in that order."""
    is_text = any(suffix_of(path) != ".parquet" for path, _ in listed)
    pool = concurrent.futures.ThreadPoolExecutor(_TEXT_INSPECTORS if is_text else _INSPECTORS)
    try:
        return list(pool.map(inspect, *zip(*listed, strict=True))) if listed else []
    finally:
        pool.shutdown(cancel_futures=True)  # after an error the files that were not begun are not needed


def _inspect(path: str, name: str, text_format: TextFormat, *, to_end: bool = False) -> InputFile:
    """Inspects a file with three requests: open it, ask for its version, and read the footer or the text."""
    with contextlib.ExitStack() as unused:
        opened = [unused.enter_context(open_file(path))]  # its error for a path that is not a file is the clearest
        version = _version(path)
        schema, row_groups = inspect_stream(
            lambda: opened.pop() if opened else open_file(path), path, text_format, to_end=to_end
        )
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


def split_file(
    file: InputFile, slice_rows: int = SLICE_ROWS, first_group: int = 0, first_row: int = 0
) -> Iterator[InputSlice]:
    """Cuts a file into slices of at most `slice_rows` rows, none across two row groups.

    If `file` has only some row groups of a file, `first_group` and `first_row` are where they begin in it.
    """
    json_schema = base64.b64encode(file.schema.serialize()).decode() if file.is_json else ""
    for group, rows in enumerate(file.row_groups, first_group):
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
    (batch,) = read_slices([input_slice], columns)
    return batch


def read_slices(slices: Sequence[InputSlice], columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of consecutive slices of one file, a batch for each, in one pass that stops after the last of them.

    The pass begins at the start of the first slice's row group, because no format can be entered in the middle of one.
    Errors are those of `read_rows`; batches before an error are valid.
    """
    first = slices[0]
    path = first.path
    BEAM_DATASETS.check_content(path, first.sha256)
    schema = None
    if first.json_schema:
        schema = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(first.json_schema)))
    row_groups = list(dict.fromkeys(each.row_group for each in slices))
    stream = read_stream(functools.partial(open_file, path), path, row_groups, columns, first.text_format, schema)
    position, done = first.first_row - first.skip_rows, 0
    pieces: list[pa.RecordBatch] = []
    with naming_file(path, BeamIOError), contextlib.closing(stream):
        for batch in stream:
            stop = position + len(batch)
            while done < len(slices) and slices[done].first_row < stop:
                each = slices[done]
                low, high = max(each.first_row, position), min(each.first_row + each.rows, stop)
                pieces.append(plain_batch(batch.slice(low - position, high - low)))
                if each.first_row + each.rows > stop:
                    break
                _check_version(each)
                yield pa.concat_batches(pieces)
                pieces, done = [], done + 1
            position = stop
            if done == len(slices):
                return
    raise _changed(path)


def _check_version(input_slice: InputSlice) -> None:
    if input_slice.version and input_slice.version != _version(input_slice.path):
        raise _changed(input_slice.path)


def _changed(path: str) -> DataError:
    return DataError(f"{path} was changed while the job ran: run it again when the input is complete")


def read_slice(input_slice: InputSlice, id_column: str | None = None) -> pa.RecordBatch:
    """Reads the rows of a slice; the slice is in the metadata of the batch.

    Rows without ids get some, from the name of the file and the position in it: `name#row`.
    """
    return with_slice(read_rows(input_slice), input_slice, id_column)


def with_slice(batch: pa.RecordBatch, input_slice: InputSlice, id_column: str | None = None) -> pa.RecordBatch:
    """The rows that were read from a slice, as `read_slice` gives them."""
    if id_column is None and ID not in batch.schema.names:
        rows = pa.array(range(input_slice.first_row, input_slice.first_row + input_slice.rows)).cast(pa.string())
        batch = batch.add_column(0, ID, pc.binary_join_element_wise(input_slice.name, rows, "#"))
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
