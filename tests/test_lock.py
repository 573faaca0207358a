"""Two jobs do not write below one output folder at a time."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sbert_core.errors import DataError
from transforms.dataset import lock
from transforms.dataset.lock import LOCK, lock_output


def hold(folder: str, ready) -> None:
    with lock_output(folder, "mine"):
        ready.send(True)
        time.sleep(120)  # until it is killed


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of `tmp_path`."""
    context = multiprocessing.get_context("spawn")
    receiver, ready = context.Pipe(duplex=False)
    process = context.Process(target=hold, args=(str(tmp_path), ready))
    process.start()
    assert receiver.poll(60)
    yield process
    process.kill()
    process.join()


@pytest.mark.slow
def test_the_owner_is_named_and_its_lock_is_taken_over_when_it_is_killed(tmp_path, holder):
    with (
        pytest.raises(DataError, match=rf"is being written by mine on .+, process {holder.pid}, since 20"),
        lock_output(str(tmp_path), "embed"),
    ):
        pass
    assert json.loads((tmp_path / LOCK).read_text())["pid"] == holder.pid
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    assert (tmp_path / LOCK).exists()
    with lock_output(str(tmp_path), "embed"):
        assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()
    assert not (tmp_path / LOCK).exists()


def test_a_job_that_runs_other_jobs_holds_it_for_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with lock_output("out", "run"):
        with lock_output(f"{tmp_path}/out/", "embed"):
            pass
        assert Path("out", LOCK).exists()
    assert not Path("out", LOCK).exists()


def test_it_is_released_when_a_job_fails(tmp_path):
    with pytest.raises(ZeroDivisionError), lock_output(str(tmp_path), "embed"):
        raise ZeroDivisionError
    with lock_output(str(tmp_path), "embed"):
        pass


def test_a_folder_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cannot write to"), lock_output(str(tmp_path / "file" / "out"), "embed"):
        pass


def test_an_object_store(tmp_path, monkeypatch):
    """The lock is a file that its owner renews; a local folder stands for the store."""
    monkeypatch.setattr(lock, "is_local", lambda path: False)
    monkeypatch.setattr(lock, "RENEWAL_INTERVAL_S", 0.05)
    folder, path = str(tmp_path), tmp_path / LOCK
    with lock_output(folder, "embed"):
        first = json.loads(path.read_text())
        lock._held_folders.clear()  # as another process sees it
        with pytest.raises(DataError, match="is being written by embed"), lock_output(folder, "mine"):
            pass
        deadline = time.monotonic() + 20
        while json.loads(path.read_text())["renewed"] == first["renewed"]:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert not path.exists()
    path.write_text(json.dumps({**first, "renewed": time.time() - 3600}))
    with lock_output(folder, "mine"):
        assert json.loads(path.read_text())["job"] == "mine"
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    path.write_text(json.dumps({**first, "pid": ended.pid, "pid_namespace": "of another machine"}))
    with pytest.raises(DataError, match="is being written by embed"), lock_output(folder, "mine"):
        pass
    path.write_text(json.dumps({**first, "pid": ended.pid}))
    with lock_output(folder, "mine"):
        assert json.loads(path.read_text())["job"] == "mine"
