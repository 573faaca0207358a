"""What happens to a run when one of its processes is stopped or killed."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest

from pipelines.cli import JOBS, main
from pipelines.execute import execute, new_pipeline
from sbert_core.errors import JobError
from tests.corpora import clustered, make_table, write_shards, write_vectors
from tests.fault_processes import children_of, is_alive
from tests.tiny_models import make_transformer

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
START_SECONDS = 120  # generous: the machine may be busy
END_SECONDS = 30


def wait_for(condition, seconds):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


class Command:
    """A command with a slow encoder, in its own process group."""

    def __init__(self, tmp_path: Path, *flags: str) -> None:
        pattern = write_shards(tmp_path / "in", make_table(400), 4)
        self.output = tmp_path / "out"
        self.arguments = ["embed", "--input", pattern, "--output", str(self.output), "--slice_rows", "10", *flags]
        command = [sys.executable, "-m", "tests.slow_command", *self.arguments]
        self.process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, process_group=0)
        wait_for(lambda: self.parts or self.process.poll() is not None, START_SECONDS)
        self.workers = children_of(self.process.pid)

    @property
    def parts(self) -> set[Path]:
        return set(self.output.glob("embeddings/*.parquet"))

    def end(self) -> tuple[int, list[str]]:
        """Waits for all processes; returns the exit code and the lines on standard error, without progress."""
        _, errors = self.process.communicate(timeout=END_SECONDS)
        wait_for(lambda: not any(map(is_alive, self.workers)), END_SECONDS)
        progress = "embed: "  # a line now and then, on a busy machine
        return self.process.returncode, [line for line in errors.splitlines() if not line.startswith(progress)]


needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes in /proc")


@needs_proc
def test_workers_of_a_killed_driver_end(tmp_path):
    command = Command(tmp_path, "--workers", "2")
    assert len(command.workers) == 2
    command.process.kill()
    code, errors = command.end()
    assert (code, errors) == (-signal.SIGKILL, [])
    parts = command.parts
    time.sleep(1)  # a worker that still runs commits a part in less
    assert command.parts == parts


@needs_proc
def test_a_stopped_command_prints_one_line(tmp_path):
    """Ctrl-C in a terminal: the signal goes to all processes of the group."""
    command = Command(tmp_path, "--workers", "2")
    assert len(command.workers) == 2
    os.killpg(command.process.pid, signal.SIGINT)
    assert command.end() == (130, ["sbert-beam embed: stopped; the same command continues from here"])


def kill_itself(row: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return row


def open_sockets() -> int:
    links = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]  # noqa: PTH115
    return sum(link.startswith("socket:") for link in links)


@needs_proc
def test_a_failed_run_leaves_nothing_behind(monkeypatch):
    """In a process that continues, such as a notebook: no children, no ports, no more threads than before."""
    left, others = [], set(children_of(os.getpid()))  # a browser, say, that another test started
    reasons = [r"ended with exit code 1: .*ParseError: .*Descriptor", *[r"was killed \(signal 9\), probably "] * 2]
    for reason in reasons:
        with monkeypatch.context() as patch:
            if "ParseError" in reason:  # a worker that cannot start, and the first run, which opens what is kept open
                patch.setenv("STATUS_API_SERVICE_DESCRIPTOR", "no descriptor")
            root = new_pipeline([], 2)
            _ = root | beam.Create(range(8)) | beam.Reshuffle() | beam.Map(kill_itself)
            with pytest.raises(JobError, match=rf"worker process \d+ {reason}.*\. Go on"):
                execute(root, lambda: ". Go on")
        wait_for(lambda: others.issuperset(children_of(os.getpid())), END_SECONDS)
        left.append((open_sockets(), len([t for t in threading.enumerate() if not t.daemon])))
    assert left[1] == left[2]


def test_a_mistake_that_a_worker_finds_is_one_line(tmp_path, capfd):
    vectors = clustered(50)
    vectors[7, 3] = np.nan
    flags = ["--input", write_vectors(tmp_path / "in", vectors), "--output", str(tmp_path / "out"), "--workers", "2"]
    assert main(["mine", *flags]) == 1
    (line,) = [line for line in capfd.readouterr().err.splitlines() if not line.startswith("mine: ")]  # progress
    assert "row 7 has a vector that is not finite" in line


def test_training_can_be_stopped(tmp_path):
    rows = [f"the quick fox {row}\tthe lazy dog {row}" for row in range(64)]
    (tmp_path / "pairs.tsv").write_text("\n".join(["a\tb", *rows]))
    model = make_transformer(tmp_path / "model")
    flags = ["--data", str(tmp_path / "pairs.tsv"), "--columns", "a,b", "--epochs", "5000"]
    flags += ["--model", str(model), "--output", str(tmp_path / "out"), "--device", "cpu"]
    command = [sys.executable, "-m", "pipelines", "train", *flags]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: list(tmp_path.glob("out*/**/*")) or process.poll() is not None, START_SECONDS)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=END_SECONDS)
    assert process.returncode == 143, errors
    assert "Traceback" not in errors
    assert errors.splitlines()[-1].startswith("sbert-beam train: stopped")


IN_OUT = ["--input", "in.txt", "--output", "out"]
FLAGS = {
    "run": IN_OUT,
    "embed": IN_OUT,
    "mine": IN_OUT,
    "cluster": IN_OUT,
    "report": ["--input", "out"],
    "train": ["--data", "in.txt", "--model", "default", "--output", "out"],
    "evaluate": ["--data", "in.txt", "--model", "default", "--task", "health"],
    "search": ["--queries", "where is my parcel", "--corpus", "out"],
    "verify": ["out"],
}


@needs_proc
@pytest.mark.parametrize(("position", "job"), list(enumerate(JOBS)), ids=JOBS)
def test_each_job_can_be_stopped_at_its_start(tmp_path, position, job):
    """SIGINT and SIGTERM in turn, at several points of the imports, which take seconds."""
    (tmp_path / "in.txt").write_text("one\n" * 100_000)
    number = (signal.SIGINT, signal.SIGTERM)[position % 2]
    marked = "import sys; from pipelines import __main__ as program, signals; signals.install(); print(flush=True); "
    command = [sys.executable, "-c", f"{marked}sys.exit(program.command())", job, *FLAGS[job]]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, text=True, **pipes) as process:
        assert process.stdout is not None
        process.stdout.readline()  # the handlers are installed
        time.sleep(0.1 * (position + 1))
        children = children_of(process.pid)
        process.send_signal(number)
        _, errors = process.communicate(timeout=END_SECONDS)
    assert process.returncode == 128 + number, errors
    (line,) = errors.splitlines()
    assert re.match(rf"sbert-beam( {job})?: stopped", line)  # the name of the job follows when flags are read
    wait_for(lambda: not any(map(is_alive, children)), END_SECONDS)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_after_the_work_does_not_change_the_exit_code(number):
    """The handlers of Python are gone while the interpreter exits."""
    program = "import os; from pipelines import signals; signals.install(); signals.ignore(); os.kill(os.getpid(), "
    late = f"{program}{number:d})"
    done = subprocess.run([sys.executable, "-c", late], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
