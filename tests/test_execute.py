"""Which engine a job gets, and how a failure of it is told."""

import re
import socket

import apache_beam as beam
import pytest
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.runner import PipelineResult, PipelineRunner, PipelineState

from pipelines import signals
from pipelines.cli import main
from pipelines.execute import execute, new_pipeline
from pipelines.local_runner import LocalRunner, describe_exit
from sbert_core.errors import DataError, JobError

BROKEN = [
    (["--runner=DaskRunner"], "writes nothing"),
    (["--runner", "dask"], "writes nothing"),
    (["--runner=apache_beam.runners.dask.dask_runner.DaskRunner"], "writes nothing"),
    (["--runner=beam_pyspark_runner.pyspark_runner.PySparkRunner"], "guarantees"),
    (["--runner=ray_beam_runner.portability.ray_runner.RayFnApiRunner"], "guarantees"),
    (["--runner=RayRunner"], "guarantees"),
    (["--direct_running_mode=multi_threading"], "loses rows: use processes, with --workers"),
    (["--runner=FnApiRunner", "--direct_running_mode", "multi_threading"], "with --workers"),
    (["--direct_num_workers=4"], "use --workers"),
    (["--experiments=data_buffer_time_limit_ms=100"], "leave it out"),
    (["--experiments=beam_fn_api,data_buffer_time_limit_ms=100"], "leave it out"),
    (["--runner=NoRunner"], "Unexpected pipeline runner: NoRunner"),
    (["--runner=no.such.Runner"], "No module named 'no'"),
    (["--runner=apache_beam.NoRunner"], "no attribute 'NoRunner'"),
    (["--runner=DataflowRunner"], "Missing required option: project"),
    (["--runner=PortableRunner", "--job_endpoint=127.0.0.1:1"], "no job service answers there"),
    (["--runner=PortableRunner", "--job_endpoint=nowhere"], "no job service answers there"),
]


@pytest.mark.parametrize(("flags", "reason"), BROKEN)
def test_broken_engines_are_refused(flags, reason):
    with pytest.raises(DataError, match=reason) as refused:
        new_pipeline(flags, workers=1)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["Dask", "beam_pyspark_runner.PySpark", "ray_beam_runner.Ray"])
def test_a_refusal_names_what_to_use_instead(name):
    with pytest.raises(DataError, match=f"--runner={name}Runner .*: leave --runner out .* PortableRunner"):
        new_pipeline([f"--runner={name}Runner"], workers=1)


def test_a_refusal_is_one_line_and_nothing_is_written(tmp_path, capsys):
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    output = tmp_path / "out"
    for job in ("embed", "run"):
        command = [job, "--input", str(tmp_path / "in.txt"), "--output", str(output), "--runner=DaskRunner"]
        assert main(command) == 2
        (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("sbert-beam")]
        assert line.startswith(f"sbert-beam {job}: --runner=DaskRunner reports success and writes nothing: ")
    assert not [path for path in output.rglob("*") if path.is_file()]


def test_a_dry_run_is_no_job(tmp_path, capsys):
    (tmp_path / "in.txt").write_text("one\n")
    command = ["embed", "--input", str(tmp_path / "in.txt"), "--output", str(tmp_path / "out"), "--dry_run=True"]
    assert main(command) == 2
    assert "there would be no result" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


LOCAL = [
    "FnApiRunner",
    "fnapi",
    "DirectRunner",
    "direct",
    "apache_beam.runners.direct.direct_runner.SwitchingDirectRunner",
    "apache_beam.runners.portability.fn_api_runner.FnApiRunner",
]


@pytest.mark.parametrize("flags", [[], *([f"--runner={name}"] for name in LOCAL)])
@pytest.mark.parametrize("workers", [1, 3])
def test_this_machine_by_any_name(flags, workers):
    root = new_pipeline(flags, workers)
    options = root._options.get_all_options()
    assert type(root.runner) is LocalRunner
    assert options["direct_num_workers"] == workers
    assert options["direct_running_mode"] == ("multi_processing" if workers > 1 else "in_memory")


def test_other_runners_are_taken_as_they_are_named():
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"--job_endpoint=127.0.0.1:{server.getsockname()[1]}"
        assert type(new_pipeline(["--runner=PortableRunner", endpoint], 1).runner) is PortableRunner
    assert type(new_pipeline([f"--runner={__name__}.CancellingRunner"], 1).runner).__name__ == "CancellingRunner"


class CancellingRunner(PipelineRunner):
    """Ends every job before it is done, and raises nothing."""

    def run_pipeline(self, pipeline, options) -> PipelineResult:
        result = PipelineResult(PipelineState.CANCELLED)
        result.wait_until_finish = lambda: PipelineState.CANCELLED
        return result


def test_a_job_that_was_cancelled_has_failed():
    with pytest.raises(JobError, match=r"ended the job as CANCELLED\. Go on"):
        execute(beam.Pipeline(CancellingRunner()), lambda: ". Go on")


class RemoteResult(PipelineResult):
    """A job that runs elsewhere, and that somebody stops waiting for."""

    def __init__(self, wait, can_cancel: bool) -> None:
        super().__init__(PipelineState.RUNNING)
        self._wait, self._can_cancel, self.job_id = wait, can_cancel, "job-7"

    def wait_until_finish(self, duration=None):
        self._wait()
        return self.state

    def cancel(self):
        if not self._can_cancel:
            raise NotImplementedError("no such thing here\nat all")
        self._state = PipelineState.CANCELLED


class RemoteRunner(PipelineRunner):
    def __init__(self, result: PipelineResult) -> None:
        self._result = result

    def run_pipeline(self, pipeline, options) -> PipelineResult:
        return self._result


CANCELLED = [
    (True, "the job was cancelled"),
    (False, "the job job-7 still runs on RemoteRunner, cancel it there (no such thing here)"),
]


@pytest.mark.parametrize(("can_cancel", "told"), CANCELLED)
def test_a_remote_job_is_cancelled_when_the_wait_is_interrupted(can_cancel, told):
    def wait():
        raise KeyboardInterrupt

    result = RemoteResult(wait, can_cancel)
    with pytest.raises(KeyboardInterrupt) as stopped:
        execute(beam.Pipeline(RemoteRunner(result)), str)
    assert str(stopped.value) == told
    assert (result.state == PipelineState.CANCELLED) == can_cancel


@pytest.mark.parametrize(("can_cancel", "told"), CANCELLED)
def test_a_remote_job_is_cancelled_by_a_signal(can_cancel, told, monkeypatch):
    """The thread that a signal wakes runs the same clean-up while the main thread waits."""
    notes: list[str] = []
    monkeypatch.setattr(signals, "run_exit_handlers", lambda: None)
    result = RemoteResult(lambda: signals._clean_up(notes), can_cancel)
    with pytest.raises(JobError, match="ended the job as"):
        execute(beam.Pipeline(RemoteRunner(result)), str)
    assert notes == [told]
    signals._clean_up(notes)
    assert notes == [told]  # after the wait there is nothing to cancel


@pytest.mark.parametrize(
    ("code", "said", "told"),
    [
        (-9, "", r"was killed \(signal 9\), probably because the machine is out of memory"),
        (-11, "", r"was ended by signal 11 \(Segmentation fault\)"),
        (1, "first\nImportError: no torch", "ended with exit code 1: ImportError: no torch"),
    ],
)
def test_how_a_worker_ended(code, said, told):
    assert re.match(told, describe_exit(code, said))


def _fail(message: str) -> None:
    raise DataError(message) if message.startswith("data") else RuntimeError(message)


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("data are wrong", "data are wrong"),
        ("disk is full", "RuntimeError: disk is full. Go on"),
        ("disk is full.", "RuntimeError: disk is full. Go on"),
    ],
)
def test_a_failure_is_its_reason_and_advice_where_it_helps(message, told):
    root = new_pipeline([], 1)
    _ = root | beam.Create([message]) | beam.Map(_fail)
    with pytest.raises(JobError) as failed:
        execute(root, lambda: ". Go on")
    assert str(failed.value) == told


class JavaRunner(PipelineRunner):
    """Fails as an engine in Java does: with its own exceptions around the worker's."""

    def run_pipeline(self, pipeline, options) -> PipelineResult:
        raise RuntimeError(
            "Pipeline failed in state FAILED: java.lang.RuntimeException: Error received from SDK harness\n"
            "Traceback (most recent call last):\n"
            '  File "write.py", line 118, in write_manifest\n'
            "sbert_core.errors.DataError: ids are not unique [while running 'Commit']\n"
            "\tat org.apache.beam.runners.fnexecution.control.FnApiControlClient.handle\n"
            "java.util.concurrent.ExecutionException: java.lang.RuntimeException: task failed\n"
        )


def test_our_reason_is_found_among_those_of_an_engine():
    with pytest.raises(JobError) as failed:
        execute(beam.Pipeline(JavaRunner()), lambda: ". Go on")
    assert str(failed.value) == "ids are not unique"


def test_counters_of_ours_are_returned():
    root = new_pipeline([], 1)

    def count(number: int) -> None:
        beam.metrics.Metrics.counter("read", "rows").inc(number)
        beam.metrics.Metrics.counter("elsewhere", "rows").inc(number)
        beam.metrics.Metrics.distribution("encode", "size").update(number)

    _ = root | beam.Create([1, 2, 6]) | beam.Map(count)
    assert execute(root, str) == {"read/rows": 9, "encode/size": {"count": 3, "mean": 3.0, "max": 6}}
