"""Files on any file system that Beam knows: listed in order, and written completely or not at all."""

import contextlib
import hashlib
import io
import posixpath
import re
import shutil
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from sbert_core.data.formats import decompress, first_line
from sbert_core.data.storage import check_regular_file
from sbert_core.errors import DataError
from transforms.dataset.s3_client import share_client

_BINARY = "application/octet-stream"
_WORK_NAME = re.compile(r"[0-9a-f]{16}")
TEMPORARY_NAME = re.compile(r"\..+\.[0-9a-f]{32}\.tmp")
"""The name of a file while it is being written."""

# Beam sets them when a pipeline is made or a worker starts. Before that its S3 refuses to work, and its GCS reads the
# command line of whatever program this is.
if FileSystems._pipeline_options is None:
    FileSystems.set_options(PipelineOptions([]))
share_client()


def is_local(path: str) -> bool:
    """Whether a path is of this machine's file system and not of an object store."""
    return FileSystems.get_scheme(path) is None


def open_file(path: str) -> BinaryIO:
    """Opens a file for reading; a compressed one gives its decompressed content."""
    if is_local(path):
        check_regular_file(path)
    try:
        file = FileSystems.open(path, _BINARY, CompressionTypes.UNCOMPRESSED)
    except (BeamIOError, OSError):
        raise
    except Exception as error:  # every object store raises its own
        raise OSError(first_line(error)) from error
    return decompress(file, path)


def read_bytes(path: str) -> bytes | None:
    """The content of a file, or None if there is no such file."""
    if not FileSystems.exists(path):
        return None
    with open_file(path) as file:
        return file.read()


class BeamStorage:
    """Files of Beam's file systems, as the readers of `sbert_core.data` use them."""

    def open(self, path: str) -> BinaryIO:
        """Opens a file for reading; a compressed one gives its decompressed content."""
        try:
            return open_file(path)
        except BeamIOError as error:
            raise OSError(first_line(error)) from error

    def exists(self, path: str) -> bool:
        """Whether there is a file of this path."""
        return FileSystems.exists(path)

    def list_folder(self, folder: str) -> dict[str, int]:
        """The files directly in a folder: size in bytes by name. A folder that does not exist has none."""
        return list_folder(folder)

    def is_local(self, path: str) -> bool:
        """Whether a path is on a file system of this machine."""
        return is_local(path)


class Written(NamedTuple):
    """The hash and the size of a file that was written."""

    sha256: str
    bytes: int


def commit(path: str, content: bytes | Callable[[IO[bytes]], None]) -> Written:
    """Writes a file under a temporary name, then renames it: readers see all of it or nothing.

    `content` is the bytes, or a function that writes them to a file.
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
    """The same for a file whose hash and size are not needed."""
    folder, name = posixpath.split(path)
    folder = folder or "."
    make_folder(folder)
    temporary = f"{folder}/.{name}.{uuid.uuid4().hex}.tmp"
    try:
        with FileSystems.create(temporary, _BINARY, CompressionTypes.UNCOMPRESSED) as file:
            write(file)
        FileSystems.rename([temporary], [path])
    except BaseException:
        with contextlib.suppress(Exception):  # free the space of a full disk, and report the first error
            FileSystems.delete([temporary])
        raise


class _DigestingWriter(io.RawIOBase):
    """Hashes and counts bytes as they are written, which is cheaper than reading the file again."""

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
    """Creates a folder unless it exists."""
    try:
        FileSystems.mkdirs(folder)
    except (BeamIOError, OSError):
        if not FileSystems.exists(folder):
            raise


def check_target(folder: str, needed_bytes: int = 0) -> None:
    """Checks that results can be written below a folder and, on a local disk, that there is space for them.

    A probe file is written and deleted. The folder itself is not created: a job that is refused leaves nothing behind.
    """
    place = _existing_ancestor(folder) if is_local(folder) else folder.rstrip("/")
    probe = f"{place}/.probe.{uuid.uuid4().hex}.tmp"
    try:
        with FileSystems.create(probe, _BINARY, CompressionTypes.UNCOMPRESSED) as file:
            file.write(b"probe")
        FileSystems.delete([probe])
    except (BeamIOError, OSError, ValueError) as error:
        raise DataError(f"cannot write to {folder}: {first_line(error)}. See --output") from error
    free = shutil.disk_usage(place).free if is_local(folder) else needed_bytes
    if free < needed_bytes:
        raise DataError(
            f"{folder} has {free / 1e9:.2f} GB free, and the result takes about {needed_bytes / 1e9:.2f} GB: "
            "free some space, or choose another --output"
        )


def _existing_ancestor(folder: str) -> str:
    """The folder itself, or the nearest folder above it that exists."""
    path = Path(folder).absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    return str(path)


def match(pattern: str) -> list[str]:
    """The paths of a glob pattern, sorted."""
    return sorted(metadata.path for metadata in FileSystems.match([pattern])[0].metadata_list)


def _escape(path: str) -> str:
    """A pattern that matches only this path: a name may contain characters of patterns."""
    return re.sub(r"([*?\[])", r"[\1]", path)


def list_folder(folder: str) -> dict[str, int]:
    """The files directly in a folder: size in bytes by name. A folder that does not exist has none."""
    if is_local(folder):
        sizes = {}
        for path in sorted(Path(folder).iterdir()) if Path(folder).is_dir() else ():
            with contextlib.suppress(FileNotFoundError):  # a temporary file that was renamed meanwhile
                if path.is_file():
                    sizes[path.name] = path.stat().st_size
        return sizes
    found = FileSystems.match([f"{_escape(folder)}/*"])[0].metadata_list
    return {posixpath.basename(each.path): each.size_in_bytes for each in sorted(found, key=lambda each: each.path)}


def delete_work(folder: str, keep: Iterable[str] = ()) -> None:
    """Deletes the folders that jobs made below a work folder, which are named by a digest, and nothing else.

    Those whose name is in `keep` stay.
    """
    if not is_local(folder):
        paths = match(f"{_escape(folder)}/**")
        names = {path.removeprefix(folder).lstrip("/").split("/")[0] for path in paths}
    else:
        names = {path.name for path in Path(folder).iterdir()} if Path(folder).is_dir() else set()
    for name in sorted(names - set(keep)):
        if _WORK_NAME.fullmatch(name):  # Beam wants a slash after the name of a folder in an object store only
            FileSystems.delete([f"{folder}/{name}" if is_local(folder) else f"{folder}/{name}/"])
    with contextlib.suppress(OSError):  # it holds files of the user, or does not exist
        Path(folder).rmdir()
