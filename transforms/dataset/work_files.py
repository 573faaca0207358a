"""Intermediate files of a job: written by one step, read by later steps or by the next run if this one dies.

They are not part of a result, and no manifest lists them. Each ends with a digest of its content; a damaged file is
treated as missing.
"""

import hashlib
import io
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from sbert_core.errors import JobError
from transforms.dataset.files import read_bytes, store

_DIGEST_BYTES = hashlib.sha256().digest_size


def store_checked(path: str, content: bytes | memoryview | pa.Buffer) -> None:
    """Stores bytes and their digest."""

    def write(file: BinaryIO) -> None:
        file.write(content)
        file.write(hashlib.sha256(content).digest())

    store(path, write)


def load_checked(path: str) -> bytes | None:
    """The stored bytes; None if the file is missing or damaged."""
    found = read_bytes(path)
    if found is None or len(found) < _DIGEST_BYTES:
        return None
    content, digest = memoryview(found)[:-_DIGEST_BYTES], found[-_DIGEST_BYTES:]
    return bytes(content) if hashlib.sha256(content).digest() == digest else None


def store_arrays(path: str, arrays: dict[str, np.ndarray]) -> None:
    """Stores arrays by name."""
    sink = io.BytesIO()
    np.savez(sink, **arrays)  # type: ignore[arg-type]
    store_checked(path, sink.getvalue())


def load_arrays(path: str) -> dict[str, np.ndarray] | None:
    """The stored arrays by name; None if the file is missing or damaged."""
    content = load_checked(path)
    if content is None:
        return None
    with np.load(io.BytesIO(content)) as arrays:
        return dict(arrays)


def need_checked(path: str) -> bytes:
    """The bytes that an earlier step of this run stored; it is an error if they are missing."""
    return _needed(load_checked(path), path)


def need_arrays(path: str) -> dict[str, np.ndarray]:
    """The arrays that an earlier step of this run stored; it is an error if they are missing."""
    return _needed(load_arrays(path), path)


def _needed(found: Any, path: str) -> Any:
    if found is None:
        raise JobError(
            f"{path} is missing or damaged, although a step of this job wrote it: run the same command again"
        )
    return found
