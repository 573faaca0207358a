"""The runner for this machine: Beam's in-process runner, with worker processes that do not outlive or block a run.

Beam's own worker processes continue to write after the driver was killed, and the driver waits forever after one of
them was killed. Here each side watches the other: see also `pipelines.watched_workers` and `pipelines.worker`.
"""

import os
import signal
import subprocess
import sys
import threading
from typing import Any

from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions, S3Options
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners.portability.fn_api_runner import fn_runner, worker_handlers
from google.protobuf import json_format, struct_pb2, text_format

from pipelines.stage_order import OrderedRunner
from pipelines.watched_workers import WatchedHandler, WorkerGroup, watching

URN = "sbert_beam:env:worker_process:v1"
_EXIT_SECONDS = 10  # for an idle worker to end after the last request


class LocalRunner(OrderedRunner):
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
        with watching(WorkerGroup()) as group:
            for environment in pipeline_proto.components.environments.values():
                if environment.urn == python_urns.SUBPROCESS_SDK:
                    environment.urn, environment.payload = URN, group
            return super().run_via_runner_api(pipeline_proto, options)


@worker_handlers.WorkerHandler.register_environment(URN, bytes)
class _ProcessHandler(WatchedHandler):
    """Starts a worker process, watches it, and ends it with the run."""

    def start_worker(self) -> None:
        """Starts the process, with the module search path of this one."""
        control, logs = self.control_api_service_descriptor(), self.logging_api_service_descriptor()
        environment = {
            **os.environ,
            "CONTROL_API_SERVICE_DESCRIPTOR": text_format.MessageToString(control),
            "LOGGING_API_SERVICE_DESCRIPTOR": text_format.MessageToString(logs),
            "PIPELINE_OPTIONS": json_format.MessageToJson(self.provision_info.provision_info.pipeline_options),
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

    def end_worker(self) -> None:
        """Kills this process."""
        self._closing.set()
        self._process.kill()

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
        self.close_data()
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
