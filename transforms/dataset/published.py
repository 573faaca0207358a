"""The owner of datasets: reads and checks manifests, checks parts, and publishes a result by replacing its manifest.

A dataset is replaced by one switch: its new parts, whose names differ from those of other content, are written beside
the old ones, then the manifest is renamed into place, then parts that it does not name are deleted. Until the switch a
reader sees the old dataset, whole.
"""

import concurrent.futures
import dataclasses
import functools
import hashlib
import posixpath
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.io.filesystems import FileSystems

from sbert_core.data.manifest import MANIFEST, Manifest, Part, is_part_name, parse_manifest
from sbert_core.errors import DataError
from transforms.dataset.files import TEMPORARY, commit, is_local, list_folder, open_file, read_bytes

_READERS = 16  # footers that are read at once: of parts in an object store each takes a round trip


def folder_of(path: str) -> str:
    """The folder of a dataset that is named by its folder or by its manifest."""
    return path.removesuffix(MANIFEST).rstrip("/")


def find_manifest(folder: str) -> Manifest | None:
    """The manifest of a dataset, or None if there is none; one that is damaged is an error."""
    content = read_bytes(f"{folder}/{MANIFEST}")
    return None if content is None else parse_manifest(content, folder)


def read_manifest(folder: str) -> Manifest:
    """The manifest of a dataset, which must be there."""
    manifest = find_manifest(folder)
    if manifest is None:
        raise DataError(
            f"{folder} has no {MANIFEST}: the job that writes it has not finished, or it is not the dataset"
        )
    return manifest


def check_sizes(folder: str, parts: Iterable[Part]) -> None:
    """Checks by one listing that all parts are there and have the size that was recorded."""
    found = list_folder(folder)
    for part in parts:
        if part.name not in found:
            raise DataError(_fault(folder, part, "is missing"))
        if part.bytes is not None and found[part.name] != part.bytes:
            raise DataError(_fault(folder, part, f"has {found[part.name]} bytes, its manifest says {part.bytes}"))


def check_rows(folder: str, parts: Sequence[Part]) -> None:
    """Checks by their footers that the parts have the rows that were recorded."""
    with concurrent.futures.ThreadPoolExecutor(_READERS) as pool:
        for part, rows in zip(parts, pool.map(lambda part: _footer_rows(folder, part), parts), strict=True):
            if rows != part.rows:
                raise DataError(_fault(folder, part, f"has {rows} rows, its manifest says {part.rows}"))


def _footer_rows(folder: str, part: Part) -> int:
    try:
        with open_file(f"{folder}/{part.name}") as file:
            return int(pq.read_metadata(file).num_rows)
    except (pa.ArrowException, OSError) as error:
        raise DataError(_fault(folder, part, f"cannot be read ({str(error).splitlines()[0]})")) from error


def content_matches(path: str, part: Part) -> bool:
    """Whether a file is there and has just the bytes that were recorded of a part."""
    if not FileSystems.exists(path):
        return False
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == part.sha256  # type: ignore[arg-type]


@functools.lru_cache(maxsize=65536)
def check_content(path: str, sha256: str) -> None:
    """Checks the hash of a local part before its first use in this process.

    Parts in object stores are not read through for it: the checksums of their pages are checked when they are read.
    """
    if sha256 and is_local(path):
        with open_file(path) as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != sha256:  # type: ignore[arg-type]
                folder, name = posixpath.split(path)
                raise DataError(
                    _fault(folder, Part(name=name, rows=0, sha256=sha256), "has changed since it was written")
                )


def _fault(folder: str, part: Part, what: str) -> str:
    return f"{folder}/{part.name} {what}: the dataset is damaged. Run the job that wrote it again"


def is_current(folder: str, source: str) -> bool:
    """Whether a dataset is done: its manifest names this source, and every part has the bytes it was written with.

    A dataset that is damaged in any way is not, so that its job does it again.
    """
    try:
        manifest = find_manifest(folder)
    except DataError:
        return False
    if manifest is None or manifest.source != source:
        return False
    return all(content_matches(f"{folder}/{part.name}", part) for part in manifest.parts)


def read_part(folder: str, part: Part, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a part; its hash, the checksums of its pages and its rows are checked."""
    path = f"{folder}/{part.name}"
    try:
        if part.bytes is not None:
            check_content(path, part.sha256)
        with open_file(path) as file:
            names = None if columns is None else list(columns)
            table = pq.read_table(file, columns=names, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise DataError(_fault(folder, part, f"cannot be read ({str(error).splitlines()[0]})")) from error
    missing = [name for name in columns or () if name not in table.column_names]
    if missing:
        raise DataError(_fault(folder, part, f"has no column {missing[0]!r}"))
    if len(table) != part.rows:
        raise DataError(_fault(folder, part, f"has {len(table)} rows, its manifest says {part.rows}"))
    return table


def read_dataset(folder: str, columns: Sequence[str] | None = None, rows: int | None = None) -> pa.Table:
    """The rows of a dataset, or its first ones, in the order of its parts."""
    tables: list[pa.Table] = []
    for part in read_manifest(folder).parts:
        tables.append(read_part(folder, part, columns))
        if rows is not None and sum(map(len, tables)) >= rows:
            break
    table = pa.concat_tables(tables) if tables else pa.table({name: pa.array([]) for name in columns or ()})
    return table if rows is None else table.slice(0, rows)


@dataclasses.dataclass(frozen=True)
class Draft:
    """A dataset whose parts are written and whose manifest is not: no reader sees it yet."""

    folder: str
    manifest: Manifest


def publish(drafts: Sequence[Draft]) -> None:
    """Makes datasets the current ones: checks their parts on disk, replaces the manifests, deletes other parts.

    Doing it twice does no harm.
    """
    for draft in drafts:
        names = draft.manifest.part_names
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DataError(f"{draft.folder}: two slices of the input became the part {twice}: rows would be lost")
        check_sizes(draft.folder, draft.manifest.parts)
        check_rows(draft.folder, draft.manifest.parts)
    for draft in drafts:
        commit(f"{draft.folder}/{MANIFEST}", draft.manifest.to_json())
    for draft in drafts:
        delete_leftovers(draft.folder, keep=draft.manifest.part_names)


def delete_leftovers(folder: str, keep: Iterable[str]) -> None:
    """Deletes parts of earlier runs that are not to be kept, and temporary files; nothing that is not ours."""
    kept = set(keep)
    names = [name for name in list_folder(folder) if (is_part_name(name) or TEMPORARY.fullmatch(name))]
    doomed = [f"{folder}/{name}" for name in names if name not in kept]
    if doomed:
        FileSystems.delete(doomed)


@dataclasses.dataclass(kw_only=True, eq=False)
class PublishDatasets(beam.PTransform):
    """Publishes all datasets of a job together, when every part of every one of them is written.

    Input is a tuple of collections of `Draft`, `expected` in all; output is one list of their manifests. `problems`
    holds what makes the result wrong, and `check` may raise a DataError: either way the job fails and what was
    published before stays as it is.
    """

    expected: int
    problems: beam.PCollection[str] | None = None
    check: Callable[[Sequence[Draft]], None] | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, drafts: Any) -> beam.PCollection[list[Manifest]]:
        """Waits for all drafts and all problems."""
        problems = () if self.problems is None else beam.pvalue.AsIter(self.problems)
        return (
            drafts
            | "Drafts" >> beam.Flatten()
            | "AllDrafts" >> beam.combiners.ToList()
            | "Publish" >> beam.Map(self._publish, problems)
        )

    def _publish(self, drafts: list[Draft], problems: Iterable[str]) -> list[Manifest]:
        for problem in problems:
            raise DataError(problem)
        if len(drafts) != self.expected:
            raise DataError(f"{len(drafts)} of {self.expected} datasets were written: nothing is published")
        ordered = sorted(drafts, key=lambda draft: draft.folder)
        if self.check is not None:
            self.check(ordered)
        publish(ordered)
        return [draft.manifest for draft in ordered]
