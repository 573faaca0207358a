"""A lock, so that one job at a time writes below an output folder.

On a file system the operating system holds the lock and releases it when the process ends, however it ends. An object
store has no locks: there the lock is a file that its owner renews every minute. A lock that was not renewed for ten
minutes is taken over, and at once if its owner was a process of this machine that has ended. Two jobs that start within
the same second may both get the lock of an object store.
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
RENEWAL_INTERVAL_S = 60.0
EXPIRY_S = 600.0

_held_folders: set[str] = set()
"""Folders that this process has locked: a job that runs other jobs holds the lock for them."""


@contextlib.contextmanager
def lock_output(folder: str, job: str) -> Iterator[None]:
    """Holds the lock of an output folder; it is an error that names the owner if another process has it."""
    folder = os.path.abspath(folder) if is_local(folder) else folder.rstrip("/")  # noqa: PTH100
    if folder in _held_folders:
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
            _held_folders.add(folder)
            try:
                yield
            finally:
                _held_folders.discard(folder)
    finally:
        if is_new:
            with contextlib.suppress(OSError):  # it holds results; a job that was refused leaves no folder behind
                Path(folder).rmdir()


def _owner(job: str) -> dict[str, Any]:
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    process = {"host": socket.gethostname(), "pid": os.getpid(), "pid_namespace": _pid_namespace()}
    return {"job": job, **process, "since": started, "renewed": time.time()}


def _pid_namespace() -> str | None:
    """Where a process id means one process: a boot of a machine, and one of its containers. None if not known."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None


def _has_ended(owner: dict[str, Any]) -> bool:
    """Whether an owner is known to have ended. A process that has its id now counts as the owner."""
    if owner.get("pid_namespace") is None or owner["pid_namespace"] != _pid_namespace():
        return False
    try:
        os.kill(owner["pid"], 0)  # sends nothing
    except ProcessLookupError:
        return True
    except OSError:  # a process of another user
        return False
    return False


def _refusal(folder: str, content: bytes) -> DataError:
    try:
        owner = json.loads(content)
        description = f"{owner['job']} on {owner['host']}, process {owner['pid']}, since {owner['since']}"
    except (ValueError, KeyError, TypeError):
        description = "another process"
    return DataError(f"{folder} is being written by {description}: wait for it, stop it, or choose another --output")


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
        # The previous owner may have deleted this file between open and flock: then it locks nothing.
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
    """Writes the owner into the lock file; a disk without space for it has no space for a result either."""
    content = json.dumps(_owner(job)).encode()
    try:
        file.truncate(0)
        written = file.write(content)
    except OSError as error:
        raise DataError(f"cannot write to {folder}: {error.strerror}. See --output") from error
    if written < len(content):
        raise DataError(f"cannot write to {folder}: the disk is full. See --output")


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
        while not stop.wait(RENEWAL_INTERVAL_S):
            with contextlib.suppress(Exception):  # tried again every minute until the lock expires
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
        owner = json.loads(content)
        return time.time() - float(owner["renewed"]) > EXPIRY_S or _has_ended(owner)
    except (ValueError, KeyError, TypeError):
        return True
