"""CSV and TSV files: a line of column names, then rows; every cell is text.

Arrow parses them many times faster than Python's `csv`, but does not report a quote that is never closed. So a
sentinel row is added after the end of the file: if it is not parsed as a row, an open quote has swallowed it.
"""

import csv
import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.csv

from sbert_core.data.text_stream import BadFileError, OpenStream, TextFormat, utf8_stream

BLOCK_BYTES = 1 << 20

_MAX_BLOCK_BYTES = 1 << 29
_BLOCK_GROWTH_FACTOR = 8
_MAX_COLUMNS = 2000
# Arrow reports a row, or a line of names, that is longer than a block only by these messages.
_LONG_ROW_MESSAGES = ("straddling object", "Empty CSV file or block")
_SENTINEL = "end-of-file-3f0c6a5e9b"
_ALL_COLUMNS_TEXT = {f"f{number}": pa.string() for number in range(_MAX_COLUMNS)}

_ONE_AT_A_TIME = threading.Lock()


def read_csv(
    open_stream: OpenStream, text_format: TextFormat, *, tabs: bool = False, block_bytes: int = BLOCK_BYTES
) -> Iterator[pa.RecordBatch]:
    """The rows of a file in batches; no batch if the file is empty, one batch without rows if it has only names.

    Every column is text: guessing types would turn the id 007 into 7. An empty cell is an empty string, never null.
    Quoted cells may contain delimiters, line breaks and doubled quotes. Files with tabs have no quoting: a quotation
    mark is an ordinary character there. Blank lines are skipped; a row with more or fewer cells than there are names
    is an error. If a row is longer than a block, the file is read again with larger blocks.
    """
    rows_given = 0
    while True:
        try:
            position = 0
            for batch in _CsvPass(open_stream, text_format, tabs, block_bytes).batches():
                new_rows = batch.slice(max(rows_given - position, 0))
                position += len(batch)
                if len(new_rows) or not rows_given:
                    yield new_rows
                rows_given = max(rows_given, position)
            return
        except pa.ArrowInvalid as error:
            if not any(message in str(error) for message in _LONG_ROW_MESSAGES):
                raise BadFileError(_diagnose(open_stream, text_format, tabs) or str(error)) from error
            if block_bytes >= _MAX_BLOCK_BYTES:
                raise BadFileError(f"a row is longer than {block_bytes >> 20} MB: is a quote not closed?") from error
            block_bytes *= _BLOCK_GROWTH_FACTOR


def _delimiter(text_format: TextFormat, tabs: bool) -> str:
    return "\t" if tabs else text_format.csv_delimiter


class _CsvPass:
    """One pass over a file with blocks of one size."""

    def __init__(self, open_stream: OpenStream, text_format: TextFormat, tabs: bool, block_bytes: int) -> None:
        self._open_stream = open_stream
        self._text_format = text_format
        self._tabs = tabs
        self._block_bytes = block_bytes
        self._found_sentinel = False

    def batches(self) -> Iterator[pa.RecordBatch]:
        delimiter = _delimiter(self._text_format, self._tabs)
        parse = pa.csv.ParseOptions(
            delimiter=delimiter,
            quote_char=False if self._tabs else '"',
            newlines_in_values=not self._tabs,
            invalid_row_handler=self._handle_invalid_row,
        )
        read = pa.csv.ReadOptions(block_size=self._block_bytes, autogenerate_column_names=True)
        convert = pa.csv.ConvertOptions(column_types=_ALL_COLUMNS_TEXT)
        tail = f"\n{_SENTINEL}{delimiter}{_SENTINEL}\n".encode()
        names: list[str] = []
        with (
            self._open_stream() as file,
            utf8_stream(file, self._text_format, tail) as stream,
            pa.csv.open_csv(_UnsplitLineBreaks(stream), read, parse, convert) as reader,  # reads ahead: closed first
        ):
            for batch in reader:
                rows = self._without_sentinel(batch)
                if not names and len(rows):
                    names = [column[0].as_py() for column in rows.columns]
                    if len(names) > _MAX_COLUMNS:
                        raise BadFileError(f"it has {len(names)} columns, more than {_MAX_COLUMNS}")
                    rows = rows.slice(1)
                    yield pa.RecordBatch.from_arrays(rows.columns, names)
                elif len(rows):
                    yield pa.RecordBatch.from_arrays(rows.columns, names)
        if not self._found_sentinel:
            raise BadFileError("a quoted cell is not closed at the end of the file")

    def _handle_invalid_row(self, row: pa.csv.InvalidRow) -> str:
        if row.text.startswith(_SENTINEL):
            self._found_sentinel = True
            return "skip"
        return "error"

    def _without_sentinel(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Drops the sentinel, which is a valid row in a file of two columns."""
        if len(batch) and batch.num_columns == 2 and batch.column(0)[-1].as_py() == _SENTINEL:
            self._found_sentinel = True
            return batch.slice(0, len(batch) - 1)
        return batch


class _UnsplitLineBreaks(io.RawIOBase):
    """Reads blocks that never end between the two characters of a line break.

    Arrow drops a line feed at the start of a block if the previous block ended with a carriage return, even in a cell.
    """

    def __init__(self, stream: io.BufferedReader) -> None:
        self._stream = stream
        self._held = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        block = self._held + self._stream.read(size - len(self._held))
        kept = block.rstrip(b"\r")
        if block and not kept:
            raise BadFileError(f"it has a run of {len(block)} carriage returns")
        self._held = block[len(kept) :]
        return kept


def _diagnose(open_stream: OpenStream, text_format: TextFormat, tabs: bool) -> str | None:
    """Describes the first bad row. Arrow does not report where it is, so Python's slower `csv` looks for it."""
    with open_stream() as file, utf8_stream(file, text_format) as stream, _long_cells():
        lines = io.TextIOWrapper(stream, "utf-8", errors="surrogateescape", newline="")
        delimiter = _delimiter(text_format, tabs)
        reader = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE if tabs else csv.QUOTE_MINIMAL)
        rows = (row for row in reader if row)
        names = next(rows, [])
        if not _is_utf8(names):
            return "the line of column names is not valid UTF-8: see --encoding"
        for number, row in enumerate(rows):
            place = f"row {number} (ends in line {reader.line_num})"
            if len(row) != len(names):
                hint = ". Quotes have no meaning in .tsv: name it .csv and see --csv_delimiter" if tabs else ""
                if not tabs and len(names) == 1:
                    hint = ". See --csv_delimiter"
                return f"{place} has {len(row)} cells, expected {len(names)}, one for each column{hint}"
            if not _is_utf8(row):
                return f"{place} is not valid UTF-8: see --encoding"
    return None


def _is_utf8(row: list[str]) -> bool:
    try:
        "".join(row).encode()
    except UnicodeEncodeError:
        return False
    return True


@contextmanager
def _long_cells() -> Iterator[None]:
    with _ONE_AT_A_TIME:  # the limit is that of the process, and files are inspected in threads
        limit = csv.field_size_limit(_MAX_BLOCK_BYTES)
        try:
            yield
        finally:
            csv.field_size_limit(limit)
