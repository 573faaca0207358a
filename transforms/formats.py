"""The file formats a corpus may come in: Parquet, JSON lines, CSV, and plain text with a sentence per line.

A file is read as a stream of batches, so that its size does not matter.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import BinaryIO

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from sbert_core.errors import DataError
from sbert_core.schema import TEXT

SUFFIXES = (".parquet", ".jsonl", ".csv", ".txt")
COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
BATCH_ROWS = 8192


def suffix_of(path: str) -> str:
    """The suffix that decides how a file is read, the one of a compression left out."""
    for compression in COMPRESSIONS:
        path = path.removesuffix(compression)
    return next((suffix for suffix in SUFFIXES if path.endswith(suffix)), "")


def inspect_stream(file: BinaryIO, path: str) -> tuple[pa.Schema, tuple[int, ...]]:
    """The columns of a file, and the rows of each of its row groups (a text file is a single one)."""
    if suffix_of(path) == ".parquet":
        footer = pq.ParquetFile(file)
        groups = (footer.metadata.row_group(group).num_rows for group in range(footer.num_row_groups))
        return footer.schema_arrow, tuple(groups)
    schema, rows = pa.schema([(TEXT, pa.string())]), 0
    for batch in read_stream(file, path):
        schema, rows = batch.schema, rows + len(batch)
    return schema, (rows,) if rows else ()


def _read_csv(file: BinaryIO) -> Iterator[pa.RecordBatch]:
    """Every column as text: guessing types would turn the id 007 into 7."""
    buffered = io.BufferedReader(file)  # type: ignore[type-var]
    names = next(csv.reader([buffered.readline().decode("utf-8-sig")]), [])
    if not names:
        raise pa.ArrowInvalid("it is empty: expected a line with the names of the columns")
    convert = pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    yield from pa.csv.open_csv(buffered, pa.csv.ReadOptions(column_names=names), convert_options=convert)


def read_stream(
    file: BinaryIO, path: str, row_group: int = 0, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The batches of a row group of a file; of Parquet only some `columns`, if they are named."""
    match suffix_of(path):
        case ".parquet":
            yield from pq.ParquetFile(file).iter_batches(BATCH_ROWS, row_groups=[row_group], columns=columns)
        case ".jsonl":
            yield from pa.json.open_json(file)
        case ".csv":
            yield from _read_csv(file)
        case ".txt":
            lines = (line.rstrip("\r\n") for line in io.TextIOWrapper(file, "utf-8", errors="replace", newline="\n"))
            while chunk := list(islice(lines, BATCH_ROWS)):
                yield pa.record_batch({TEXT: pa.array(chunk, pa.string())})
        case _:
            raise DataError(f"{path} has no suffix this job knows: it reads {', '.join(SUFFIXES)}")
