"""Reads datasets that jobs have published, and checks them against their manifests.

This is the only place that knows when a dataset is intact. Jobs, the trainer and the evaluator all use it, each with
the `Storage` that it reads files through.
"""

import concurrent.futures
import contextlib
import dataclasses
import hashlib
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from sbert_core.data.columns import check_has_columns
from sbert_core.data.formats import UNREADABLE, first_line, naming_file
from sbert_core.data.manifest import MANIFEST, Manifest, Part, parse_manifest
from sbert_core.data.storage import FsspecStorage, Storage
from sbert_core.errors import DataError
from sbert_core.process_cache import process_cache

_FOOTER_READERS = 16  # threads: in an object store each footer takes a round trip


def folder_of(path: str) -> str:
    """The folder of a dataset that is named by its folder or by its manifest."""
    return path.removesuffix(MANIFEST).rstrip("/")


@dataclasses.dataclass(frozen=True)
class DatasetReader:
    """Reads manifests and parts. A dataset that is damaged raises a DataError that names the file.

    A local part is read only if it has the SHA-256 that its manifest records; the hash is computed once per process.
    In an object store that would cost a second download, so there the checksums of the Parquet pages are verified
    instead, while the part is read. Sizes and numbers of rows are checked everywhere.
    """

    storage: Storage

    def find_manifest(self, folder: str) -> Manifest | None:
        """The manifest of a dataset; None if it has none yet."""
        path = f"{folder}/{MANIFEST}"
        with naming_file(path):
            if not self.storage.exists(path):
                return None
            with self.storage.open(path) as file:
                content = file.read()
        return parse_manifest(content, folder)

    def read_manifest(self, folder: str) -> Manifest:
        """The manifest of a dataset, which must be there."""
        manifest = self.find_manifest(folder)
        if manifest is None:
            raise DataError(
                f"{folder} has no {MANIFEST}: the job that writes it has not finished, or this is not the dataset"
            )
        return manifest

    def check_sizes(self, folder: str, parts: Iterable[Part]) -> None:
        """Checks with one listing that all parts exist and have the recorded size."""
        sizes = self.storage.list_folder(folder)
        for part in parts:
            if part.name not in sizes:
                raise _damaged(folder, part.name, "is missing")
            if part.bytes is not None and sizes[part.name] != part.bytes:
                raise _damaged(folder, part.name, f"has {sizes[part.name]} bytes, its manifest records {part.bytes}")

    def check_rows(self, folder: str, parts: Sequence[Part]) -> None:
        """Checks by their footers that the parts have the recorded number of rows."""
        with concurrent.futures.ThreadPoolExecutor(_FOOTER_READERS) as pool:
            for part, rows in zip(parts, pool.map(lambda part: self._footer_rows(folder, part), parts), strict=True):
                if rows != part.rows:
                    raise _damaged(folder, part.name, f"has {rows} rows, its manifest records {part.rows}")

    def _footer_rows(self, folder: str, part: Part) -> int:
        try:
            with self.storage.open(f"{folder}/{part.name}") as file:
                return int(pq.read_metadata(file).num_rows)
        except UNREADABLE as error:
            raise _damaged(folder, part.name, f"cannot be read ({first_line(error)})") from error

    def has_content(self, path: str, sha256: str) -> bool:
        """Whether a file exists and its content has this SHA-256; it is always computed anew."""
        if not self.storage.exists(path):
            return False
        with self.storage.open(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256  # type: ignore[arg-type]

    def check_content(self, path: str, sha256: str) -> None:
        """Checks the SHA-256 of a local part before its first use in this process; "" is not checked."""
        if sha256 and self.storage.is_local(path):
            _check_content_once(self, path, sha256)

    def read_part(self, folder: str, part: Part, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of a part, checked."""
        path = f"{folder}/{part.name}"
        try:
            if part.bytes is not None:  # releases that did not record sizes hashed something else
                self.check_content(path, part.sha256)
            with self.storage.open(path) as file:
                names = None if columns is None else list(columns)
                table = pq.read_table(file, columns=names, page_checksum_verification=True)
        except UNREADABLE as error:
            self._check_columns(path, columns or ())  # Arrow raises the same error for a missing column
            raise _damaged(folder, part.name, f"cannot be read ({first_line(error)})") from error
        if len(table) != part.rows:
            raise _damaged(folder, part.name, f"has {len(table)} rows, its manifest records {part.rows}")
        return table

    def _check_columns(self, path: str, columns: Sequence[str]) -> None:
        """Checks that a part has these columns, if its footer can be read."""
        with contextlib.suppress(*UNREADABLE), self.storage.open(path) as file:
            check_has_columns(path, pq.read_schema(file).names, columns)

    def read_dataset(self, folder: str, columns: Sequence[str] | None = None, rows: int | None = None) -> pa.Table:
        """The rows of a dataset in the order of its parts, or only the first ones."""
        tables: list[pa.Table] = []
        for part in self.read_manifest(folder).parts:
            tables.append(self.read_part(folder, part, columns))
            if rows is not None and sum(map(len, tables)) >= rows:
                break
        table = pa.concat_tables(tables) if tables else pa.table({name: pa.array([]) for name in columns or ()})
        return table if rows is None else table.slice(0, rows)


FSSPEC_DATASETS = DatasetReader(FsspecStorage())
"""Datasets as training and evaluation read them."""


@process_cache(max_entries=65_536)
def _check_content_once(reader: DatasetReader, path: str, sha256: str) -> None:
    """Caches checks that passed: a job reads a part several times, and hashing it each time would double the cost."""
    if not reader.has_content(path, sha256):
        folder, name = path.rsplit("/", 1)
        raise _damaged(folder, name, "has changed since it was written")


def _damaged(folder: str, name: str, problem: str) -> DataError:
    return DataError(f"{folder}/{name} {problem}: the dataset is damaged. Run the job that wrote it again")
