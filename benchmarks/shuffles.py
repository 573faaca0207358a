"""Counts what a pipeline on the local runner moves between steps, and the files that it reads.

The local runner keeps what goes from one stage to the next in its own buffers. Their content is counted in the bytes of
Beam's coders, which any engine would move. A combine is counted after lifting, as on any engine. With a runner that
fuses no steps, this is all that goes between any two steps.
"""

import contextlib
import dataclasses
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from apache_beam.coders.coder_impl import create_InputStream
from apache_beam.io.filesystems import FileSystems
from apache_beam.runners.portability.fn_api_runner import execution, fn_runner

from sbert_core.data.manifest import MANIFEST, is_part_name

# Labels of Beam's own steps within ours.
_INNER = re.compile(
    r"(CombinePerKey|ReshufflePerKey|GroupByKey|Group|InjectDefault|KeyWithVoid|UnKey|DoOnce|Impulse|AddRandomKeys"
    r"|RemoveRandomKeys|MaybeReshuffle|Flatten|Read|Write|\d+)$|CombineGlobally\(|CoGroupByKeyImpl|FlatMap\(|Map\("
)
_WORK_FOLDER = re.compile(r"/_(mine|cluster|work)/")
_NUMBER = re.compile(r"(_[0-9a-f]{8})?[-.].*")


@dataclasses.dataclass
class Moved:
    """What went through one step."""

    elements: int = 0
    bytes: int = 0
    largest: int = 0  # bytes of the largest element

    def add(self, elements_data: Any, coder: Any) -> None:
        """Counts some elements that a coder has encoded one after the other."""
        stream = create_InputStream(elements_data)
        while left := stream.size():
            coder.decode_from_stream(stream, True)
            self.elements += 1
            self.largest = max(self.largest, left - stream.size())
        self.bytes += len(elements_data)


@dataclasses.dataclass
class Counts:
    """What the pipelines of a context have moved; steps by their label, without Beam's own inner ones."""

    shuffles: dict[str, Moved] = dataclasses.field(default_factory=dict)
    collections: dict[str, Moved] = dataclasses.field(default_factory=dict)  # handed over without a shuffle
    side_inputs: dict[str, int] = dataclasses.field(default_factory=dict)  # bytes of the largest of each consumer
    gathered: dict[str, int] = dataclasses.field(default_factory=dict)  # bytes that one worker gets in one piece
    driver_bytes: int = 0  # read from files outside of pipelines
    opened: Counter[str] = dataclasses.field(default_factory=Counter)  # files read in pipelines, by kind
    read_bytes: Counter[str] = dataclasses.field(default_factory=Counter)  # from them
    written: Counter[str] = dataclasses.field(default_factory=Counter)  # files written in pipelines, by kind
    listings: int = 0  # of folders, in pipelines
    running: bool = False

    @property
    def moved(self) -> dict[str, Moved]:
        """All that went from one stage to another, by step."""
        return {step: each for kind in (self.collections, self.shuffles) for step, each in kind.items()}


class _CountingGroups(execution.GroupingBuffer):
    moved: Moved | None = None

    def append(self, elements_data: bytes) -> None:
        super().append(elements_data)
        if self.moved is not None:
            self.moved.add(elements_data, self._pre_grouped_coder.get_impl())


class _CountingList(execution.ListBuffer):
    moved: Moved | None = None

    def append(self, element: bytes) -> None:
        super().append(element)
        if self.moved is not None:
            self.moved.add(element, self._coder_impl)


class _CountingFile:
    """Counts the bytes that are read from a file."""

    def __init__(self, file: Any, count: Callable[[int], None]) -> None:
        self._file = file
        self._count = count

    def read(self, *arguments: Any) -> bytes:
        content: bytes = self._file.read(*arguments)
        self._count(len(content))
        return content

    def readinto(self, buffer: Any) -> int:
        size: int = self._file.readinto(buffer)
        self._count(size)
        return size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "_CountingFile":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


@contextlib.contextmanager
def count_moves() -> Iterator[Counts]:
    """Counts for all pipelines that run on a local runner of this process, in one worker, within the context."""
    counts = Counts()
    with _counted_buffers(counts), _counted_files(counts):
        yield counts


@contextlib.contextmanager
def _counted_buffers(counts: Counts) -> Iterator[None]:
    get_buffer = execution.BundleContextManager.get_buffer
    commit = execution.FnApiRunnerExecutionContext.commit_side_inputs_to_state

    def counted_buffer(self: Any, buffer_id: bytes, transform_id: str) -> Any:
        buffer = get_buffer(self, buffer_id, transform_id)
        if isinstance(buffer, _CountingGroups | _CountingList) and buffer.moved is None:
            kind = counts.shuffles if isinstance(buffer, _CountingGroups) else counts.collections
            # A grouping is named by its own label, a collection by the step that it comes from.
            is_group = isinstance(buffer, _CountingGroups)
            name = transform_id.removesuffix("/Write") if is_group else _producer(self, transform_id)
            buffer.moved = kind.setdefault(step_of(name), Moved())
        return buffer

    def counted_commit(self: Any, data_side_input: Any) -> None:
        for (consumer, _), (buffer_id, _) in data_side_input.items():
            size = sum(map(len, self.pcoll_buffers.get(buffer_id, ())))
            # Beam's own way to emit a combined value if there is one, and its default if not.
            kind = counts.gathered if consumer.endswith("/InjectDefault") else counts.side_inputs
            kind[step_of(consumer)] = max(size, kind.get(step_of(consumer), 0))
        commit(self, data_side_input)

    with (
        mock.patch.object(execution, "GroupingBuffer", _CountingGroups),
        mock.patch.object(execution, "ListBuffer", _CountingList),
        mock.patch.object(execution.BundleContextManager, "get_buffer", counted_buffer),
        mock.patch.object(execution.FnApiRunnerExecutionContext, "commit_side_inputs_to_state", counted_commit),
    ):
        yield


@contextlib.contextmanager
def _counted_files(counts: Counts) -> Iterator[None]:
    run, open_file, create = fn_runner.FnApiRunner.run_pipeline, FileSystems.open, FileSystems.create
    match, iterate = FileSystems.match, Path.iterdir
    lock = threading.Lock()  # footers are read in threads

    def marked_run(self: Any, *arguments: Any) -> Any:
        counts.running = True
        try:
            return run(self, *arguments)
        finally:
            counts.running = False

    def count_read(kind: str, size: int) -> None:
        with lock:
            counts.read_bytes[kind] += size

    def count_driver(size: int) -> None:
        with lock:
            counts.driver_bytes += size

    def counted_open(path: str, *arguments: Any, **options: Any) -> Any:
        file = open_file(path, *arguments, **options)
        if not counts.running:
            return _CountingFile(file, count_driver)
        kind = kind_of_file(path)
        with lock:
            counts.opened[kind] += 1
        return _CountingFile(file, lambda size: count_read(kind, size))

    def counted_create(path: str, *arguments: Any, **options: Any) -> Any:
        with lock:
            counts.written[kind_of_file(path)] += counts.running
        return create(path, *arguments, **options)

    def counted_match(patterns: list[str], *arguments: Any, **options: Any) -> Any:
        counts.listings += counts.running * len(patterns)
        return match(patterns, *arguments, **options)

    def counted_iterate(self: Path) -> Any:
        counts.listings += counts.running
        return iterate(self)

    with (
        mock.patch.object(fn_runner.FnApiRunner, "run_pipeline", marked_run),
        mock.patch.object(FileSystems, "open", counted_open),
        mock.patch.object(FileSystems, "create", counted_create),
        mock.patch.object(FileSystems, "match", counted_match),
        mock.patch.object(Path, "iterdir", counted_iterate),
    ):
        yield


def kind_of_file(path: str) -> str:
    """What a file is for: "part" of a dataset, "manifest", "ordinals", "work tile" and so on, or "input"."""
    name = path.rsplit("/", 1)[-1].removeprefix(".")  # a file that is being written begins with a dot
    if name.startswith(MANIFEST):
        return "manifest"
    if "/_ordinals/" in path:
        return f"ordinals {_NUMBER.sub('', name)}"
    if _WORK_FOLDER.search(path):
        return f"work {_NUMBER.sub('', name)}"
    return "part" if is_part_name(re.sub(r"(\.parquet)\.[0-9a-f]{32}\.tmp$", r"\1", name)) else "input"


def _producer(context: Any, transform_id: str) -> str:
    """The name of the step whose output a stage writes to a buffer, with the tag of the output if it has one."""
    transforms = context.process_bundle_descriptor.transforms
    collections = set(transforms[transform_id].inputs.values())
    for each in transforms.values():
        for tag, collection in each.outputs.items():
            if collection in collections:
                is_tagged = len(each.outputs) > 1 and tag != "None"
                return f"{each.unique_name}/[{tag}]" if is_tagged else str(each.unique_name)
    return transform_id


def step_of(name: str) -> str:
    """The label of our step: `WriteEmbeddings/AllParts` of `WriteEmbeddings/AllParts/AllParts/CombinePerKey`."""
    labels = list(dict.fromkeys(name.split("/")))
    inner = [place for place, label in enumerate(labels) if place and _INNER.match(label)]
    return "/".join(labels[: inner[0]] if inner else labels)
