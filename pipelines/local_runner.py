"""The runner for this machine: Beam's in-process runner, with worker processes that do not outlive or block a run.

Beam's own worker processes continue to write after the driver was killed, and the driver waits forever after one of
them was killed. Here each side watches the other: see also `pipelines.worker`.
"""

import contextlib
import itertools
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import grpc
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions, S3Options
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_fn_api_pb2, beam_provision_api_pb2
from apache_beam.runners.portability.fn_api_runner import fn_runner, worker_handlers
from google.protobuf import struct_pb2, text_format

from sbert_core.errors import JobError

URN = "sbert_beam:env:worker_process:v1"
_EXIT_SECONDS = 10  # for an idle worker to end after the last request
_groups: dict[bytes, "_WorkerGroup"] = {}
_numbers = itertools.count()


class WorkerLostError(JobError):
    """A worker process ended before its work was done."""


class LocalRunner(fn_runner.FnApiRunner):
    """Runs a pipeline here; with `direct_running_mode=multi_processing` in worker processes."""

    def __init__(self) -> None:
        options = struct_pb2.Struct()
        options["default_sdk_harness_log_level"] = "CRITICAL"  # what matters is raised
        info = beam_provision_api_pb2.ProvisionInfo(pipeline_options=options)
        super().__init__(provision_info=fn_runner.ExtendedProvisionInfo(info))

    def run_via_runner_api(self, pipeline_proto: Any, options: PipelineOptions) -> fn_runner.RunnerResult:
        """Runs with our worker processes in place of Beam's; they get the options of file systems."""
        for kind in (S3Options, GoogleCloudOptions):
            given = options.view_as(kind).get_all_options(drop_default=True, current_only=True)
            self._provision_info.provision_info.pipeline_options.update(given)
        name = b"%d" % next(_numbers)
        group = _groups[name] = _WorkerGroup()
        for environment in pipeline_proto.components.environments.values():
            if environment.urn == python_urns.SUBPROCESS_SDK:
                environment.urn, environment.payload = URN, name
        try:
            with _quiet_threads():
                return super().run_via_runner_api(pipeline_proto, options)
        except Exception as error:
            if group.failure:
                raise WorkerLostError(group.failure) from error
            raise
        finally:
            del _groups[name]


class _WorkerGroup:
    """The worker processes of one run: if one is lost, the run fails and all are ended."""

    def __init__(self) -> None:
        self.failure = ""
        self._members: list[_ProcessHandler] = []
        self._lock = threading.Lock()

    def add(self, member: "_ProcessHandler") -> None:
        with self._lock:
            self._members.append(member)

    def fail(self, reason: str) -> None:
        with self._lock:
            if self.failure:
                return
            self.failure = reason
            members = list(self._members)
        for member in members:
            member.abort(reason)


class _Connection(worker_handlers.ControlConnection):
    """A control connection that can fail: all requests, pending and later ones, are then answered with the reason."""

    def __init__(self) -> None:
        super().__init__()
        self._failure = ""

    @property
    def is_busy(self) -> bool:
        """Whether a request is pending."""
        return bool(self._futures_by_id)

    def push(self, req: Any) -> Any:
        future = super().push(req)
        if self._failure:
            self.fail(self._failure)
        return future

    def fail(self, reason: str) -> None:
        self._failure = reason
        for name in list(self._futures_by_id):
            if future := self._futures_by_id.pop(name, None):
                # An error response as from the worker: an exception would not end the wait for the bundle's data.
                future.set(beam_fn_api_pb2.InstructionResponse(instruction_id=name, error=reason))

    def _read(self) -> None:
        with contextlib.suppress(grpc.RpcError, KeyError):  # the process is gone, which `_watch` reports
            super()._read()

    def finish(self) -> None:
        """Sends the marker that there is no more work; does not wait."""
        self.push(worker_handlers.BeamFnControlServicer._DONE_MARKER)


@worker_handlers.WorkerHandler.register_environment(URN, bytes)
class _ProcessHandler(worker_handlers.GrpcWorkerHandler):
    """Starts a worker process, watches it, and ends it with the run."""

    def __init__(self, group: bytes, state: Any, provision_info: Any, grpc_server: Any) -> None:
        super().__init__(state, provision_info, grpc_server)
        self._group = _groups[group]
        self._closing = threading.Event()
        self._drained = threading.Event()
        self.control_conn: _Connection = _Connection()
        # The process is not started yet, so the connection of this worker was not looked up before.
        grpc_server.control_handler._connections_by_worker_id[self.worker_id] = self.control_conn

    def start_worker(self) -> None:
        """Starts the process, with the module search path of this one."""
        control, logs = self.control_api_service_descriptor(), self.logging_api_service_descriptor()
        environment = {
            **os.environ,
            "CONTROL_API_SERVICE_DESCRIPTOR": text_format.MessageToString(control),
            "LOGGING_API_SERVICE_DESCRIPTOR": text_format.MessageToString(logs),
            "PIPELINE_OPTIONS": _options_json(self.provision_info.provision_info),
            "WORKER_ID": self.worker_id,
            "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),  # noqa: PTH109
            "PYTHONSAFEPATH": "1",  # the current directory is not searched for modules
        }
        with worker_handlers.SUBPROCESS_LOCK:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sbert_beam.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                process_group=0,  # Ctrl-C in a terminal reaches this process alone, which ends the others
            )
        self._watcher = threading.Thread(target=self._watch, name=f"watch-{self.worker_id}", daemon=True)
        self._watcher.start()
        self._group.add(self)

    def _watch(self) -> None:
        assert self._process.stdout is not None
        reason = self._process.stdout.read().decode(errors="replace").strip()  # until the process ends
        code = self._process.wait()
        if not self._closing.is_set():
            self._group.fail(f"worker process {self._process.pid} {describe_exit(code, reason)}")

    def abort(self, reason: str) -> None:
        """Kills this process, because another worker process of the run was lost."""
        self._closing.set()
        self._process.kill()
        self.control_conn.fail(reason)
        threading.Thread(target=self._drain, daemon=True).start()

    def _drain(self) -> None:
        """Discards data for the dead process: threads that add to a full queue would wait forever."""
        while not self._drained.is_set():
            with contextlib.suppress(queue.Empty):
                self.data_conn._to_send.get(timeout=0.2)

    def close(self) -> None:
        """Ends the process; one with pending requests belongs to a run that failed, and is killed."""
        self._closing.set()
        if self.control_conn.is_busy:
            self._process.kill()
        self.control_conn.finish()
        try:
            self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._watcher.join(_EXIT_SECONDS)
        with contextlib.suppress(Exception):  # a broken connection; if it matters, `_watch` reports it
            self.data_conn.close()
        self._drained.set()
        # Once more, because the end marker for the sending thread may have been drained.
        self.data_conn._to_send.put(self.data_conn._WRITES_FINISHED, 0)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()


def describe_exit(code: int, reason: str = "") -> str:
    """How a process ended, from its exit code and the last line that it wrote."""
    if code == -signal.SIGKILL:
        cause = "probably because the machine is out of memory: use fewer --workers or more memory"
        return f"was killed (signal 9), {cause}"
    if code < 0:
        return f"was ended by signal {-code} ({signal.strsignal(-code)})"
    return f"ended with exit code {code}" + (f": {reason.splitlines()[-1]}" if reason else "")


def _options_json(info: beam_provision_api_pb2.ProvisionInfo) -> str:
    from google.protobuf import json_format

    return json_format.MessageToJson(info.pipeline_options)


@contextlib.contextmanager
def _quiet_threads() -> Iterator[None]:
    """Keeps Beam's threads from printing a traceback when a connection to a worker breaks."""
    original = threading.excepthook

    def hook(args: Any) -> None:
        if not isinstance(args.exc_value, grpc.RpcError):
            original(args)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = original
