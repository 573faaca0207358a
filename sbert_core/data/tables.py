"""Columns of Parquet, JSONL, TSV and CSV files, each row with the place it comes from."""

import bisect
import dataclasses
import gzip
import hashlib
import itertools
import json
import posixpath
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from sbert_core.data.csv_format import read_csv
from sbert_core.data.manifest import MANIFEST, Manifest, Part, parse_manifest
from sbert_core.data.text_stream import BadFileError, TextFormat
from sbert_core.errors import DataError

_SUFFIXES = (".parquet", ".jsonl", ".json", ".tsv", ".csv")
_UNREADABLE = (OSError, EOFError, UnicodeError, zlib.error, BadFileError, pa.ArrowException)


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """Rows of one file or several, one after the other."""

    columns: pa.Table
    files: tuple[str, ...]
    starts: tuple[int, ...]  # the number of each file's first row

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    def place(self, row: int) -> str:
        """Where a row is: file, and row in it."""
        file = bisect.bisect_right(self.starts, row) - 1
        return f"{self.files[file]}, row {row - self.starts[file]} (counted from 0)"


def read_table(path: str, columns: Sequence[str]) -> Table:
    """The named columns of a file, a folder, a glob, or a dataset of an earlier job; local, or a URI that fsspec reads.

    TSV has no quotes, CSV has; both begin with a line of names, and all they hold is text. Text files may be
    compressed (.gz). Of a folder the files of a known kind are read, in the order of their names; if it has a manifest,
    its parts.
    """
    filesystem, files = find_files(path)
    parts = _parts(filesystem, path)
    tables = []
    for file in files:
        with _open(filesystem, file) as stream:
            if file in parts:
                _check_part(stream, file, parts[file])
            tables.append(_read(filesystem, stream, file, columns))
    try:
        joined = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise DataError(f"the files of {path} do not fit together: {error}") from error
    starts = itertools.accumulate((table.num_rows for table in tables[:-1]), initial=0)
    return Table(joined, tuple(files), tuple(starts))


def column_names(path: str) -> list[str]:
    """The names of the columns of the first file of `path`."""
    filesystem, files = find_files(path)
    with _open(filesystem, files[0]) as stream:
        return _names(filesystem, stream, files[0])


def read_manifest(folder: str) -> Manifest:
    """The manifest of a job's dataset; one that is not there means the job did not finish."""
    try:
        filesystem, root = fsspec.core.url_to_fs(folder)
        content = filesystem.cat(f"{root.rstrip('/')}/{MANIFEST}")
    except FileNotFoundError as error:
        raise DataError(
            f"{folder} has no {MANIFEST}: the job that writes it has not finished, or it is not the dataset"
        ) from error
    except Exception as error:  # every filesystem raises its own
        raise DataError(f"{folder}/{MANIFEST} cannot be read: {error or type(error).__name__}") from error
    return parse_manifest(content, folder)


def _parts(filesystem: Any, path: str) -> dict[str, Part]:
    """The parts of a dataset by their files; none if `path` is not a dataset."""
    root = fsspec.core.url_to_fs(path)[1].rstrip("/")
    if not filesystem.exists(f"{root}/{MANIFEST}"):
        return {}
    return {f"{root}/{part.name}": part for part in read_manifest(path).parts}


def _check_part(stream: BinaryIO, file: str, part: Part) -> None:
    """A part must have the bytes that it was written with."""
    if hashlib.file_digest(stream, "sha256").hexdigest() != part.sha256:  # type: ignore[arg-type]
        raise DataError(f"{file} has changed since it was written: run the job that wrote it again")
    stream.seek(0)


def find_files(path: str) -> tuple[Any, list[str]]:
    """The files of `path` and their filesystem: the parts of a dataset in its own order, other files by name."""
    try:
        filesystem, root = fsspec.core.url_to_fs(path)
        root = root.rstrip("/")
        parts = filesystem.exists(f"{root}/{MANIFEST}")
        if not path or parts:  # without a path it would be the current folder
            found = []
        elif filesystem.isdir(root):
            found = [file for file in filesystem.ls(root, detail=False) if _suffix(file)]
        else:
            # A name with brackets is a pattern only if there is no such file.
            found = [root] if filesystem.exists(root) else filesystem.glob(root)
        files = sorted(file for file in found if file == root or not (_hidden(file) or filesystem.isdir(file)))
    except Exception as error:  # every filesystem raises its own
        raise DataError(f"cannot look for data at {path}: {error or type(error).__name__}") from error
    if parts and path:
        files = list(_parts(filesystem, path))
    if not files:
        raise DataError(f"there is no data at {path!r}: expected a file, a folder or a glob of {', '.join(_SUFFIXES)}")
    return filesystem, files


def digest_files(path: str) -> str:
    """Stands for the content of the files of `path`, whatever they are called."""
    filesystem, files = find_files(path)
    digest = hashlib.sha256()
    for file in files:
        with filesystem.open(file, "rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def _hidden(file: str) -> bool:
    return posixpath.basename(file).startswith((".", "_"))


def _suffix(file: str) -> str:
    file = file.removesuffix(".gz")
    return next((suffix for suffix in _SUFFIXES if file.endswith(suffix)), "")


def _open(filesystem: Any, file: str) -> BinaryIO:
    try:
        stream: BinaryIO = filesystem.open(file, "rb")
    except Exception as error:  # every filesystem raises its own
        raise DataError(f"{file} cannot be opened: {error or type(error).__name__}") from error
    return gzip.GzipFile(fileobj=stream) if file.endswith(".gz") else stream  # type: ignore[return-value]


def _names(filesystem: Any, stream: BinaryIO, file: str) -> list[str]:
    try:
        match _suffix(file):
            case ".parquet":
                names: list[str] = pq.read_schema(stream).names
            case ".jsonl" | ".json":
                names = list(dict.fromkeys(name for row in _json_rows(stream, file) for name in row))
            case ".tsv" | ".csv":
                names = next(_read_separated(filesystem, file)).schema.names
            case _:
                raise DataError(f"{file} has no suffix that says what it is: expected {', '.join(_SUFFIXES)}")
    except _UNREADABLE as error:
        raise _unreadable(file, error) from error
    return names


def _read(filesystem: Any, stream: BinaryIO, file: str, columns: Sequence[str]) -> pa.Table:
    if _suffix(file) in (".jsonl", ".json"):
        return _read_json(stream, file, columns)
    names = _names(filesystem, stream, file)
    _check_columns(file, columns, names)
    try:
        if _suffix(file) == ".parquet":
            stream.seek(0)
            table = pq.read_table(stream, columns=list(columns), page_checksum_verification=True)
        else:
            batches = [batch.select(list(columns)) for batch in _read_separated(filesystem, file)]
            table = pa.Table.from_batches(batches)
    except _UNREADABLE as error:
        raise _unreadable(file, error) from error
    plain = [
        column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        for column in table.columns
    ]
    return pa.table(plain, names=table.column_names)


def _check_columns(file: str, columns: Sequence[str], names: list[str]) -> None:
    missing = [column for column in columns if column not in names]
    if missing:
        raise DataError(f"{file} has no column {missing[0]!r}: it has {', '.join(names) or 'none'}")
    twice = next((column for column in columns if names.count(column) > 1), None)
    if twice is not None:
        raise DataError(f"{file} has two columns {twice!r}: rename one of them")


def _read_separated(filesystem: Any, file: str) -> Iterator[pa.RecordBatch]:
    """CSV and TSV as the jobs read them: sentences have quotation marks of their own, so TSV has no quotes."""
    batches = read_csv(lambda: _open(filesystem, file), TextFormat(), tabs=_suffix(file) == ".tsv")
    first = next(batches, None)
    if first is None:
        raise DataError(f"{file} is empty: expected a line with the names of the columns")
    yield first
    yield from batches


def _json_rows(stream: BinaryIO, file: str) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(stream):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(f"{file}, line {number} (counted from 0) is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise DataError(
                f"{file}, line {number} (counted from 0) is {short(row)}: expected an object with a value per column"
            )
        rows.append(row)
    return rows


def _read_json(stream: BinaryIO, file: str, columns: Sequence[str]) -> pa.Table:
    try:
        rows = _json_rows(stream, file)
    except _UNREADABLE as error:
        raise _unreadable(file, error) from error
    if rows:
        _check_columns(file, columns, list(dict.fromkeys(name for row in rows for name in row)))
    return pa.table({name: _json_column([row.get(name) for row in rows], file, name) for name in columns})


def _json_column(values: list[Any], file: str, name: str) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, UnicodeError) as error:
        row = _odd_row(values)
        if row is None:
            raise DataError(f"{file}: column {name!r} cannot be read: {error}") from error
        raise DataError(
            f"{file}, row {row} (counted from 0): column {name!r} is {short(values[row])}, "
            "which is of another type than in the rows before"
        ) from error


def _odd_row(values: list[Any]) -> int | None:
    """The first row that no Arrow column can hold along with those before it."""
    kinds = [float if type(value) is int else type(value) for value in values]
    first = next((kind for kind in kinds if kind is not type(None)), None)
    return next((row for row, kind in enumerate(kinds) if kind not in (first, type(None))), None)


def short(value: Any) -> str:
    """A value as messages show it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _unreadable(file: str, error: BaseException) -> DataError:
    reason = str(error).strip().splitlines()
    return DataError(f"{file} cannot be read: {reason[0] if reason else type(error).__name__}")
