"""Files on any Beam filesystem: listed in order, written whole or not at all."""

import contextlib
import hashlib
import io
import os
import posixpath
import re
import shutil
import stat
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple

import pyarrow as pa
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from sbert_core.errors import DataError
from transforms.dataset.formats import compression_of

_BINARY = "application/octet-stream"
_WORK_NAME = re.compile(r"[0-9a-f]{16}")
TEMPORARY = re.compile(r"\..+\.[0-9a-f]{32}\.tmp")
"""Names that files have until they are whole."""


def is_local(path: str) -> bool:
    """Whether a path is of this machine's file system and not of an object store."""
    return FileSystems.get_scheme(path) is None


def open_file(path: str) -> BinaryIO:
    """Opens a file for reading; one with the suffix of a compression is read through it."""
    if not FileSystems.get_scheme(path):
        _check_regular(path)
    file = FileSystems.open(path, _BINARY, CompressionTypes.UNCOMPRESSED)
    codec = compression_of(path)
    return pa.CompressedInputStream(file, codec) if codec else file


def _check_regular(path: str) -> None:
    """Refuses what is no file: opening a pipe would wait for a writer for ever."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - URIs are no Path
    except FileNotFoundError:
        if os.path.islink(path):  # noqa: PTH114
            raise FileNotFoundError(f"it is a link to {os.readlink(path)}, which does not exist") from None  # noqa: PTH115
        raise FileNotFoundError("there is no such file") from None
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
        raise OSError(f"it is {kinds.get(stat.S_IFMT(mode), 'a device')}, expected a file")


def read_bytes(path: str) -> bytes | None:
    """The content of a file, or None if there is no such file."""
    if not FileSystems.exists(path):
        return None
    with open_file(path) as file:
        return file.read()


class Written(NamedTuple):
    """What a file holds after it was written."""

    sha256: str
    bytes: int


def commit(path: str, content: bytes | Callable[[IO[bytes]], None]) -> Written:
    """Writes a file under a temporary name, then renames it: readers see all of it or nothing.

    `content` may be a function that writes it piece by piece.
    """
    digesting: list[_DigestingWriter] = []

    def write(file: BinaryIO) -> None:
        digesting.append(_DigestingWriter(file))
        if isinstance(content, bytes):
            digesting[0].write(content)
        else:
            content(digesting[0])  # type: ignore[arg-type]

    store(path, write)
    return digesting[0].written


def store(path: str, write: Callable[[BinaryIO], None]) -> None:
    """The same for a file whose hash is not needed: what workers leave for each other."""
    folder, name = posixpath.split(path)
    folder = folder or "."
    make_folder(folder)
    temporary = f"{folder}/.{name}.{uuid.uuid4().hex}.tmp"
    try:
        with FileSystems.create(temporary, _BINARY, CompressionTypes.UNCOMPRESSED) as file:
            write(file)
        FileSystems.rename([temporary], [path])
    except BaseException:
        with contextlib.suppress(Exception):  # a full disk gets its space back; the first error is the one to report
            FileSystems.delete([temporary])
        raise


class _DigestingWriter(io.RawIOBase):
    """Hashes and counts what passes through while it is still in the processor's cache."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self._bytes = 0

    @property
    def written(self) -> Written:
        return Written(self._digest.hexdigest(), self._bytes)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._digest.update(data)
        self._bytes += memoryview(data).nbytes
        return self._file.write(data)


def make_folder(folder: str) -> None:
    """Makes a folder unless it is there already."""
    try:
        FileSystems.mkdirs(folder)
    except (BeamIOError, OSError):
        if not FileSystems.exists(folder):
            raise


def check_target(folder: str, needed_bytes: int = 0) -> None:
    """Tries whether results can be written below a folder, and on this machine whether there is room for them.

    A probe is written and removed again. The folder itself is not made: a job that is refused leaves nothing behind.
    """
    place = _existing_ancestor(folder) if is_local(folder) else folder.rstrip("/")
    probe = f"{place}/.probe.{uuid.uuid4().hex}.tmp"
    try:
        with FileSystems.create(probe, _BINARY, CompressionTypes.UNCOMPRESSED) as file:
            file.write(b"probe")
        FileSystems.delete([probe])
    except (BeamIOError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"cannot write to {folder}: {reason}. See --output") from error
    free = shutil.disk_usage(place).free if is_local(folder) else needed_bytes
    if free < needed_bytes:
        raise DataError(
            f"{folder} has {free / 1e9:.2f} GB free, and the result takes about {needed_bytes / 1e9:.2f} GB: "
            "make room, or choose another --output"
        )


def _existing_ancestor(folder: str) -> str:
    """The folder itself, or the one next above it that is there."""
    path = Path(folder).absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    return str(path)


def match(pattern: str) -> list[str]:
    """The paths of a glob pattern, sorted."""
    return sorted(metadata.path for metadata in FileSystems.match([pattern])[0].metadata_list)


def _escape(path: str) -> str:
    """A pattern that matches this path alone: a name may look like a pattern."""
    return re.sub(r"([*?\[])", r"[\1]", path)


def list_folder(folder: str) -> dict[str, int]:
    """The files directly in a folder, by name, with their sizes; a folder that is not there has none."""
    if is_local(folder):
        sizes = {}
        for path in sorted(Path(folder).iterdir()) if Path(folder).is_dir() else ():
            with contextlib.suppress(FileNotFoundError):  # a temporary file that is gone again
                if path.is_file():
                    sizes[path.name] = path.stat().st_size
        return sizes
    found = FileSystems.match([f"{_escape(folder)}/*"])[0].metadata_list
    return {posixpath.basename(each.path): each.size_in_bytes for each in sorted(found, key=lambda each: each.path)}


def delete_work(folder: str) -> None:
    """Deletes what jobs kept below a work folder: the folders that they named by a digest, and nothing else."""
    if not is_local(folder):
        paths = match(f"{_escape(folder)}/**")
        names = {path.removeprefix(folder).lstrip("/").split("/")[0] for path in paths}
    else:
        names = {path.name for path in Path(folder).iterdir()} if Path(folder).is_dir() else set()
    for name in sorted(names):
        if _WORK_NAME.fullmatch(name):  # object stores know a folder by its slash, file systems want none
            FileSystems.delete([f"{folder}/{name}" if is_local(folder) else f"{folder}/{name}/"])
    with contextlib.suppress(OSError):  # somebody else's files are in it, or there is no such folder
        Path(folder).rmdir()
