"""Workers of a run that are watched: if one of them is lost, the run fails at once, and the others are ended.

Beam's own runner may wait forever for a worker that was killed. `pipelines.local_runner` and `pipelines.job_service`
start their workers differently and watch them with what is here.
"""

import contextlib
import itertools
import queue
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.portability.fn_api_runner import worker_handlers

from sbert_core.errors import JobError

_groups: dict[bytes, "WorkerGroup"] = {}
_numbers = itertools.count()


class WorkerLostError(JobError):
    """A worker ended before its work was done."""


class WorkerGroup:
    """The workers of one run: if one is lost, the run fails and all are ended."""

    def __init__(self) -> None:
        self.failure = ""
        self._members: list[WatchedHandler] = []
        self._lock = threading.Lock()

    def add(self, member: "WatchedHandler") -> None:
        """Adds a worker that was started."""
        with self._lock:
            self._members.append(member)
            failure = self.failure
        if failure:  # while the worker was being started
            member.end_worker()
            member.abort(failure)

    def fail(self, reason: str) -> None:
        """Ends all workers, then answers their requests with the reason: nothing is written after the run has ended."""
        with self._lock:
            if self.failure:
                return
            self.failure = reason
            members = list(self._members)
        for member in members:
            member.end_worker()
        for member in members:
            member.abort(reason)


@contextlib.contextmanager
def watching(group: WorkerGroup) -> Iterator[bytes]:
    """The name under which handlers find the group; within the block, a lost worker is a WorkerLostError."""
    name = b"%d" % next(_numbers)
    _groups[name] = group
    try:
        with quiet_threads():
            yield name
    except Exception as error:
        if group.failure:
            raise WorkerLostError(group.failure) from error
        raise
    finally:
        del _groups[name]


class _Connection(worker_handlers.ControlConnection):
    """A control connection that can fail: all requests, pending and later ones, are then answered with the reason."""

    def __init__(self, when_broken: Callable[[], None]) -> None:
        super().__init__()
        self._failure = ""
        self._when_broken = when_broken
        self.is_connected = threading.Event()

    @property
    def is_busy(self) -> bool:
        """Whether a request is pending."""
        return bool(self._futures_by_id)

    def set_input(self, responses: Any) -> None:
        self.is_connected.set()
        super().set_input(responses)

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
        with contextlib.suppress(grpc.RpcError, KeyError):  # the worker is gone
            super()._read()
        self._when_broken()

    def finish(self) -> None:
        """Sends the marker that there is no more work; does not wait."""
        self.push(worker_handlers.BeamFnControlServicer._DONE_MARKER)


class WatchedHandler(worker_handlers.GrpcWorkerHandler):
    """What the runner has of a worker. A subclass starts the worker, notices that it is lost, and ends it."""

    control_conn: _Connection

    def __init__(self, group: bytes, state: Any, provision_info: Any, grpc_server: Any) -> None:
        super().__init__(state, provision_info, grpc_server)
        self._group = _groups[group]
        self._closing = threading.Event()
        self._drained = threading.Event()
        # Beam counts workers in each process. A pool may serve several processes, and knows a worker by its name only.
        self.worker_id: str = f"worker_{uuid.uuid4().hex}"
        self.control_conn = _Connection(self.connection_broke)
        grpc_server.control_handler._connections_by_worker_id[self.worker_id] = self.control_conn
        self.data_conn = grpc_server.data_plane_handler.get_conn_by_worker_id(self.worker_id)

    def connection_broke(self) -> None:
        """Called when the control connection ends, also at the normal end of a run."""

    def end_worker(self) -> None:
        """Ends the worker, whatever it does; a worker that is gone is not an error."""
        raise NotImplementedError

    def abort(self, reason: str) -> None:
        """Answers all requests to this worker with the reason."""
        self._closing.set()
        self.control_conn.fail(reason)
        threading.Thread(target=self._drain, daemon=True).start()

    def _drain(self) -> None:
        """Discards data for the dead worker: threads that add to a full queue would wait forever."""
        while not self._drained.is_set():
            with contextlib.suppress(queue.Empty):
                self.data_conn._to_send.get(timeout=0.2)

    def close_data(self) -> None:
        """Closes the data connection when the worker has ended."""
        with contextlib.suppress(Exception):  # a broken connection; if it matters, it was noticed
            self.data_conn.close()
        self._drained.set()
        # Once more, because the end marker for the sending thread may have been drained.
        self.data_conn._to_send.put(self.data_conn._WRITES_FINISHED, 0)


@contextlib.contextmanager
def quiet_threads() -> Iterator[None]:
    """Keeps Beam's threads from printing a traceback when a connection breaks."""
    original = threading.excepthook

    def hook(args: Any) -> None:
        if not isinstance(args.exc_value, grpc.RpcError):
            original(args)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = original
