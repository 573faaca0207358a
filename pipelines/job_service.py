"""A job service for external workers that notices when a worker is lost: `python -m sbert_beam.job_service`.

It takes the place of Beam's `local_job_service_main`, which gives a job one worker, may wait forever after that worker
was killed, and lets workers continue to write after their job was cancelled. A job here has `--workers` of them; if the
connection to one breaks, all are ended and the job fails. Nothing is retried: the jobs themselves continue from what
they have stored.
"""

import argparse
import contextlib
import functools
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

import grpc
from apache_beam.portability import common_urns
from apache_beam.portability.api import (
    beam_fn_api_pb2,
    beam_fn_api_pb2_grpc,
    beam_job_api_pb2,
    beam_runner_api_pb2,
    endpoints_pb2,
)
from apache_beam.runners.portability import local_job_service
from apache_beam.runners.portability.fn_api_runner import fn_runner, worker_handlers

from pipelines.stage_order import OrderedRunner
from pipelines.watched_workers import WatchedHandler, WorkerGroup, watching

URN = "sbert_beam:env:watched_external:v1"
START_SECONDS = 300  # for a pool to start a worker, which installs packages and imports them
_EXIT_SECONDS = 10  # for an idle worker to end after the last request
_STOP_SECONDS = 30  # for a pool to stop a worker, which it first asks to end


class WatchedJob(local_job_service.BeamJob):
    """A job on external workers; if one is lost, or if the job is cancelled, all of its workers are ended."""

    def __init__(self, *arguments: Any, workers: int) -> None:
        super().__init__(*arguments)
        self._workers = workers
        self._group = WorkerGroup()

    def _invoke_runner(self) -> fn_runner.RunnerResult:
        self.set_state(beam_job_api_pb2.JobState.RUNNING)
        runner = OrderedRunner(provision_info=self._provision_info)
        runner._num_workers = self._workers
        with watching(self._group) as group:
            for environment in self._pipeline_proto.components.environments.values():
                if environment.urn == common_urns.environments.EXTERNAL.urn:
                    environment.urn, environment.payload = URN, group + b" " + environment.payload
            return runner.run_via_runner_api(self._pipeline_proto, self.pipeline_options())

    def cancel(self) -> None:
        """Ends the workers; the job is cancelled when they have ended."""
        if not self.is_terminal_state(self.state):
            self.set_state(beam_job_api_pb2.JobState.CANCELLING)
            self._group.fail("the job was cancelled")
            self.set_state(beam_job_api_pb2.JobState.CANCELLED)

    def set_state(self, new_state: int) -> None:
        """Notes a state. A job that is being cancelled does not fail because its workers are gone."""
        cancel_states = (beam_job_api_pb2.JobState.CANCELLING, beam_job_api_pb2.JobState.CANCELLED)
        if self.state not in cancel_states or new_state == beam_job_api_pb2.JobState.CANCELLED:
            super().set_state(new_state)


@worker_handlers.WorkerHandler.register_environment(URN, bytes)
class _ExternalHandler(WatchedHandler):
    """Asks a pool for a worker, watches the connection to it, and ends it with the run."""

    def __init__(self, payload: bytes, state: Any, provision_info: Any, grpc_server: Any) -> None:
        group, _, external = payload.partition(b" ")
        self._external = beam_runner_api_pb2.ExternalPayload.FromString(external)
        self._address = self._external.endpoint.url
        super().__init__(group, state, provision_info, grpc_server)
        self._channel = grpc.insecure_channel(self._address)
        self._pool = beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub(self._channel)
        self._has_ended = threading.Event()

    def start_worker(self) -> None:
        """Asks the pool; a worker that does not connect in time is lost."""
        control = endpoints_pb2.ApiServiceDescriptor(url=self.control_address)
        request = beam_fn_api_pb2.StartWorkerRequest(
            worker_id=self.worker_id,
            control_endpoint=control,
            artifact_endpoint=control,
            provision_endpoint=control,
            logging_endpoint=self.logging_api_service_descriptor(),
            params=self._external.params,
        )
        try:
            error = self._pool.StartWorker(request, timeout=START_SECONDS).error
        except grpc.RpcError as failure:
            error = failure.details()
        self._group.add(self)
        if error:
            reason = (error.splitlines() or ["no reason given"])[-1]
            self._group.fail(f"no worker was started at --environment_config={self._address}: {reason}")
        else:
            threading.Thread(target=self._await_connection, daemon=True).start()

    def _await_connection(self) -> None:
        if not self.control_conn.is_connected.wait(START_SECONDS) and not self._closing.is_set():
            self._group.fail(
                f"a worker of the pool at {self._address} did not connect within {START_SECONDS} s: see the pool's log"
            )

    def connection_broke(self) -> None:
        """Fails the run, unless it is over."""
        self._has_ended.set()
        if not self._closing.is_set():
            self._group.fail(
                f"a worker of the pool at {self._address} was lost: it was killed, perhaps because its machine is out "
                "of memory, or its connection broke"
            )

    def end_worker(self) -> None:
        """Lets the pool stop the worker, which first asks it to end and then kills it."""
        self._closing.set()
        with contextlib.suppress(grpc.RpcError):  # the pool is gone, too
            self._pool.StopWorker(beam_fn_api_pb2.StopWorkerRequest(worker_id=self.worker_id), timeout=_STOP_SECONDS)

    def close(self) -> None:
        """Ends the worker; one with pending requests belongs to a run that failed, and is not waited for."""
        self._closing.set()
        is_idle = self.control_conn.is_connected.is_set() and not self.control_conn.is_busy
        self.control_conn.finish()
        if is_idle:
            self._has_ended.wait(_EXIT_SECONDS)
        self.end_worker()
        self.close_data()
        self._channel.close()

    def host_from_worker(self) -> str:
        """The name of this machine, for the workers to connect to; workers of a pool on this machine need none."""
        is_here = self._address.rpartition(":")[0] in ("localhost", "127.0.0.1", "[::1]")
        return "localhost" if is_here else worker_handlers.ExternalWorkerHandler.host_from_worker(self)


def new_service(workers: int) -> local_job_service.LocalJobServicer:
    """A job service that gives each job so many workers; it listens when `start_grpc_server` is called."""
    return local_job_service.LocalJobServicer(beam_job_type=functools.partial(WatchedJob, workers=workers))


def main(argv: Sequence[str] | None = None) -> None:
    """Serves jobs until the process is stopped."""
    parser = argparse.ArgumentParser(prog="python -m sbert_beam.job_service", description=__doc__, allow_abbrev=False)
    parser.add_argument("--port", type=int, default=8099, help="where jobs are accepted, on this machine only")
    parser.add_argument("--workers", type=int, default=1, help="workers that each job gets from its pool")
    options = parser.parse_args(argv)
    if options.workers < 1:
        parser.error(f"--workers is {options.workers}: a job needs at least 1")
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    service = new_service(options.workers)
    try:
        port = service.start_grpc_server(options.port)
    except RuntimeError as error:
        sys.exit(f"--port {options.port} cannot be used: {error}")
    print(f"job service at localhost:{port}", flush=True)
    stopped.wait()
    for job in list(service._jobs.values()):  # one that still runs would keep this process, and its workers
        job.cancel()
    service.stop()


if __name__ == "__main__":
    main()
