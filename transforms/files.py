"""Files on any Beam filesystem: listed in order, written whole or not at all."""

import hashlib
import io
import json
import posixpath
import re
import uuid
from collections.abc import Callable, Iterable
from typing import IO, Any, BinaryIO

import pyarrow as pa
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from sbert_core.errors import DataError
from transforms.formats import COMPRESSIONS, suffix_of

MANIFEST = "_manifest.json"

_BINARY = "application/octet-stream"
_GLOB = re.compile(r"[*?\[]")
_OURS = re.compile(r".+-[0-9a-f]{8}-\d{10}\.parquet|\..+\.[0-9a-f]{32}\.tmp")  # parts and what was to become one


def open_file(path: str) -> BinaryIO:
    """Opens a file for reading; one with the suffix of a compression is read through it."""
    file = FileSystems.open(path, _BINARY, CompressionTypes.UNCOMPRESSED)
    codec = next((codec for suffix, codec in COMPRESSIONS.items() if path.endswith(suffix)), None)
    return pa.CompressedInputStream(file, codec) if codec else file


def read_bytes(path: str) -> bytes | None:
    """The content of a file, or None if there is no such file."""
    if not FileSystems.exists(path):
        return None
    with open_file(path) as file:
        return file.read()


def commit(path: str, content: bytes | Callable[[IO[bytes]], None]) -> str:
    """Writes a file under a temporary name, then renames it: readers see all of it or nothing.

    `content` may be a function that writes it piece by piece. Returns the SHA-256 of what was written.
    """
    digest = hashlib.sha256()

    def write(file: BinaryIO) -> None:
        digesting = _DigestingWriter(file, digest)
        if isinstance(content, bytes):
            digesting.write(content)
        else:
            content(digesting)  # type: ignore[arg-type]

    store(path, write)
    return digest.hexdigest()


def store(path: str, write: Callable[[BinaryIO], None]) -> None:
    """The same for a file that nobody asks the hash of: what workers leave for each other."""
    folder, name = posixpath.split(path)
    make_folder(folder)
    temporary = f"{folder}/.{name}.{uuid.uuid4().hex}.tmp"
    with FileSystems.create(temporary, _BINARY, CompressionTypes.UNCOMPRESSED) as file:
        write(file)
    FileSystems.rename([temporary], [path])


class _DigestingWriter(io.RawIOBase):
    """Hashes what passes through while it is still in the processor's cache."""

    def __init__(self, file: BinaryIO, digest: Any) -> None:
        self._file = file
        self._digest = digest

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._digest.update(data)
        return self._file.write(data)


def make_folder(folder: str) -> None:
    """Makes a folder unless it is there already."""
    try:
        FileSystems.mkdirs(folder)
    except (BeamIOError, OSError):
        if not FileSystems.exists(folder):
            raise


def match(pattern: str) -> list[str]:
    """The paths of a glob pattern, sorted."""
    return sorted(metadata.path for metadata in FileSystems.match([pattern])[0].metadata_list)


def list_input(pattern: str) -> list[tuple[str, str]]:
    """Finds the files of a glob, a folder, or a dataset that an earlier job wrote: (path, name), sorted.

    The name is the path below the pattern's fixed folder: ids and part names are made of it.
    """
    folder = pattern.removesuffix(MANIFEST).rstrip("/")
    if not _GLOB.search(pattern):
        if FileSystems.exists(f"{folder}/{MANIFEST}"):
            return [(f"{folder}/{part['name']}", part["name"]) for part in read_manifest(folder)["parts"]]
        if not suffix_of(pattern):
            pattern = f"{folder}/*"
    paths = match(pattern)
    if pattern == f"{folder}/*":
        paths = [path for path in paths if suffix_of(path)]
    root = posixpath.dirname(_GLOB.split(pattern, maxsplit=1)[0])
    names = [path[path.index(root) + len(root) :].lstrip("/") for path in paths]
    return [(path, name) for path, name in zip(paths, names, strict=True) if not _hidden(name)]


def _hidden(name: str) -> bool:
    """Whether a file is bookkeeping, not data."""
    return posixpath.basename(name).startswith((".", "_"))


def read_manifest(folder: str) -> dict[str, Any]:
    """Reads the manifest of a dataset; one that is not there means the job did not finish."""
    content = read_bytes(f"{folder}/{MANIFEST}")
    if content is None:
        raise DataError(
            f"{folder} has no {MANIFEST}: the job that writes it has not finished, or it is not the dataset"
        )
    manifest: dict[str, Any] = json.loads(content)
    return manifest


def source_of(folder: str) -> str | None:
    """What a finished dataset says it was made of, or None if there is none."""
    return read_manifest(folder)["source"] if FileSystems.exists(f"{folder}/{MANIFEST}") else None


def withdraw(folder: str) -> None:
    """Takes back a dataset before it is changed: without its manifest it is none."""
    if FileSystems.exists(f"{folder}/{MANIFEST}"):
        FileSystems.delete([f"{folder}/{MANIFEST}"])


def delete_folder(folder: str) -> None:
    """Deletes a folder and all in it; object stores know a folder by its slash, file systems want none."""
    FileSystems.delete([f"{folder}/" if FileSystems.get_scheme(folder) else folder])


def delete_leftovers(folder: str, keep: Iterable[str]) -> None:
    """Deletes parts of earlier runs that are not to be kept, and temporary files; nothing that is not ours."""
    kept = set(keep)
    paths = {path for pattern in ("*.parquet", ".*.tmp") for path in match(f"{folder}/{pattern}")}
    doomed = [path for path in paths if _OURS.fullmatch(name := posixpath.basename(path)) and name not in kept]
    if doomed:
        FileSystems.delete(sorted(doomed))
