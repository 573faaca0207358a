"""Counts what a pipeline on the local runner shuffles, passes as side inputs, and reads on the driver.

The local runner groups in its own buffers. Their content is counted in the bytes of Beam's coders, which any engine
would move. A combine is counted after lifting, as on any engine.
"""

import contextlib
import dataclasses
import re
from collections.abc import Iterator
from typing import Any
from unittest import mock

from apache_beam.io.filesystems import FileSystems
from apache_beam.runners.portability.fn_api_runner import execution, fn_runner

_INNER = re.compile(r"(CombinePerKey|ReshufflePerKey|GroupByKey|Group|InjectDefault)$|CombineGlobally\(")


@dataclasses.dataclass
class Moved:
    """What went through one step."""

    elements: int = 0
    bytes: int = 0


@dataclasses.dataclass
class Counts:
    """What the pipelines of a context have moved; steps by their label, without Beam's own inner ones."""

    shuffles: dict[str, Moved] = dataclasses.field(default_factory=dict)
    side_inputs: dict[str, int] = dataclasses.field(default_factory=dict)  # bytes of the largest of each consumer
    gathered: dict[str, int] = dataclasses.field(default_factory=dict)  # bytes that one worker gets in one piece
    driver_bytes: int = 0  # read from files outside of pipelines
    running: bool = False


class _CountingBuffer(execution.GroupingBuffer):
    moved: Moved | None = None

    def append(self, elements_data: bytes) -> None:
        before = sum(map(len, self._table.values()))
        super().append(elements_data)
        if self.moved is not None:
            self.moved.elements += sum(map(len, self._table.values())) - before
            self.moved.bytes += len(elements_data)


class _CountingFile:
    """Counts the bytes that are read from a file."""

    def __init__(self, file: Any, counts: Counts) -> None:
        self._file = file
        self._counts = counts

    def read(self, *arguments: Any) -> bytes:
        content: bytes = self._file.read(*arguments)
        self._counts.driver_bytes += len(content)
        return content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "_CountingFile":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


@contextlib.contextmanager
def count_moves() -> Iterator[Counts]:
    """Counts for all pipelines that run on the local runner of this process, in one worker, within the context."""
    counts = Counts()
    get_buffer = execution.BundleContextManager.get_buffer
    commit = execution.FnApiRunnerExecutionContext.commit_side_inputs_to_state
    run, open_file = fn_runner.FnApiRunner.run_pipeline, FileSystems.open

    def counted_buffer(self: Any, buffer_id: bytes, transform_id: str) -> Any:
        buffer = get_buffer(self, buffer_id, transform_id)
        if isinstance(buffer, _CountingBuffer) and buffer.moved is None:
            buffer.moved = counts.shuffles.setdefault(step_of(transform_id.removesuffix("/Write")), Moved())
        return buffer

    def counted_commit(self: Any, data_side_input: Any) -> None:
        for (consumer, _), (buffer_id, _) in data_side_input.items():
            size = sum(map(len, self.pcoll_buffers.get(buffer_id, ())))
            # Beam's own way to emit a combined value if there is one, and its default if not.
            kind = counts.gathered if consumer.endswith("/InjectDefault") else counts.side_inputs
            kind[step_of(consumer)] = max(size, kind.get(step_of(consumer), 0))
        commit(self, data_side_input)

    def marked_run(self: Any, *arguments: Any) -> Any:
        counts.running = True
        try:
            return run(self, *arguments)
        finally:
            counts.running = False

    def counted_open(*arguments: Any, **options: Any) -> Any:
        file = open_file(*arguments, **options)
        return file if counts.running else _CountingFile(file, counts)

    with (
        mock.patch.object(execution, "GroupingBuffer", _CountingBuffer),
        mock.patch.object(execution.BundleContextManager, "get_buffer", counted_buffer),
        mock.patch.object(execution.FnApiRunnerExecutionContext, "commit_side_inputs_to_state", counted_commit),
        mock.patch.object(fn_runner.FnApiRunner, "run_pipeline", marked_run),
        mock.patch.object(FileSystems, "open", counted_open),
    ):
        yield counts


def step_of(name: str) -> str:
    """The label of our step: `WriteEmbeddings/AllParts` of `WriteEmbeddings/AllParts/AllParts/CombinePerKey`."""
    labels = list(dict.fromkeys(name.split("/")))
    inner = [place for place, label in enumerate(labels) if _INNER.match(label)]
    return "/".join(labels[: inner[0]] if inner else labels)
