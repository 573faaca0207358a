"""Exercises of the drill that stop, starve or race jobs."""

import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from sbert_core.data.manifest import MANIFEST
from tests.fault_drill import (
    HANG_SECONDS,
    Outcome,
    Record,
    check_verify,
    contents,
    difference,
    repair,
    run_here,
    timed,
    write_corpus,
)
from transforms.dataset.published import read_manifest

ROOT = Path(__file__).parents[1]
EXIT_SECONDS = 20.0  # for all processes of a stopped job to end
ROWS = 160
_MINE = ["--min_score", "0.5", "--block_rows", "25"]
_CLUSTER = ["--algorithm", "kmeans", "--block_rows", "25"]


class Command:
    """A command in a process group of its own; the constructor returns when its imports are done."""

    def __init__(self, arguments: Sequence[str]) -> None:
        command = [sys.executable, "-m", "tests.drill_command", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(command, cwd=ROOT, env=environment, text=True, process_group=0, **pipes)
        assert self.process.stdout is not None
        self.process.stdout.readline()
        self.start = time.perf_counter()

    def outcome(self) -> Outcome:
        """Waits for the end; a command that hangs is killed."""
        try:
            output, errors = self.process.communicate(timeout=HANG_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            return Outcome(None, "", f"no end after {HANG_SECONDS} s")
        return Outcome(self.process.returncode, output, errors, time.perf_counter() - self.start)


def children_of(pid: int) -> list[int]:
    """The children of a process."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in path.read_text().split()]
    return found


def is_alive(pid: int) -> bool:
    """Whether a process runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def are_gone(pids: Sequence[int], seconds: float) -> bool:
    """Waits until none of the processes runs."""
    deadline = time.monotonic() + seconds
    while any(map(is_alive, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def job_commands(job: str, source: Path, out: Path) -> tuple[list[list[str]], list[str], list[str]]:
    """Of a job: the commands that must have run before, one that leaves an old result, and one that replaces it."""
    embed = ["embed", "--input", str(source), "--output", str(out), "--slice_rows", "10"]
    mine = ["mine", "--input", f"{out}/embeddings", "--output", str(out), *_MINE]
    cluster = ["cluster", "--input", str(out), "--output", str(out), *_CLUSTER]
    run = ["run", "--input", str(source), "--output", str(out), "--algorithm", "kmeans"]
    routed = ["--index", "routed", "--cells", "12"]
    return {
        "embed": ([], [*embed, "--stored", "float16"], embed),
        "mine": ([embed], [*mine, "--top_k", "4"], [*mine, "--top_k", "6"]),
        "mine routed": ([embed], [*mine, "--top_k", "4"], [*mine, "--top_k", "6", *routed]),
        "cluster": ([embed, mine], [*cluster, "--k", "3"], [*cluster, "--k", "5"]),
        "run": ([], [*run, "--top_k", "4"], [*run, "--top_k", "6"]),
    }[job]


JOBS = ("embed", "mine", "mine routed", "cluster", "run")
_prepared: dict[tuple[Path, str], tuple[Path, Path, Path, float]] = {}


def _prepare(base: Path, job: str) -> tuple[Path, Path, Path, float]:
    """Outputs to start from: with only what the job reads, and with an old result; and the undisturbed one."""
    if (base, job) not in _prepared:
        home = base / job.replace(" ", "-")
        source = write_corpus(home / "in", ROWS, 4)
        out = home / "out"
        before, old, new = job_commands(job, source, out)
        folders = []
        seconds = 0.0
        for step, arguments in ((0, before), (1, [old]), (2, [new])):
            for each in arguments:
                outcome = run_here(*each)
                assert outcome.code == 0, outcome.errors
                seconds = outcome.seconds
            out.mkdir(exist_ok=True)
            folders.append(shutil.copytree(out, home / str(step)))
        _prepared[base, job] = (folders[0], folders[1], folders[2], seconds)
    return _prepared[base, job]


def view(out: Path, folder: Path) -> Path:
    """An output as readers see it: what its manifests name, without parts of a run that did not end."""
    for manifest in out.rglob(MANIFEST):
        place = folder / manifest.parent.relative_to(out)
        place.mkdir(parents=True)
        shutil.copy(manifest, place)
        for name in read_manifest(str(manifest.parent)).part_names:
            shutil.copy(manifest.parent / name, place)
    return folder


def kill(
    seed: int, folder: Path, base: Path, job: str = "", workers: int = 0, whom: str = "", number: int = 0
) -> Record:
    """A process of a job is killed or stopped at a random moment; the same command then completes."""
    rng = random.Random(seed)
    record = Record("kill", seed)
    job = job or rng.choice(JOBS)
    workers = workers or rng.choice((1, 1, 2))
    whom = whom or rng.choice(("driver", "group") if workers == 1 else ("driver", "worker", "group"))
    number = number or rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
    if whom == "worker":
        number = signal.SIGKILL
    fresh, old, undisturbed, seconds = _prepare(base, job)
    is_over_old = rng.random() < 0.5
    # All outputs of a job have the same path: some manifests hold paths.
    out = fresh.parent / "out"
    shutil.rmtree(out)
    shutil.copytree(old if is_over_old else fresh, out)
    *_, arguments = job_commands(job, fresh.parent / "in", out)
    with timed(record):
        command = Command([*arguments, "--workers", str(workers)])
        moment = rng.uniform(0, seconds + (4.0 if workers > 1 else 0.5))
        time.sleep(moment)
        pids = children_of(command.process.pid)
        victim = rng.choice(pids) if whom == "worker" and pids else command.process.pid
        was_running = command.process.poll() is None
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if whom == "group" else os.kill)(victim, number)
        record.done = f"{job}, {workers} workers, {signal.Signals(number).name} to {whom} after {moment:.1f} s" + (
            ", over an old result" if is_over_old else ""
        )
        outcome = command.outcome()
        record.exit_code = outcome.code
        if not was_running:
            record.done += " (had ended)"
            record.failures += outcome.faults(0)
        elif victim != command.process.pid:
            record.failures += outcome.faults(0, 1)
        elif number == signal.SIGKILL:
            record.require(outcome.code in (0, -9) and not outcome.lines, f"{outcome.code}: {outcome.errors[-400:]!r}")
        else:
            record.failures += outcome.faults(0, 128 + number)
        record.require(are_gone([command.process.pid, *pids], EXIT_SECONDS), "a process of the job is left")
        if is_over_old:
            check_verify(record, view(out, folder / "view"), is_intact=True)
        repair(record, arguments, out, contents(undisturbed))
        check_verify(record, out, is_intact=True)
    return record


# Full disks


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file may grow over a size: writing more fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


def full_disk(seed: int, folder: Path, base: Path, job: str = "", size: int = 0) -> Record:
    """Files cannot grow over a random size: one line, the old result stays, and with room the command completes."""
    rng = random.Random(seed)
    record = Record("full disk", seed)
    job = job or rng.choice(JOBS)
    fresh, old, undisturbed, _ = _prepare(base, job)
    is_over_old = rng.random() < 0.5
    out = fresh.parent / "out"
    shutil.rmtree(out)
    shutil.copytree(old if is_over_old else fresh, out)
    *_, arguments = job_commands(job, fresh.parent / "in", out)
    size = size or int(2 ** rng.uniform(2, 15))
    record.done = f"{job}, files of at most {size} bytes" + (", over an old result" if is_over_old else "")
    with timed(record):
        with largest_file(size):
            outcome = run_here(*arguments)
        record.exit_code = outcome.code
        record.failures += outcome.faults(0, 1, 2)
        if is_over_old:
            check_verify(record, view(out, folder / "view"), is_intact=True)
        repair(record, arguments, out, contents(undisturbed))
        check_verify(record, out, is_intact=True)
    return record


def small_file_system(seed: int, folder: Path, base: Path) -> Record:
    """The output is on a file system that is too small; needs the right to mount one."""
    rng = random.Random(seed)
    record = Record("small file system", seed)
    job = rng.choice(JOBS)
    fresh, _, undisturbed, _ = _prepare(base, job)
    out = fresh.parent / "out"
    used = sum(path.stat().st_size for path in fresh.rglob("*") if path.is_file())
    needed = sum(path.stat().st_size for path in undisturbed.rglob("*") if path.is_file())
    size = int(used * 1.5 + 2**16 + rng.random() * (needed - used))
    shutil.rmtree(out)
    out.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(out)], check=True)
    record.done = f"{job}, {size} bytes"
    try:
        with timed(record):
            shutil.copytree(fresh, out, dirs_exist_ok=True)
            *_, arguments = job_commands(job, fresh.parent / "in", out)
            outcome = run_here(*arguments)
            record.exit_code = outcome.code
            record.failures += outcome.faults(0, 1, 2)
            subprocess.run(["mount", "-o", "remount,size=64m", str(out)], check=True)
            repair(record, arguments, out, contents(undisturbed))
            check_verify(record, out, is_intact=True)
    finally:
        subprocess.run(["umount", str(out)], check=True)
    return record


# Two at once


def race(seed: int, folder: Path, base: Path) -> Record:
    """Two commands with different options write to one output: one does its work, the other too, or is refused."""
    rng = random.Random(seed)
    record = Record("two at once", seed)
    job = rng.choice(("embed", "mine", "cluster"))
    fresh, old, undisturbed, _ = _prepare(base, job)
    out = fresh.parent / "out"
    shutil.rmtree(out)
    shutil.copytree(fresh, out)
    _, first, second = job_commands(job, fresh.parent / "in", out)
    record.done = job
    with timed(record):
        both: list[Command] = []
        threads = [threading.Thread(target=lambda each=each: both.append(Command(each))) for each in (first, second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        outcomes = [command.outcome() for command in both]
        codes = sorted(outcome.code if outcome.code is not None else -1 for outcome in outcomes)
        record.done += f", exit codes {codes}"
        record.require(0 in codes, "neither ended with 0")
        for outcome in outcomes:
            record.failures += outcome.faults(0, 2)
        check_verify(record, out, is_intact=True)
        found = contents(out)
        is_one = not difference(found, contents(undisturbed)) or not difference(found, contents(old))
        record.require(is_one, "the output is that of neither command")
    return record
