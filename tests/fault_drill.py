"""The drill of faults: what its exercises share.

An exercise is a function of a seed and an empty folder. It disturbs a job or damages its files and returns a
`Record`; what went wrong is in `Record.failures`. `tests/test_faults.py` runs a few of each, `benchmarks/faults.py`
many.
"""

import contextlib
import dataclasses
import functools
import io
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines import embed, search
from pipelines.cli import main
from sbert_core.process_cache import clear_process_caches
from tests.fake_encoder import load_fake

NOT_COMPARED = ("_run.json", "report.html")  # they hold how long a run took
PROGRESS = ("embed: ", "mine: ", "cluster: ", "verify: ", "[")  # run: [1/4] embed
HANG_SECONDS = 180.0
ROWS = 120
MINE = ["--top_k", "6", "--min_score", "0.5", "--block_rows", "30"]
CLUSTER = ["--algorithm", "kmeans", "--k", "4", "--block_rows", "30"]


@dataclasses.dataclass
class Record:
    """What an exercise did and found."""

    exercise: str
    seed: int
    done: str = ""  # what was disturbed or damaged, and how
    exit_code: int | None = None
    seconds: float = 0.0
    failures: list[str] = dataclasses.field(default_factory=list)

    def require(self, condition: object, failure: str) -> bool:
        """Adds a failure unless the condition holds."""
        if not condition:
            self.failures.append(failure)
        return bool(condition)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int | None  # None: an exception came out of it, or it did not end
    output: str
    errors: str
    seconds: float = 0.0

    @property
    def lines(self) -> list[str]:
        """The lines on standard error, without progress."""
        return [line for line in self.errors.splitlines() if line.strip() and not line.startswith(PROGRESS)]

    def faults(self, *codes: int) -> list[str]:
        """What is wrong if these exit codes are allowed: 0 without a line on standard error, others with one."""
        description = f"exit code {self.code}: {self.errors[-300:]!r}"
        if self.code not in codes:
            return [description]
        lines = [line for line in self.lines if "warning:" not in line]
        if "Traceback" in self.errors or len(lines) != (self.code != 0):
            return [description]
        return []


def run_here(*arguments: str, fake: bool = True) -> Outcome:
    """Runs a command in this process, with the fake encoder or the real one; files are read as by a new process."""
    clear_process_caches()
    output, errors = io.StringIO(), io.StringIO()
    start = time.perf_counter()
    with contextlib.ExitStack() as stack:
        if fake:
            for job in (embed, search):
                make = functools.partial(job.make_encode, load=load_fake)
                stack.enter_context(mock.patch.object(job, "make_encode", make))
        stack.enter_context(contextlib.redirect_stdout(output))
        stack.enter_context(contextlib.redirect_stderr(errors))
        try:
            code: int | None = main([str(argument) for argument in arguments])
        except SystemExit as stopped:  # argparse refuses a flag
            code = stopped.code if isinstance(stopped.code, int) else 2
        except Exception:  # a user would see a traceback
            code = None
            errors.write(traceback.format_exc())
    return Outcome(code, output.getvalue(), errors.getvalue(), time.perf_counter() - start)


def contents(output: Path) -> dict[str, bytes]:
    """Every file of a result, except those that hold how long it took."""
    files = [path for path in output.rglob("*") if path.is_file() and path.name not in NOT_COMPARED]
    return {str(path.relative_to(output)): path.read_bytes() for path in files}


def difference(found: dict[str, bytes], expected: dict[str, bytes]) -> str:
    """The names of files that differ; empty if none does."""
    names = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
    return ", ".join(names[:4])


def write_corpus(folder: Path, rows: int = ROWS, shards: int = 2) -> Path:
    """A corpus with a row that is rejected."""
    folder.mkdir(parents=True)
    texts: list[str | None] = [f"ticket {row} " + "again " * (row % 9) for row in range(rows)]
    texts[7] = None
    table = pa.table(
        {"id": [f"r{row:04}" for row in range(rows)], "text": texts, "topic": [row % 3 for row in range(rows)]}
    )
    size = -(-rows // shards)
    for shard in range(shards):
        pq.write_table(table.slice(shard * size, size), folder / f"part-{shard}.parquet")
    return folder


def commands(source: Path, out: Path) -> dict[str, list[str]]:
    """The commands that make an output, by the datasets that each writes."""
    return {
        "embed": ["embed", "--input", str(source), "--output", str(out), "--slice_rows", "30"],
        "mine": ["mine", "--input", f"{out}/embeddings", "--output", str(out), *MINE],
        "cluster": ["cluster", "--input", str(out), "--output", str(out), *CLUSTER],
    }


WRITTEN_BY = {
    "embeddings": "embed",
    "rejected": "embed",
    "neighbors": "mine",
    "pairs": "mine",
    "duplicates": "mine",
    "clusters": "cluster",
}


@functools.cache
def finished_output(folder: Path) -> tuple[Path, Path]:
    """A corpus and the output of all jobs on it, made once below a folder."""
    source, out = write_corpus(folder / "in"), folder / "out"
    for arguments in commands(source, out).values():
        outcome = run_here(*arguments)
        assert outcome.code == 0, outcome.errors
    return source, out


@contextlib.contextmanager
def timed(record: Record) -> Iterator[Record]:
    """Measures an exercise; one that takes too long has failed."""
    start = time.perf_counter()
    yield record
    record.seconds = round(time.perf_counter() - start, 2)
    record.require(record.seconds < HANG_SECONDS, f"it took {record.seconds} s")


def check_verify(record: Record, out: Path, is_intact: bool) -> None:
    """Verify passes on an output that is intact, and fails on one that is not."""
    outcome = run_here("verify", str(out))
    record.failures += [f"verify: {fault}" for fault in outcome.faults(0 if is_intact else 1)]


def repair(record: Record, arguments: Sequence[str], out: Path, expected: dict[str, bytes]) -> None:
    """The same command succeeds and gives the expected bytes."""
    outcome = run_here(*arguments)
    record.failures += [f"{arguments[0]} again: {fault}" for fault in outcome.faults(0)]
    differs = difference(contents(out), expected)
    record.require(not differs, f"after {arguments[0]} again these files differ: {differs}")


def readers(out: Path, elsewhere: Path) -> dict[str, list[str]]:
    """Commands that read an output and write to another place."""
    return {
        "mine": ["mine", "--input", f"{out}/embeddings", "--output", f"{elsewhere}/mine", *MINE],
        "cluster": ["cluster", "--input", str(out), "--output", f"{elsewhere}/cluster", *CLUSTER],
        "graph": ["cluster", "--input", str(out), "--output", f"{elsewhere}/graph"],
        "report": ["report", "--input", str(out), "--output", f"{elsewhere}/report/report.html"],
    }
