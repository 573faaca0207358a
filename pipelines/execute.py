"""Creates and runs the pipelines of all jobs, and reports a failure in one line."""

import re
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

import apache_beam as beam
import grpc
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import (
    DebugOptions,
    DirectOptions,
    PipelineOptions,
    PortableOptions,
    StandardOptions,
    TestOptions,
)
from apache_beam.runners.runner import PipelineResult, PipelineState

from pipelines import signals
from pipelines.local_runner import LocalRunner
from pipelines.watched_workers import WorkerLostError, quiet_threads
from sbert_core.errors import DataError, JobError, ModelError

NAMESPACES = ("read", "resume", "encode", "ordinals", "mine")

# Patterns of runner names that were tested and do not work, and why.
_BROKEN_RUNNERS = {
    r"(^|[._])dask": "reports success and writes nothing",
    r"pyspark": "breaks many of Beam's guarantees",
    r"(^|[._])ray": "breaks many of Beam's guarantees",
}
_USE_INSTEAD = "leave --runner out to use this machine, or name PortableRunner, FlinkRunner or DataflowRunner"
_CONNECT_TIMEOUT_S = 20
_OUR_ERROR = re.compile(r"^[\w.]*\b(DataError|JobError|ModelError|WorkerLostError): ")
_LOCAL_RUNNER = re.compile(r"(.*\.)?(fnapi|direct|switchingdirect)(runner)?", re.IGNORECASE)


def new_pipeline(beam_flags: Sequence[str], workers: int) -> beam.Pipeline:
    """A pipeline for the runner in the flags; without one, for this machine, in `workers` processes.

    `DirectRunner` also means this machine here: Beam's own `DirectRunner` downloads another runner first.
    """
    options = check_engine(beam_flags, workers)
    runner = options.view_as(StandardOptions).runner
    if runner is None or _LOCAL_RUNNER.fullmatch(runner):
        local = [f"--direct_num_workers={workers}"] + ["--direct_running_mode=multi_processing"] * (workers > 1)
        return beam.Pipeline(runner=LocalRunner(), options=PipelineOptions([*beam_flags, *local]))
    try:
        return beam.Pipeline(options=options)
    except (
        AttributeError,
        ImportError,
        ValueError,
    ) as error:  # unknown runner, or one of its required flags is missing
        raise DataError(f"--runner={runner}: {' '.join(str(error).split())}") from error


def is_local_pipeline(root: beam.Pipeline) -> bool:
    """Whether a pipeline runs on this machine, in the processes of `--workers`."""
    return isinstance(root.runner, LocalRunner)


def check_engine(beam_flags: Sequence[str], workers: int) -> PipelineOptions:
    """Returns Beam's options; a runner or flag that loses rows or hangs without an error is a DataError."""
    options = PipelineOptions(list(beam_flags))
    runner = options.view_as(StandardOptions).runner or ""
    for pattern, fault in _BROKEN_RUNNERS.items():
        if re.search(pattern, runner, re.IGNORECASE):
            raise DataError(f"--runner={runner} {fault}: {_USE_INSTEAD}")
    direct = options.view_as(DirectOptions)
    if direct.direct_running_mode == "multi_threading":
        raise DataError("--direct_running_mode=multi_threading loses rows: use processes, with --workers")
    if direct.direct_num_workers not in (1, workers):
        raise DataError(f"--direct_num_workers={direct.direct_num_workers}: use --workers, which also shares the cores")
    for experiment in options.view_as(DebugOptions).experiments or ():
        if experiment.startswith("data_buffer_time_limit_ms"):
            raise DataError(f"--experiments={experiment} may lose rows: leave it out")
    _check_endpoint(options.view_as(PortableOptions).job_endpoint)
    return options


def check_command(beam_flags: Sequence[str], workers: int) -> None:
    """Checks the engine for a command, which shows figures at its end and so cannot be a dry run.

    From here on files are read with the options of the command, also by steps before and without a pipeline.
    """
    options = check_engine(beam_flags, workers)
    FileSystems.set_options(options)
    if options.view_as(TestOptions).dry_run:
        raise DataError("--dry_run builds a job and runs nothing, so there would be no result: use submit() in Python")


def _check_endpoint(endpoint: str | None) -> None:
    """Checks that the job service accepts connections: Beam would wait for it forever, without a message."""
    if endpoint in (None, "embed"):  # "embed": Beam starts a job service itself
        return
    host, _, port = endpoint.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_TIMEOUT_S).close()
    except (OSError, ValueError) as error:
        raise DataError(f"--job_endpoint={endpoint}: no job service answers there ({error})") from error


def execute(root: beam.Pipeline, advice: Callable[[], str]) -> dict[str, Any]:
    """Runs a pipeline and returns our counters. A failure is a JobError that ends with `advice` on how to continue."""
    try:
        result = _run(root)
    except WorkerLostError as error:
        raise JobError(f"{error}{advice()}") from error
    except grpc.RpcError as error:
        details = error.details() if isinstance(error, grpc.Call) else type(error).__name__
        raise JobError(f"the connection to the job service broke ({details}){advice()}") from error
    except Exception as error:
        # No advice to run the command again: with the same data or model it fails again.
        is_final = isinstance(error, (DataError, ModelError)) or re.search(r"\b(DataError|ModelError)\b", str(error))
        raise JobError(_reason(error) if is_final else _reason(error).rstrip(".") + advice()) from error
    if result.state != PipelineState.DONE:
        raise JobError(f"the runner ended the job as {result.state}{advice()}")
    return _counters(result)


def _run(root: beam.Pipeline) -> PipelineResult:
    """Runs a pipeline to its end; a remote job is cancelled if this process is stopped."""
    if is_local_pipeline(root):
        result = root.run()
        result.wait_until_finish()
        return result
    runner = type(root.runner).__name__
    with signals.on_stop(lambda: f"{runner} may have the job already: check there, and cancel it if it runs"):
        result = root.run()

    def cancel() -> str:
        note = _cancel(result, runner)
        signals.run_exit_handlers()  # ends a job service that Beam may have started
        return note

    try:
        with signals.on_stop(cancel), quiet_threads():
            _wait(result)
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(_cancel(result, runner)) from error
    return result


def _wait(result: PipelineResult) -> None:
    """Waits for a remote job; if the connection breaks, also for the thread that reads messages: it fails as well."""
    try:
        result.wait_until_finish()
    except grpc.RpcError:
        for thread in threading.enumerate():
            if thread.name == "wait_until_finish_read":
                thread.join(_CONNECT_TIMEOUT_S)
        raise


def _cancel(result: PipelineResult, runner: str) -> str:
    """Cancels a remote job; returns a note on the outcome."""
    try:
        result.cancel()
    except Exception as error:
        job_id = getattr(result, "job_id", None) or getattr(result, "_job_id", None)
        name = job_id() if callable(job_id) else job_id
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return f"the job{f' {name}' if name else ''} still runs on {runner}, cancel it there ({reason})"
    return "the job was cancelled"


def _reason(error: Exception) -> str:
    """The line of a worker's traceback that has the reason; our own errors before those of the engine."""
    lines = [line for line in str(error).splitlines() if re.match(r"[\w.]+(Error|Exception)\b.*: ", line)]
    ours = [line for line in lines if _OUR_ERROR.match(line)]
    line = (ours or lines or [f"{type(error).__name__}: {error}"])[-1]
    return re.sub(r" \[while running .*$", "", _OUR_ERROR.sub("", line, count=1)).strip()


def _counters(result: PipelineResult) -> dict[str, Any]:
    """Our counters and distributions, from Beam's metrics."""
    metrics = result.metrics().query()
    found: dict[str, Any] = {}
    for counter in metrics["counters"]:
        name = f"{counter.key.metric.namespace}/{counter.key.metric.name}"
        if counter.key.metric.namespace in NAMESPACES:
            found[name] = found.get(name, 0) + (counter.result or 0)  # runners leave out what is zero
    for distribution in metrics["distributions"]:
        if distribution.key.metric.namespace in NAMESPACES:
            name = f"{distribution.key.metric.namespace}/{distribution.key.metric.name}"
            value = distribution.result
            found[name] = {"count": value.count, "mean": value.mean, "max": value.max}
    return found
