"""What happens to a job when one of its external workers is killed in the middle of it.

Each job runs on our job service with a pool of two workers. One of them stops when it has stored a file of the job, and
is killed there: see `set_trap` in tests/engines/worker_boot.py. Nothing depends on how long things take.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

from tests.engines.catalog import ENGINES, JOBS, ROOT, Services, running_services
from tests.engines.jobs import Commands
from tests.engines.outputs import contents
from tests.engines.record import proving
from tests.fault_processes import are_gone, children_of, is_alive

pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes in /proc"),
]

ENGINE = "PortableRunner, a worker killed"
END_SECONDS = 90.0  # generous: the machine may be busy
PARTS = "Parts done so far .* are safe in .*: the same command continues from them"
COMPARED = "What was compared is safe in .*: the same command continues from it"
QUERIES = "The queries are encoded in .*: the same command continues from there"
# Of each job: its command, the file after which the worker is killed, and the end of the line that tells of it.
KILLED = {
    "embed": ("embed", r"/embeddings/[^/]+\.parquet$", PARTS),
    "mine, exact": ("exact", r"/_mine/[^/]+/tile-[^/]+$", COMPARED),
    "mine, routed": ("routed", r"/_mine/[^/]+/within-[^/]+$", COMPARED),
    "cluster, leiden": ("leiden", r"/_cluster/[^/]+/labels-[^/]+$", "The same command starts again"),
    "cluster, k-means": ("kmeans", r"/_cluster/[^/]+/nearest-[^/]+$", "The same command starts again"),
    "search": ("search", r"/search/_work/[^/]+/tile-[^/]+$", QUERIES),
}
# Of the jobs that count it: what the second run found of the first one.
REUSED = {
    "embed": ("embeddings", "resume/finished"),
    "mine, exact": ("neighbors", "mine/tile_tasks_reused"),
    "mine, routed": ("neighbors", "mine/group_steps_reused"),
}


@pytest.fixture(scope="module")
def commands(tmp_path_factory) -> Commands:
    return Commands(tmp_path_factory.mktemp)


@pytest.fixture(scope="module")
def services(tmp_path_factory) -> Iterator[Services]:
    with running_services(tmp_path_factory.mktemp("services")) as running:
        yield running


def workers_of(services: Services) -> set[int]:
    return set(filter(is_alive, children_of(services.process)))


class Trap:
    """Stops a worker when it has stored a file that matches, and does something to it or to its job then.

    If the job does not end in time, the job service is killed, which ends the wait for it, and the test fails.
    """

    def __init__(self, services: Services, pattern: str, act: Callable[[int], None]) -> None:
        self._services, self._act = services, act
        self._set, self._sprung = services.folder / "trap", services.folder / "trapped"
        self._set.write_text(pattern)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.workers: set[int] = set()

    def __enter__(self) -> "Trap":
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._is_over.set()
        self._thread.join()
        self._set.unlink()
        self._sprung.unlink(missing_ok=True)

    def _watch(self) -> None:
        while not (self._sprung.exists() and (noted := self._sprung.read_text()).endswith("\n")):
            if self._is_over.wait(0.005):
                return
        self.workers = workers_of(self._services)
        self._act(int(noted))
        if not self._is_over.wait(END_SECONDS):
            os.kill(self._services.process, signal.SIGKILL)


def kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)


def lines_of(errors: str) -> list[str]:
    """The lines on standard error, without progress."""
    return [line for line in errors.splitlines() if not re.match(r"\w+: [\d,]+ of ", line)]


@pytest.fixture
def kill_and_repeat(services, commands, tmp_path, capsys) -> Callable[..., None]:
    """Kills a worker of a command where the pattern says, runs the command again, and compares with a local run."""

    def kill_and_repeat(command: str, pattern: str, advice: str) -> None:
        expected = commands.output(command)
        flags = ENGINES[ENGINE].flags_with(services)
        capsys.readouterr()
        with Trap(services, pattern, kill) as trap:
            assert commands.run(command, tmp_path, flags) == 1
            assert workers_of(services) == set()  # none is left that could still write
        assert len(trap.workers) == 2
        (line,) = lines_of(capsys.readouterr().err)
        lost = r"a worker of the pool at [\d.:]+ was lost: it was killed, perhaps .*, or its connection broke"
        assert re.fullmatch(rf"sbert-beam \w+: {lost}\. {advice}", line), line
        stored = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
        assert commands.run(command, tmp_path, flags) == 0
        found, undisturbed = (contents(folder, counters=False) for folder in (tmp_path, expected))
        assert found == undisturbed
        assert all(path.stat().st_mtime_ns == when for path, when in stored.items())  # nothing was written twice

    return kill_and_repeat


@pytest.mark.parametrize("job", KILLED)
def test_a_killed_worker_ends_the_job_and_the_same_command_completes_it(job, kill_and_repeat, tmp_path):
    with proving(ENGINE, job):
        kill_and_repeat(*KILLED[job])
        if job in REUSED:
            folder, counter = REUSED[job]
            assert json.loads((tmp_path / folder / "_run.json").read_text())["counters"][counter] > 0


def test_a_worker_killed_while_it_publishes(kill_and_repeat):
    """The last step has no output that the runner would wait for: Beam's own service then waits forever."""
    kill_and_repeat("embed", r"/embeddings/_manifest\.json$", PARTS)


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")  # a traceback on standard error
def test_a_killed_job_service_is_told_in_one_line(commands, tmp_path, tmp_path_factory, capsys):
    with running_services(tmp_path_factory.mktemp("services")) as services:
        with Trap(services, KILLED["embed"][1], lambda _: kill(services.process)) as trap:
            assert commands.run("embed", tmp_path, ENGINES[ENGINE].flags_with(services)) == 1
        assert len(trap.workers) == 2
        assert are_gone([*trap.workers], END_SECONDS)
    (line,) = lines_of(capsys.readouterr().err)
    assert re.match(rf"sbert-beam embed: the connection to the job service broke \(.+\)\. {PARTS}", line), line


def test_the_table_has_the_jobs_that_lose_a_worker():
    assert KILLED.keys() <= JOBS.keys()


def test_the_workers_of_a_cancelled_job_end(services, commands, tmp_path, capsys):
    def cancel(_: int) -> None:
        with grpc.insecure_channel(services.jobs) as channel:
            jobs = beam_job_api_pb2_grpc.JobServiceStub(channel)
            listed = jobs.GetJobs(beam_job_api_pb2.GetJobsRequest()).job_info
            (running,) = [each.job_id for each in listed if each.state == beam_job_api_pb2.JobState.RUNNING]
            jobs.Cancel(beam_job_api_pb2.CancelJobRequest(job_id=running))

    with Trap(services, KILLED["embed"][1], cancel) as trap:
        assert commands.run("embed", tmp_path, ENGINES[ENGINE].flags_with(services)) == 1
        assert workers_of(services) == set()
    assert len(trap.workers) == 2
    (line,) = lines_of(capsys.readouterr().err)
    assert "CANCELLED" in line
    parts = set(tmp_path.rglob("*.parquet"))
    time.sleep(1)  # a worker that still runs commits a part in less
    assert set(tmp_path.rglob("*.parquet")) == parts


def test_a_stopped_job_service_ends_its_jobs(services, commands, tmp_path, capsys):
    """The program itself, which is not the process of the pool."""
    program = [sys.executable, "-m", "sbert_beam.job_service", "--port", "0", "--workers", "2"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(program, cwd=ROOT, **pipes) as process:
        address = process.stdout.readline().split()[-1]
        flags = [*ENGINES[ENGINE].flags_with(services), f"--job_endpoint={address}"]
        with Trap(services, KILLED["embed"][1], lambda _: process.terminate()) as trap:
            assert commands.run("embed", tmp_path, tuple(flags)) == 1
            assert process.wait(END_SECONDS) == 0
            assert workers_of(services) == set()
    assert len(trap.workers) == 2
    (line,) = lines_of(capsys.readouterr().err)
    assert re.match(r"sbert-beam embed: .*(CANCELLED|the connection to the job service broke)", line), line


def test_a_pool_that_does_not_answer_is_told_in_one_line(services, commands, tmp_path, capsys):
    flags = [*ENGINES[ENGINE].flags_with(services), "--environment_config=127.0.0.1:1"]
    assert commands.run("embed", tmp_path, tuple(flags)) == 1
    (line,) = lines_of(capsys.readouterr().err)
    assert re.match(r"sbert-beam embed: no worker was started at --environment_config=127\.0\.0\.1:1: .*refused", line)
