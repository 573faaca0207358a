"""The file formats of tables: Parquet, JSON, CSV, TSV, and plain text with a sentence per line.

Every job, the trainer and the evaluator read files through this module, so that a file that one of them reads can be
read by all, with the same errors. A file is opened by a function that the caller passes, and read as a stream of
batches, so that its size does not matter. (A JSON array is the exception: it is read as a whole.)
"""

import contextlib
import zlib
from collections.abc import Generator, Iterator, Sequence
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sbert_core.data.csv_format import read_csv
from sbert_core.data.json_format import inspect_json, read_json
from sbert_core.data.schema import TEXT
from sbert_core.data.text_stream import DEFAULT_FORMAT, BadFileError, OpenStream, TextFormat, utf8_stream
from sbert_core.errors import DataError

SUFFIXES = (".parquet", ".jsonl", ".json", ".csv", ".tsv", ".txt")
COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
BATCH_ROWS = 8192
_BLOCK_BYTES = 1 << 20
_MAX_ARRAY_BYTES = (1 << 31) - 1  # the offsets of an array are of 32 bits
UNREADABLE = (pa.ArrowException, OSError, EOFError, UnicodeError, zlib.error, BadFileError)
"""What reading a file raises if the file is damaged, missing, or not of the format that its name claims."""


def compression_of(path: str) -> str | None:
    """The compression that the suffix of a file stands for, if any."""
    return next((codec for suffix, codec in COMPRESSIONS.items() if path.lower().endswith(suffix)), None)


def decompress(file: BinaryIO, path: str) -> BinaryIO:
    """The content of an open file, decompressed if the suffix of its path stands for a compression."""
    codec = compression_of(path)
    return pa.CompressedInputStream(file, codec) if codec else file


def suffix_of(path: str) -> str:
    """The suffix that decides the format of a file, in lower case and without that of a compression; "" if unknown."""
    path = path.rstrip("/").lower()
    for compression in COMPRESSIONS:
        path = path.removesuffix(compression)
    return next((suffix for suffix in SUFFIXES if path.endswith(suffix)), "")


def is_hidden(path: str) -> bool:
    """Whether a file or folder is bookkeeping rather than data: its name begins with a dot or an underscore."""
    return path.rstrip("/").rsplit("/", 1)[-1].startswith((".", "_"))


def without_descriptions(paths: list[str]) -> list[str]:
    """The data files of a folder: `.json` files beside other formats only describe them and are left out."""
    return [path for path in paths if suffix_of(path) != ".json"] or paths


def first_line(error: BaseException) -> str:
    """The message of an error in one line."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


@contextlib.contextmanager
def naming_file(path: str, *more_errors: type[Exception]) -> Iterator[None]:
    """Turns errors of an unreadable file into a DataError that names the file."""
    try:
        yield
    except (*UNREADABLE, *more_errors) as error:
        raise DataError(f"{path} cannot be read: {first_line(error)}") from error


def inspect_stream(
    open_stream: OpenStream, path: str, text_format: TextFormat = DEFAULT_FORMAT, *, to_end: bool = False
) -> tuple[pa.Schema, tuple[int, ...]]:
    """The columns of a file, and the rows of each of its row groups (a text file is one group).

    A text file is read to its end. Of a Parquet file only the footer is read, unless it is to be read `to_end`. A CSV
    or JSON file without content has no columns and no rows.
    """
    suffix = suffix_of(path)
    if suffix == ".parquet":
        with open_stream() as file:
            parquet = _open_parquet(file)
            if to_end:
                for _ in parquet.iter_batches(BATCH_ROWS):
                    pass
            groups = (parquet.metadata.row_group(group).num_rows for group in range(parquet.num_row_groups))
            return parquet.schema_arrow, tuple(groups)
    if suffix in (".jsonl", ".json"):
        schema, rows = inspect_json(open_stream, text_format)
        return schema, (rows,) if rows else ()
    if suffix == ".txt":
        rows = _count_lines(open_stream, text_format)
        return pa.schema([(TEXT, pa.string())]), (rows,) if rows else ()
    schema, rows = pa.schema([]), 0
    for batch in read_stream(open_stream, path, text_format=text_format):
        schema, rows = batch.schema, rows + len(batch)
    return schema, (rows,) if rows else ()


def read_schema(open_stream: OpenStream, path: str, text_format: TextFormat = DEFAULT_FORMAT) -> pa.Schema:
    """The columns of a file, from no more of it than needed; a CSV or JSON file without content has none."""
    if suffix_of(path) in (".csv", ".tsv"):
        first = next(read_stream(open_stream, path, text_format=text_format), None)
        return pa.schema([]) if first is None else first.schema
    return inspect_stream(open_stream, path, text_format)[0]


def _open_parquet(file: BinaryIO) -> pq.ParquetFile:
    # Without the check, damage to a page of plain values gives other values. Pages without a checksum cost nothing.
    return pq.ParquetFile(file, page_checksum_verification=True)


def read_stream(
    open_stream: OpenStream,
    path: str,
    row_groups: Sequence[int] | None = None,
    columns: Sequence[str] | None = None,
    text_format: TextFormat = DEFAULT_FORMAT,
    schema: pa.Schema | None = None,
) -> Generator[pa.RecordBatch, None, None]:
    """The batches of a file, or of some row groups of a Parquet file; no batch has rows of two of these.

    Of Parquet only the named `columns` are read; other formats give all of theirs. JSON is read with the `schema` that
    `inspect_stream` found; without one it is inspected first.
    """
    match suffix_of(path):
        case ".parquet":
            with open_stream() as file:
                parquet = _open_parquet(file)
                for groups in [None] if row_groups is None else [[group] for group in row_groups]:
                    yield from parquet.iter_batches(BATCH_ROWS, row_groups=groups, columns=columns)
        case ".jsonl" | ".json":
            if schema is None:
                schema = inspect_json(open_stream, text_format)[0]
            yield from read_json(open_stream, text_format, schema)
        case ".csv" | ".tsv" as suffix:
            yield from read_csv(open_stream, text_format, tabs=suffix == ".tsv")
        case ".txt":
            yield from _read_lines(open_stream, text_format)
        case _:
            raise DataError(f"{path} has no suffix of a known format: expected {', '.join(SUFFIXES)}")


def _count_lines(open_stream: OpenStream, text_format: TextFormat) -> int:
    """How many rows `_read_lines` gives."""
    rows, last = 0, b"\n"
    with open_stream() as file, utf8_stream(file, text_format) as stream:
        while block := stream.read(_BLOCK_BYTES):
            rows, last = rows + block.count(b"\n"), block[-1:]
    return rows + (last != b"\n")


def _read_lines(open_stream: OpenStream, text_format: TextFormat) -> Iterator[pa.RecordBatch]:
    with open_stream() as file, utf8_stream(file, text_format) as stream:
        while lines := stream.readlines(_BLOCK_BYTES):
            yield pa.record_batch({TEXT: _text_of_lines(lines)})


def _text_of_lines(lines: list[bytes]) -> pa.Array:
    """Lines without their ends; bytes that are not valid UTF-8 become replacement characters."""
    content = b"".join(lines)
    content += b"\n" * (not content.endswith(b"\n"))
    if b"\r" in content or len(content) > _MAX_ARRAY_BYTES or not _is_utf8(content):
        return pa.array([line.decode(errors="replace").rstrip("\r\n") for line in lines], pa.string())
    ends = np.flatnonzero(np.frombuffer(content, np.uint8) == ord("\n")) - np.arange(len(lines))
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content.replace(b"\n", b""))]
    return pa.Array.from_buffers(pa.string(), len(lines), buffers)


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
