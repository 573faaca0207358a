"""One job at a time may write below an output folder.

On a file system the lock is held by the operating system and is gone with the process that held it, however that ended.
An object store has no such thing: there the lock is a file whose owner renews it every minute. One that was not renewed
for ten minutes is taken over. Two jobs that begin within the same second may both get it there.
"""

import contextlib
import datetime
import fcntl
import io
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from sbert_core.errors import DataError
from transforms.dataset.files import commit, is_local, make_folder, read_bytes

LOCK = "_lock"
RENEWED_EVERY_S = 60.0
TAKEN_OVER_AFTER_S = 600.0

_held: set[str] = set()  # by this process: a job that runs other jobs holds it for them


@contextlib.contextmanager
def lock_output(folder: str, job: str) -> Iterator[None]:
    """Holds the lock of an output folder; if another process has it, that is an error that names the process."""
    folder = os.path.abspath(folder) if is_local(folder) else folder.rstrip("/")  # noqa: PTH100
    if folder in _held:
        yield
        return
    is_new = is_local(folder) and not Path(folder).exists()
    try:
        make_folder(folder)
    except (BeamIOError, OSError) as error:
        raise DataError(f"cannot write to {folder}: {error}. See --output") from error
    hold = _lock_file if is_local(folder) else _lock_in_store
    try:
        with hold(folder, job):
            _held.add(folder)
            try:
                yield
            finally:
                _held.discard(folder)
    finally:
        if is_new:
            with contextlib.suppress(OSError):  # there are results; a job that was refused leaves no folder behind
                Path(folder).rmdir()


def _owner(job: str) -> dict[str, Any]:
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"job": job, "host": socket.gethostname(), "pid": os.getpid(), "since": started, "renewed": time.time()}


def _refusal(folder: str, content: bytes) -> DataError:
    try:
        owner = json.loads(content)
        told = f"{owner['job']} on {owner['host']}, process {owner['pid']}, since {owner['since']}"
    except (ValueError, KeyError, TypeError):
        told = "another process"
    return DataError(f"{folder} is being written by {told}: wait for it, stop it, or choose another --output")


@contextlib.contextmanager
def _lock_file(folder: str, job: str) -> Iterator[None]:
    path = Path(folder, LOCK)
    while True:
        try:
            file = path.open("a+b", buffering=0)
        except OSError as error:
            raise DataError(f"cannot write to {folder}: {error.strerror}. See --output") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise _refusal(folder, file.read()) from error
        except OSError as error:
            raise DataError(f"cannot lock {folder}: {error.strerror}. Use a file system with locks") from error
        # The owner before may have deleted this file between the two calls: then it is nobody's lock.
        if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
            break
        file.close()
    with file:
        try:
            _write_owner(file, folder, job)
            yield
        finally:
            path.unlink(missing_ok=True)


def _write_owner(file: io.FileIO, folder: str, job: str) -> None:
    """Says in the lock who holds it; on a full disk that cannot be written, and neither can a result."""
    content = json.dumps(_owner(job)).encode()
    try:
        file.truncate(0)
        written = file.write(content)
    except OSError as error:
        raise DataError(f"cannot write to {folder}: {error.strerror}. See --output") from error
    if written < len(content):
        raise DataError(f"cannot write to {folder}: there is no room. See --output")


@contextlib.contextmanager
def _lock_in_store(folder: str, job: str) -> Iterator[None]:
    path = f"{folder}/{LOCK}"
    own = _owner(job)
    content = read_bytes(path)
    if content is not None and not _is_stale(content):
        raise _refusal(folder, content)
    commit(path, json.dumps(own).encode())
    stop = threading.Event()

    def renew() -> None:
        while not stop.wait(RENEWED_EVERY_S):
            with contextlib.suppress(Exception):  # tried again a minute later, nine times before it counts as gone
                commit(path, json.dumps({**own, "renewed": time.time()}).encode())

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        FileSystems.delete([path])


def _is_stale(content: bytes) -> bool:
    try:
        return time.time() - float(json.loads(content)["renewed"]) > TAKEN_OVER_AFTER_S
    except (ValueError, KeyError, TypeError):
        return True
