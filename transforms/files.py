"""Files on any Beam filesystem: listed in order, written whole or not at all."""

import hashlib
import posixpath
import re
import uuid
from typing import BinaryIO

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

_PLAIN = {"compression_type": CompressionTypes.UNCOMPRESSED}


def open_file(path: str) -> BinaryIO:
    """Opens a file for reading, as it is on disk."""
    return FileSystems.open(path, "application/octet-stream", **_PLAIN)


def read_bytes(path: str) -> bytes | None:
    """The content of a file, or None if there is no such file."""
    if not FileSystems.exists(path):
        return None
    with open_file(path) as file:
        return file.read()


def commit(path: str, content: bytes) -> str:
    """Writes a file under a temporary name, then renames it: readers see all of it or nothing.

    Returns the SHA-256 of the content.
    """
    folder, name = posixpath.split(path)
    make_folder(folder)
    temporary = f"{folder}/.{name}.{uuid.uuid4().hex}.tmp"
    with FileSystems.create(temporary, "application/octet-stream", **_PLAIN) as file:
        file.write(content)
    FileSystems.rename([temporary], [path])
    return hashlib.sha256(content).hexdigest()


def make_folder(folder: str) -> None:
    """Makes a folder unless it is there already."""
    try:
        FileSystems.mkdirs(folder)
    except (BeamIOError, OSError):
        if not FileSystems.exists(folder):
            raise


def list_files(pattern: str) -> list[tuple[str, str]]:
    """Finds the files of a glob pattern or a folder: sorted (path, name), name relative to the pattern's fixed part."""
    inside = pattern.rstrip("/") + "/*"
    if not re.search(r"[*?\[]", pattern) and FileSystems.match([inside])[0].metadata_list:
        pattern = f"{inside}.parquet"
    root = posixpath.dirname(re.split(r"[*?\[]", pattern, maxsplit=1)[0])
    paths = sorted(metadata.path for metadata in FileSystems.match([pattern])[0].metadata_list)
    start = len(root) + 1 if root else 0
    names = [path[path.index(root) + start :] if root else path for path in paths]
    return [(path, name) for path, name in zip(paths, names, strict=True) if not hidden(name)]


def hidden(name: str) -> bool:
    """Whether a file is bookkeeping, not data."""
    return posixpath.basename(name).startswith((".", "_"))
