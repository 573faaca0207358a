"""The file formats a corpus may come in: Parquet, JSON, CSV, TSV, and plain text with a sentence per line.

A file is read as a stream of batches, so that its size does not matter (but for a JSON array, which is read whole).
"""

import io
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from sbert_core.data.csv_format import OpenStream, read_csv
from sbert_core.data.json_format import inspect_json, read_json
from sbert_core.data.schema import TEXT
from sbert_core.data.text_stream import DEFAULT_FORMAT, TextFormat, utf8_stream
from sbert_core.errors import DataError

SUFFIXES = (".parquet", ".jsonl", ".json", ".csv", ".tsv", ".txt")
COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
BATCH_ROWS = 8192

_JSON = (".jsonl", ".json")


def compression_of(path: str) -> str | None:
    """The name of the compression that a file's suffix tells of."""
    return next((codec for suffix, codec in COMPRESSIONS.items() if path.lower().endswith(suffix)), None)


def suffix_of(path: str) -> str:
    """The suffix that decides how a file is read, in small letters, the one of a compression left out."""
    path = path.rstrip("/").lower()
    for compression in COMPRESSIONS:
        path = path.removesuffix(compression)
    return next((suffix for suffix in SUFFIXES if path.endswith(suffix)), "")


def inspect_stream(
    open_stream: OpenStream, path: str, text_format: TextFormat = DEFAULT_FORMAT, *, whole: bool = False
) -> tuple[pa.Schema, tuple[int, ...]]:
    """The columns of a file, and the rows of each of its row groups (a text file is a single one).

    A text file is read to its end. Of a Parquet file only the footer is, unless it is to be read `whole`. A CSV or
    JSON file without a byte of content has no columns and no rows.
    """
    suffix = suffix_of(path)
    if suffix == ".parquet":
        with open_stream() as file:
            footer = _open_parquet(file)
            if whole:
                for _ in footer.iter_batches(BATCH_ROWS):
                    pass
            groups = (footer.metadata.row_group(group).num_rows for group in range(footer.num_row_groups))
            return footer.schema_arrow, tuple(groups)
    if suffix in _JSON:
        schema, rows = inspect_json(open_stream, text_format)
        return schema, (rows,) if rows else ()
    schema, rows = pa.schema([(TEXT, pa.string())] if suffix == ".txt" else []), 0
    for batch in read_stream(open_stream, path, text_format=text_format):
        schema, rows = batch.schema, rows + len(batch)
    return schema, (rows,) if rows else ()


def _open_parquet(file: BinaryIO) -> pq.ParquetFile:
    # Without the check, damage to a page of plain values gives other values. Pages without a checksum cost nothing.
    return pq.ParquetFile(file, page_checksum_verification=True)


def read_stream(
    open_stream: OpenStream,
    path: str,
    row_group: int = 0,
    columns: Sequence[str] | None = None,
    text_format: TextFormat = DEFAULT_FORMAT,
    schema: pa.Schema | None = None,
) -> Iterator[pa.RecordBatch]:
    """The batches of a row group of a file; of Parquet only some `columns`, if they are named.

    JSON needs the `schema` that `inspect_stream` found.
    """
    match suffix_of(path):
        case ".parquet":
            with open_stream() as file:
                yield from _open_parquet(file).iter_batches(BATCH_ROWS, row_groups=[row_group], columns=columns)
        case ".jsonl" | ".json":
            known = inspect_json(open_stream, text_format)[0] if schema is None else schema
            yield from read_json(open_stream, text_format, known)
        case ".csv" | ".tsv" as suffix:
            yield from read_csv(open_stream, text_format, tabs=suffix == ".tsv")
        case ".txt":
            yield from _read_lines(open_stream, text_format)
        case _:
            raise DataError(f"{path} has no suffix this job knows: it reads {', '.join(SUFFIXES)}")


def _read_lines(open_stream: OpenStream, text_format: TextFormat) -> Iterator[pa.RecordBatch]:
    with open_stream() as file, utf8_stream(file, text_format) as stream:
        lines = (line.rstrip("\r\n") for line in io.TextIOWrapper(stream, "utf-8", errors="replace", newline="\n"))
        while chunk := list(islice(lines, BATCH_ROWS)):
            yield pa.record_batch({TEXT: pa.array(chunk, pa.string())})
