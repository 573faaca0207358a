"""JSON files: an object on each line, or one array of objects.

Arrow infers the types of a stream from its first block, and converts texts that look like times. So a file is
inspected to its end first, and every slice of it is then read with the types that were found.
"""

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.json

from sbert_core.data.text_stream import BadFileError, OpenStream, TextFormat, utf8_stream

CHUNK_BYTES = 1 << 22
_LINE_BEGINS_WITH_SPACE = re.compile(rb"\n\s")


class _Chunk(NamedTuple):
    content: bytes  # complete lines
    first_line: int


def inspect_json(
    open_stream: OpenStream, text_format: TextFormat, chunk_bytes: int = CHUNK_BYTES
) -> tuple[pa.Schema, int]:
    """The columns of a file, with types that fit all its values, and the number of its rows."""
    schema, rows = pa.schema([]), 0
    for chunk in _read_chunks(open_stream, text_format, chunk_bytes):
        found = _parse(chunk, None).schema
        found = pa.schema([field.with_type(_without_times(field.type)) for field in found])
        try:
            schema = pa.unify_schemas([schema, found], promote_options="permissive")
        except pa.ArrowException as error:
            raise BadFileError(_conflict(schema, found, chunk)) from error
        rows += _count_rows(chunk)
    return schema, rows


def read_json(
    open_stream: OpenStream, text_format: TextFormat, schema: pa.Schema, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[pa.RecordBatch]:
    """The rows of a file, in batches of the schema that `inspect_json` found."""
    for chunk in _read_chunks(open_stream, text_format, chunk_bytes):
        yield from _parse(chunk, schema).combine_chunks().to_batches()


def _read_chunks(open_stream: OpenStream, text_format: TextFormat, chunk_bytes: int) -> Iterator[_Chunk]:
    line = 1
    with open_stream() as file, utf8_stream(file, text_format) as stream:
        rest, is_start = b"", True
        while block := stream.read(chunk_bytes):
            rest += block
            if is_start and rest.lstrip().startswith(b"["):
                yield _lines_of_array(rest + stream.read())
                return
            is_start = is_start and not rest.strip()
            content, newline, rest = rest.rpartition(b"\n")
            content += newline
            if content.strip():
                yield _Chunk(content, line)
            line += content.count(b"\n")
        if rest.strip():
            yield _Chunk(rest, line)


def _lines_of_array(content: bytes) -> _Chunk:
    try:
        rows = json.loads(content)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise BadFileError(f"line {line} is not valid UTF-8: see --encoding") from error
    except ValueError as error:
        raise BadFileError(f"it begins as an array, but is not valid JSON: {error}") from error
    invalid = next((number for number, row in enumerate(rows) if not isinstance(row, dict)), None)
    if invalid is not None:
        raise BadFileError(f"element {invalid} of the array is not an object: expected one with a value per column")
    return _Chunk("".join(json.dumps(row) + "\n" for row in rows).encode(), 1)


def _count_rows(chunk: _Chunk) -> int:
    """The lines that are not blank. Where no line begins with a space they need not be looked at one by one."""
    content = chunk.content.removesuffix(b"\n")
    if content and not content[:1].isspace() and not _LINE_BEGINS_WITH_SPACE.search(content):
        return content.count(b"\n") + (not content.endswith(b"\n"))
    return sum(not (line.isspace() or not line) for line in chunk.content.split(b"\n"))


def _parse(chunk: _Chunk, schema: pa.Schema | None) -> pa.Table:
    try:
        chunk.content.decode()
    except UnicodeDecodeError as error:
        line = chunk.first_line + chunk.content[: error.start].count(b"\n")
        raise BadFileError(f"line {line} is not valid UTF-8: see --encoding") from error
    rows = _count_rows(chunk)
    if not rows:  # an array without elements
        return (schema or pa.schema([])).empty_table()
    read = pa.json.ReadOptions(use_threads=False, block_size=len(chunk.content) + 1)
    behavior = "infer" if schema is None else "error"
    parse = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=behavior)
    try:
        table = pa.json.read_json(pa.BufferReader(chunk.content), read, parse)
    except pa.ArrowException as error:
        raise BadFileError(_place(str(error).splitlines()[0], chunk)) from error
    if table.num_columns and len(table) != rows:
        raise BadFileError("expected one object on each line")
    return table


def _place(message: str, chunk: _Chunk) -> str:
    """A message of Arrow with the line in the file instead of the row in the chunk."""
    found = re.search(r",? in row (\d+)", message)
    message = re.sub(r"^JSON parse error: |,? in row \d+", "", message)
    if not found:
        return message
    lines = [number for number, line in enumerate(chunk.content.split(b"\n")) if line.strip()]
    row = min(int(found.group(1)), len(lines) - 1)
    return f"line {chunk.first_line + lines[row]}: {message}"


def _conflict(schema: pa.Schema, found: pa.Schema, chunk: _Chunk) -> str:
    for field in found:
        if field.name in schema.names:
            previous = schema.field(field.name)
            try:
                pa.unify_schemas([pa.schema([previous]), pa.schema([field])], promote_options="permissive")
            except pa.ArrowException:
                return (
                    f"column {field.name!r} is {previous.type} before line {chunk.first_line} and {field.type} "
                    "somewhere after it: expected one type"
                )
    return f"its columns change after line {chunk.first_line}"


def _without_times(kind: pa.DataType) -> pa.DataType:
    """The type with text in place of times that Arrow has inferred: it would write them in another form."""
    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_times(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_without_times(kind.value_type)))
    return kind
