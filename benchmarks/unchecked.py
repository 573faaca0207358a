"""Runs jobs with and without their checks and compares the time, for benchmarks.checks."""

import contextlib
import dataclasses
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import pyarrow.parquet as pq

from sbert_core.data.dataset_reader import DatasetReader
from sbert_core.process_cache import clear_process_caches

# Every check of a dataset is a method of its reader. The hash that writing a part computes is not among them: it is
# what the manifest records.
CHECKS = ("check_content", "check_sizes", "check_rows", "has_content")


def _patch_checks(replacements: dict[str, Callable[..., Any]]) -> contextlib.ExitStack:
    stack = contextlib.ExitStack()
    for name in CHECKS:
        stack.enter_context(mock.patch.object(DatasetReader, name, replacements[name]))
    return stack


@contextlib.contextmanager
def without_checks() -> Iterator[None]:
    """Reads and writes without a check: no hashes, no checksums of pages, no sizes and no rows."""

    def unchecked(function: Callable[..., Any], option: str) -> Callable[..., Any]:
        return lambda *arguments, **options: function(*arguments, **{**options, option: False})

    functions = {
        "write_table": "write_page_checksum",
        "read_table": "page_checksum_verification",
        "ParquetFile": "page_checksum_verification",
    }
    replacements: dict[str, Callable[..., Any]] = {name: lambda *_: None for name in CHECKS}
    replacements["has_content"] = lambda reader, path, sha256: Path(path).is_file()
    with _patch_checks(replacements) as stack:
        for name, option in functions.items():
            stack.enter_context(mock.patch.object(pq, name, unchecked(getattr(pq, name), option)))
        yield


@dataclasses.dataclass
class Clocks:
    """CPU seconds of a job inside its checks, and inside what computes checksums of pages on the way."""

    checks: float = 0
    reading: float = 0
    writing: float = 0
    _is_running: ClassVar[bool] = False

    def clocked(self, function: Callable[..., Any], clock: str) -> Callable[..., Any]:
        """A function whose time is added to a clock, unless it is called by another one: no second counts twice."""

        def run(*arguments: Any, **options: Any) -> Any:
            if self._is_running:
                return function(*arguments, **options)
            start = time.process_time()
            self._is_running = True  # type: ignore[misc]
            try:
                return function(*arguments, **options)
            finally:
                self._is_running = False  # type: ignore[misc]
                setattr(self, clock, getattr(self, clock) + time.process_time() - start)

        return run


@contextlib.contextmanager
def clocked_checks() -> Iterator[Clocks]:
    """Runs with checks, and counts the CPU seconds that they take."""
    clocks = Clocks()

    class ClockedFile(pq.ParquetFile):
        def iter_batches(self, *arguments: Any, **options: Any) -> Iterator[Any]:
            batches = super().iter_batches(*arguments, **options)
            following = clocks.clocked(lambda: next(batches, None), "reading")
            return iter(following, None)

    with _patch_checks({name: clocks.clocked(getattr(DatasetReader, name), "checks") for name in CHECKS}) as stack:
        stack.enter_context(mock.patch.object(pq, "ParquetFile", ClockedFile))
        for name, clock in (("read_table", "reading"), ("write_table", "writing")):
            stack.enter_context(mock.patch.object(pq, name, clocks.clocked(getattr(pq, name), clock)))
        yield clocks


def clock(run: Callable[[], Any], rounds: int, prepare: Callable[[], Any] = lambda: None) -> dict[str, float]:
    """The medians of what a job takes in all and inside its checks."""
    found: list[dict[str, float]] = []
    for number in range(rounds + 1):
        prepare()
        with clocked_checks() as clocks:
            total = timed(run)[0]
        if number:  # the first is the warm-up
            found.append(
                {"cpu_s": total, **{f"{name}_cpu_s": value for name, value in dataclasses.asdict(clocks).items()}}
            )
    print(f"  {found}", flush=True)
    return {name: statistics.median(each[name] for each in found) for name in found[0]}


def cpu_seconds() -> float:
    """CPU time of this process and of the children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def timed(run: Callable[[], Any]) -> tuple[float, float]:
    """CPU and wall seconds of a job in a process that has checked nothing yet."""
    clear_process_caches()
    cpu, wall = cpu_seconds(), time.perf_counter()
    run()
    return cpu_seconds() - cpu, time.perf_counter() - wall


def compare(
    run: Callable[[], Any],
    rounds: int,
    prepare: Callable[[], Any] = lambda: None,
    run_unchecked: Callable[[], Any] | None = None,
) -> dict[str, Any]:
    """A job with its checks against the same without; `prepare` removes what an earlier round left, untimed.

    A job that is a command of its own brings along how to `run_unchecked`.
    """

    def unchecked() -> tuple[float, float]:
        if run_unchecked:
            return timed(run_unchecked)
        with without_checks():
            return timed(run)

    def once(measure: Callable[[], tuple[float, float]]) -> tuple[float, float]:
        prepare()
        return measure()

    once(lambda: timed(run))
    on, off, again = [], [], []  # the same job once more shows what of a ratio is noise
    for number in range(rounds):
        measurements = [(on, lambda: timed(run)), (off, unchecked), (again, lambda: timed(run))]
        for found, measure in (*measurements[number % 3 :], *measurements[: number % 3]):
            found.append(once(measure))
        seconds = f"{on[-1][0]:.3f} and {again[-1][0]:.3f} s with checks, {off[-1][0]:.3f} s without"
        print(f"  round {number + 1}/{rounds}: CPU {seconds}", flush=True)
    ratios = {"cpu_ratio": _ratios(on, off), "noise_ratio": _ratios(on, again)}
    return {
        "rounds": rounds,
        "with_checks": medians(on),
        "without": medians(off),
        **{name: statistics.median(each) for name, each in ratios.items()},
        **{f"{name}_quartiles": statistics.quantiles(each, n=4)[::2] for name, each in ratios.items()},
    }


def _ratios(runs: Sequence[tuple[float, float]], others: Sequence[tuple[float, float]]) -> list[float]:
    return [run[0] / other[0] for run, other in zip(runs, others, strict=True)]


def medians(runs: Sequence[tuple[float, float]]) -> dict[str, float]:
    """The median seconds of runs."""
    return {"cpu_s": statistics.median(run[0] for run in runs), "wall_s": statistics.median(run[1] for run in runs)}
