"""The skeleton of a job. A job module defines only what is its own.

A plain job is `check`, `work` and `summary`. A job with a pipeline goes through these steps, under the lock of its
output: `prepare` reads and checks the input, `is_done` finds results that can be kept, `check` fails fast, `build` adds
the steps to the pipeline, which is run, `figures` collects what is shown, and leftovers are deleted.
"""

import abc
import contextlib
import json
import time
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

import apache_beam as beam
from apache_beam.runners.runner import PipelineResult

from pipelines.execute import execute, new_pipeline
from pipelines.flags import JobOptions
from sbert_core.errors import DataError
from sbert_core.process_cache import clear_process_caches
from transforms.dataset.corpus import Corpus
from transforms.dataset.files import check_target, commit, delete_work
from transforms.dataset.lock import lock_output
from transforms.dataset.ordinal_files import folder_name

Figures = dict[str, Any]
"""What a job shows at its end: a name and a value in each line."""

RUN_RECORD = "_run.json"

OptionsT = TypeVar("OptionsT", bound=JobOptions)


class Job(abc.ABC, Generic[OptionsT]):
    """A job that runs in this process, without a pipeline."""

    name: ClassVar[str]
    runs_pipeline: ClassVar[bool] = False

    def __init__(self, options: OptionsT, beam_flags: Sequence[str] = ()) -> None:
        if beam_flags and not self.runs_pipeline:
            raise DataError(f"{self.name} runs no pipeline: {beam_flags[0]} has no effect here")
        self.options = options
        self.beam_flags = tuple(beam_flags)

    def check(self) -> None:
        """Raises an error for what would make the job fail later; writes nothing."""

    @abc.abstractmethod
    def work(self) -> Figures:
        """Does the work and returns the figures."""

    def results(self) -> dict[str, str]:
        """Where the results are, by the name that the summary shows."""
        return {}

    def summary(self, figures: Figures, seconds: float) -> Figures:
        """The figures, the time, and where the results are."""
        return {**figures, "seconds": seconds, **self.results()}

    def run(self) -> Figures:
        """Runs the job and returns its summary."""
        start = time.perf_counter()
        self.check()
        figures = self.work()
        return self.summary(figures, _seconds_since(start))


class PipelineJob(Job[OptionsT]):
    """A job that runs a pipeline and publishes datasets below an output folder."""

    runs_pipeline = True
    is_kept = False
    """Whether the results of an earlier run were kept."""

    def __init__(
        self,
        options: OptionsT,
        beam_flags: Sequence[str] = (),
        *,
        output: str,
        workers: int,
        engine_flags: Sequence[str] = (),
        record_folder: str | None = None,
        work_folder: str | None = None,
        ordinals_folder: str | None = None,
    ) -> None:
        """`options` and Beam's flags as given, and what follows from the options.

        Args:
            options: the options of the job.
            beam_flags: Beam's flags as given.
            output: the folder whose lock the job holds.
            workers: processes per machine.
            engine_flags: Beam's flags that the options ask for.
            record_folder: the dataset that gets `_run.json`, with figures, seconds and counters of this run.
            work_folder: the folder of files that workers keep until the job is done.
            ordinals_folder: the folder that keeps the ordinals of the corpora of the last job, for the next one.
        """
        super().__init__(options, beam_flags)
        self.output = output
        self.workers = workers
        self.engine_flags = tuple(engine_flags)
        self.record_folder = record_folder
        self.work_folder = work_folder
        self.ordinals_folder = ordinals_folder

    @abc.abstractmethod
    def prepare(self) -> None:
        """Reads and checks what the pipeline is built from."""

    def corpora(self) -> Sequence[Corpus]:
        """The corpora whose ordinals are kept for the next job; known after `prepare`."""
        return ()

    def is_done(self) -> bool:
        """Whether the results of an earlier run are there and are what this run would write."""
        return False

    def needed_bytes(self) -> int:
        """A lower bound of the disk space that the results take."""
        return 0

    @abc.abstractmethod
    def build(self, root: beam.Pipeline) -> None:
        """Adds the steps of the job to a pipeline."""

    def progress(self) -> contextlib.AbstractContextManager[Any]:
        """What is shown while the pipeline runs."""
        return contextlib.nullcontext()

    def advice(self) -> str:
        """How to continue after a failure; follows the reason."""
        return ""

    @abc.abstractmethod
    def figures(self, counters: dict[str, Any]) -> Figures:
        """The figures, from the manifests that were written and the counters of the pipeline."""

    def new_pipeline(self) -> beam.Pipeline:
        """An empty pipeline for the engine of this job; an engine that cannot be used is an error."""
        return new_pipeline([*self.beam_flags, *self.engine_flags], self.workers)

    def run(self) -> Figures:
        """Runs the job and returns its summary; `check` comes after `prepare`, and not if results are kept."""
        start = time.perf_counter()
        figures = self.work()
        return self.summary(figures, _seconds_since(start))

    def work(self) -> Figures:
        """Runs the pipeline unless the results are there already."""
        start = time.perf_counter()
        root = self.new_pipeline()
        check_target(self.output)
        with lock_output(self.output, self.name):
            self.prepare()
            self.is_kept = self.is_done()
            if self.is_kept:
                return self.figures({})
            self._check_and_build(root)
            with self.progress():
                counters = execute(root, self.advice)
            clear_process_caches()  # vectors and neighbours are of no use to the next job of `run`
            figures = self.figures(counters)
            if self.record_folder:
                record = {**figures, "seconds": _seconds_since(start), "counters": counters}
                commit(f"{self.record_folder}/{RUN_RECORD}", json.dumps(record, indent=2).encode())
            if self.work_folder:
                delete_work(self.work_folder)
            if self.ordinals_folder:
                delete_work(self.ordinals_folder, keep=[folder_name(corpus) for corpus in self.corpora()])
            return figures

    def submit(self) -> PipelineResult:
        """Checks the input and gives the job to its runner, without waiting, counting, cleaning up or a lock.

        This is all that the launcher of a template may do. It must leave a job behind even if the results are there
        already. The manifests are written last, as in `run`.
        """
        root = self.new_pipeline()
        check_target(self.output)
        self.prepare()
        self._check_and_build(root)
        return root.run()

    def _check_and_build(self, root: beam.Pipeline) -> None:
        check_target(self.output, self.needed_bytes())
        self.check()
        self.build(root)


def _seconds_since(start: float) -> float:
    return round(time.perf_counter() - start, 1)
