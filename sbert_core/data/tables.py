"""Columns of files as training and evaluation read them: into memory, each row with the place it comes from."""

import bisect
import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from fsspec.implementations.local import LocalFileSystem

from sbert_core.data.columns import check_has_columns, plain_batch, plain_schema
from sbert_core.data.dataset_reader import FSSPEC_DATASETS, folder_of
from sbert_core.data.formats import (
    SUFFIXES,
    first_line,
    is_hidden,
    naming_file,
    read_schema,
    read_stream,
    suffix_of,
    without_descriptions,
)
from sbert_core.data.manifest import Part
from sbert_core.data.storage import FsspecStorage
from sbert_core.errors import DataError

_STORAGE = FsspecStorage()


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
    """The named columns of a file, a folder, a glob, or a dataset of a job; local, or a URI that fsspec reads.

    Formats and compressions are those of `sbert_core.data.formats`. Of a folder the files of a known format are read,
    in the order of their names. Of a dataset the parts of its manifest are read and checked. A text file without
    content has no rows.
    """
    parts = _find_files(path)
    tables = [
        _read_file(file, columns) if part is None else _read_part(file, part, columns) for file, part in parts.items()
    ]
    try:
        joined = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise DataError(f"the files of {path} have columns of different types: {error}") from error
    starts = itertools.accumulate((table.num_rows for table in tables[:-1]), initial=0)
    return Table(joined, tuple(parts), tuple(starts))


def column_names(path: str) -> list[str]:
    """The names of the columns of the first file of `path`."""
    file = next(iter(_find_files(path)))
    return list(_read_schema(file).names)


def digest_files(path: str) -> str:
    """A SHA-256 of the content of all files of `path`, whatever their names are."""
    digest = hashlib.sha256()
    for file in _find_files(path):
        filesystem, stripped = _STORAGE.resolve(file)
        with filesystem.open(stripped, "rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def _find_files(path: str) -> dict[str, Part | None]:
    """The files of `path`, in order; a file of a dataset comes with its part."""
    try:
        files = _list_files(path)
    except DataError:
        raise
    except Exception as error:  # every file system raises its own
        raise DataError(f"cannot list the files of {path}: {first_line(error)}") from error
    if not files:
        raise DataError(f"there is no data at {path!r}: expected a file, a folder or a glob of {', '.join(SUFFIXES)}")
    return files


def _list_files(path: str) -> dict[str, Part | None]:
    if not path:  # fsspec would take it for the current folder
        return {}
    filesystem, root = _STORAGE.resolve(path)
    if filesystem.isdir(folder_of(root)):
        return _list_folder(filesystem, folder_of(root))
    if filesystem.exists(root):  # a name with brackets is a pattern only if there is no such file
        return {_full_path(filesystem, root): None}
    files: dict[str, Part | None] = {}
    for found in sorted(found for found in filesystem.glob(root) if not is_hidden(found)):
        if not filesystem.isdir(found):
            files[_full_path(filesystem, found)] = None
        elif suffix_of(found):
            files |= _list_folder(filesystem, found)
    return files


def _list_folder(filesystem: Any, folder: str) -> dict[str, Part | None]:
    """The parts of a dataset, or the files of a known format; a folder `x.parquet`, as Spark writes it, is opened."""
    path = _full_path(filesystem, folder)
    manifest = FSSPEC_DATASETS.find_manifest(path)
    if manifest is not None:
        FSSPEC_DATASETS.check_sizes(path, manifest.parts)
        return {f"{path}/{part.name}": part for part in manifest.parts}
    files: dict[str, Part | None] = {}
    for entry in sorted(filesystem.ls(folder, detail=True), key=lambda entry: entry["name"]):
        found = entry["name"].rstrip("/")
        if is_hidden(found) or not suffix_of(found):
            continue
        if entry["type"] == "directory":
            files |= _list_folder(filesystem, found)
        else:
            files[_full_path(filesystem, found)] = None
    return {file: files[file] for file in without_descriptions(list(files))}


def _full_path(filesystem: Any, path: str) -> str:
    """A path that `FsspecStorage` opens: a URI, unless it is local."""
    return path if isinstance(filesystem, LocalFileSystem) else str(filesystem.unstrip_protocol(path))


def _read_schema(file: str) -> pa.Schema:
    with naming_file(file):
        return plain_schema(read_schema(functools.partial(_STORAGE.open, file), file))


def _read_file(file: str, columns: Sequence[str]) -> pa.Table:
    schema = _read_schema(file)
    if not schema.names:  # a text file without content
        return pa.table({name: pa.nulls(0) for name in columns})
    check_has_columns(file, schema.names, columns)
    open_stream = functools.partial(_STORAGE.open, file)
    with naming_file(file):
        batches = read_stream(open_stream, file, columns=list(columns), schema=schema)
        read = [plain_batch(batch.select(list(columns))) for batch in batches]
    return _decoded(pa.Table.from_batches(read, pa.schema([schema.field(name) for name in columns])))


def _read_part(file: str, part: Part, columns: Sequence[str]) -> pa.Table:
    folder = file.removesuffix(part.name).rstrip("/")
    return _decoded(FSSPEC_DATASETS.read_part(folder, part, columns).select(list(columns)))


def _decoded(table: pa.Table) -> pa.Table:
    """A table without dictionaries and without metadata, so that files of different writers can be joined."""
    columns = [
        column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)


def short(value: Any) -> str:
    """A value as messages show it: at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
