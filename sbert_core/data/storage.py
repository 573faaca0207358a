"""Read access to files: what the readers of tables and datasets need of a file system.

Training and evaluation read through fsspec, jobs through Beam (`transforms.dataset.files.BeamStorage`).
"""

import os
import stat
from typing import Any, BinaryIO, Protocol

import fsspec
from fsspec.implementations.local import LocalFileSystem

from sbert_core.data.formats import decompress, first_line


class Storage(Protocol):
    """Opens and lists files by path or URI. What cannot be opened or listed raises an OSError."""

    def open(self, path: str) -> BinaryIO:
        """Opens a file for reading; a compressed one gives its decompressed content."""

    def exists(self, path: str) -> bool:
        """Whether there is a file of this path."""

    def list_folder(self, folder: str) -> dict[str, int]:
        """The files directly in a folder: size in bytes by name. A folder that does not exist has none."""

    def is_local(self, path: str) -> bool:
        """Whether a path is on a file system of this machine."""


class FsspecStorage:
    """Files that fsspec can read: local paths, s3://, gs://, memory:// and others."""

    def open(self, path: str) -> BinaryIO:
        """Opens a file for reading; a compressed one gives its decompressed content."""
        filesystem, stripped = self.resolve(path)
        if isinstance(filesystem, LocalFileSystem):
            check_regular_file(stripped)
        try:
            return decompress(filesystem.open(stripped, "rb"), path)
        except Exception as error:  # every file system raises its own
            raise OSError(first_line(error)) from error

    def exists(self, path: str) -> bool:
        """Whether there is a file of this path."""
        filesystem, stripped = self.resolve(path)
        return bool(filesystem.exists(stripped))

    def list_folder(self, folder: str) -> dict[str, int]:
        """The files directly in a folder: size in bytes by name. A folder that does not exist has none."""
        filesystem, stripped = self.resolve(folder)
        try:
            entries = filesystem.ls(stripped, detail=True)
        except FileNotFoundError:
            return {}
        except Exception as error:
            raise OSError(first_line(error)) from error
        return {entry["name"].rsplit("/", 1)[-1]: entry["size"] for entry in entries if entry["type"] == "file"}

    def is_local(self, path: str) -> bool:
        """Whether a path is on a file system of this machine."""
        return isinstance(self.resolve(path)[0], LocalFileSystem)

    @staticmethod
    def resolve(path: str) -> tuple[Any, str]:
        """The file system of a path, and the path as that file system writes it."""
        try:
            filesystem, stripped = fsspec.core.url_to_fs(path)
        except Exception as error:  # an unknown scheme, a missing package, missing credentials
            raise OSError(first_line(error)) from error
        return filesystem, stripped.rstrip("/")


def check_regular_file(path: str) -> None:
    """Raises an OSError if a local path is not a file: opening a named pipe would wait forever for a writer."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - URIs are no Path
    except FileNotFoundError:
        if os.path.islink(path):  # noqa: PTH114
            raise FileNotFoundError(f"it is a link to {os.readlink(path)}, which does not exist") from None  # noqa: PTH115
        raise FileNotFoundError("there is no such file") from None
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
        raise OSError(f"it is {kinds.get(stat.S_IFMT(mode), 'a device')}, expected a file")
