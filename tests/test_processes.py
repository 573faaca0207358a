"""What becomes of a run when one of its processes is stopped or killed."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest

from pipelines.execute import execute, new_pipeline
from sbert_core.errors import JobError
from tests.corpora import clustered, make_table, write_shards, write_vectors
from tests.tiny_models import make_transformer

ROOT = Path(__file__).parents[1]
START_SECONDS = 120  # generous: the machine may be busy
END_SECONDS = 30


def wait_for(condition, seconds):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def children_of(pid: int) -> list[int]:
    return [int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]


class Command:
    """A command with a slow encoder, in a process group of its own."""

    def __init__(self, tmp_path: Path, *flags: str) -> None:
        pattern = write_shards(tmp_path / "in", make_table(400), 4)
        self.output = tmp_path / "out"
        self.arguments = ["embed", "--input", pattern, "--output", str(self.output), "--slice_rows", "10", *flags]
        command = [sys.executable, "-m", "tests.slow_command", *self.arguments]
        self.process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, process_group=0)
        wait_for(lambda: len(self.parts) >= 3 or self.process.poll() is not None, START_SECONDS)
        self.workers = children_of(self.process.pid)

    @property
    def parts(self) -> set[Path]:
        return set(self.output.glob("embeddings/*.parquet"))

    def end(self) -> tuple[int, list[str]]:
        """Waits for all its processes: the exit code, and what it wrote to standard error besides progress."""
        _, errors = self.process.communicate(timeout=END_SECONDS)
        wait_for(lambda: not any(map(is_alive, self.workers)), END_SECONDS)
        progress = "embed: "  # a line now and then, on a busy machine
        return self.process.returncode, [line for line in errors.splitlines() if not line.startswith(progress)]


needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes in /proc")


@needs_proc
def test_a_killed_worker_ends_the_run(tmp_path):
    command = Command(tmp_path, "--workers", "2")
    assert len(command.workers) == 2
    os.kill(command.workers[0], signal.SIGKILL)
    code, errors = command.end()
    assert code == 1
    (line,) = errors
    assert line.startswith(f"sbert-beam embed: worker process {command.workers[0]} was killed (signal 9), probably ")
    assert line.endswith("the same command goes on from them")


@needs_proc
def test_workers_of_a_killed_driver_end(tmp_path):
    command = Command(tmp_path, "--workers", "2")
    assert len(command.workers) == 2
    command.process.kill()
    code, errors = command.end()
    assert (code, errors) == (-signal.SIGKILL, [])
    parts = command.parts
    time.sleep(1)  # a worker that goes on commits a part in less
    assert command.parts == parts


@needs_proc
@pytest.mark.parametrize(
    ("number", "workers", "to_group", "told"),
    [
        (signal.SIGINT, 1, False, "stopped; "),
        (signal.SIGTERM, 1, False, "stopped by SIGTERM; "),
        (signal.SIGINT, 2, True, "stopped; "),
        (signal.SIGTERM, 2, False, "stopped by SIGTERM; "),
    ],
)
def test_a_stopped_command_is_one_line(tmp_path, number, workers, to_group, told):
    command = Command(tmp_path, "--workers", str(workers))
    assert len(command.workers) == (workers if workers > 1 else 0)
    (os.killpg if to_group else os.kill)(command.process.pid, number)
    code, errors = command.end()
    assert code == 128 + number
    assert errors == [f"sbert-beam embed: {told}the same command goes on from here"]


def kill_itself(row: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return row


def open_sockets() -> int:
    links = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]  # noqa: PTH115
    return sum(link.startswith("socket:") for link in links)


@needs_proc
def test_a_run_that_failed_leaves_nothing_behind():
    """In a process that lives on, such as a notebook: no children, no ports, no more threads than before."""
    left, others = [], set(children_of(os.getpid()))  # a browser, say, that another test started
    for _ in range(3):
        root = new_pipeline([], 2)
        _ = root | beam.Create(range(8)) | beam.Reshuffle() | beam.Map(kill_itself)
        with pytest.raises(JobError, match=r"worker process \d+ was killed .*\. Go on"):
            execute(root, lambda: ". Go on")
        wait_for(lambda: others.issuperset(children_of(os.getpid())), END_SECONDS)
        left.append((open_sockets(), len([t for t in threading.enumerate() if not t.daemon])))
    assert left[1] == left[2]  # the first run also opens what the process keeps


def test_a_worker_that_cannot_start_says_why(monkeypatch):
    monkeypatch.setattr("pipelines.local_runner._options_json", lambda _: "no json")
    root = new_pipeline([], 2)
    _ = root | beam.Create([1]) | beam.Map(print)
    with pytest.raises(JobError, match=r"worker process \d+ ended with exit code 1: .*JSONDecodeError"):
        execute(root, str)


def test_a_mistake_that_a_worker_finds_is_one_line(tmp_path):
    vectors = clustered(50)
    vectors[7, 3] = np.nan
    flags = ["--input", write_vectors(tmp_path / "in", vectors), "--output", str(tmp_path / "out"), "--workers", "2"]
    command = [sys.executable, "-m", "pipelines", "mine", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=START_SECONDS, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "row 7 has a vector that is not finite" in line


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_training_can_be_stopped(tmp_path, number):
    rows = [f"the quick fox {row}\tthe lazy dog {row}" for row in range(64)]
    (tmp_path / "pairs.tsv").write_text("\n".join(["a\tb", *rows]))
    model = make_transformer(tmp_path / "model")
    flags = ["--data", str(tmp_path / "pairs.tsv"), "--columns", "a,b", "--epochs", "5000"]
    flags += ["--model", str(model), "--output", str(tmp_path / "out"), "--device", "cpu"]
    command = [sys.executable, "-m", "pipelines", "train", *flags]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: list(tmp_path.glob("out*/**/*")) or process.poll() is not None, START_SECONDS)
        process.send_signal(number)
        _, errors = process.communicate(timeout=END_SECONDS)
    assert process.returncode == 128 + number, errors
    assert "Traceback" not in errors
    assert errors.splitlines()[-1].startswith("sbert-beam train: stopped")


IMPORTS = [("embed", 0.1), ("embed", 1.5), ("train", 1.0), ("search", 1.0)]


@pytest.mark.parametrize(("job", "seconds"), IMPORTS)
def test_a_command_can_be_stopped_while_it_imports(tmp_path, job, seconds):
    """The signal comes at some point of the imports, or of the little that follows."""
    (tmp_path / "in.txt").write_text("one\n" * 100_000)
    flags = {
        "embed": ["--input", str(tmp_path / "in.txt"), "--output", str(tmp_path / "out")],
        "train": ["--data", str(tmp_path / "in.txt"), "--model", "default", "--output", str(tmp_path / "out")],
        "search": ["--queries", "where is my parcel", "--corpus", str(tmp_path)],
    }[job]
    marked = "import sys; from pipelines import __main__ as program, signals; signals.install(); print(flush=True); "
    command = [sys.executable, "-c", f"{marked}sys.exit(program.command())", job, *flags]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()  # the handlers are there
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=END_SECONDS)
    assert process.returncode == 130
    (line,) = errors.splitlines()
    assert line.startswith("sbert-beam")
    assert ": stopped" in line
