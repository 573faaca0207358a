"""A runner that does to a job all that an engine may: it divides, repeats and duplicates bundles, and changes workers.

Every element is a bundle of its own, and no steps are fused. A share of the bundles is run completely and then again,
because their output was lost; a share runs twice at the same time, and the output of one of the two is used. Between
bundles, workers come and go: instances of DoFns are torn down, and all caches of the process are emptied. All choices
follow from a seed.
"""

import concurrent.futures
import itertools
import os
import random
from collections.abc import Iterable, Iterator
from typing import Any
from unittest import mock

from apache_beam.metrics import monitoring_infos
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.portability.fn_api_runner import fn_runner, translations
from apache_beam.runners.worker import bundle_processor
from apache_beam.transforms.environments import EmbeddedPythonEnvironment

from pipelines.stage_order import OrderedRunner
from sbert_core.process_cache import clear_process_caches

SEED_VARIABLE = "MANY_BUNDLES_SEED"
WORKERS = 2  # in this process: two bundles can run at the same time
LOST_SHARE = 0.15  # bundles whose output is lost after all of their effects
TWIN_SHARE = 0.15  # bundles that run twice at the same time
NEW_WORKER_SHARE = 0.1  # bundles before which the workers are replaced


class ManyBundlesRunner(OrderedRunner):
    """Runs a pipeline in this process, one bundle per element; `happened` counts what was done to the bundles."""

    happened: dict[str, int] = {}  # of the last run; a class attribute, because commands make their own runners

    def __init__(self) -> None:
        super().__init__(default_environment=EmbeddedPythonEnvironment.default())
        self._random = random.Random(int(os.environ.get(SEED_VARIABLE, "0")))
        type(self).happened = dict.fromkeys(("bundles", "lost", "twins", "new workers"), 0)

    def run_via_runner_api(self, pipeline_proto: Any, options: Any) -> fn_runner.RunnerResult:
        """Runs with the workers of this process, whatever the options say."""
        self._num_workers = WORKERS
        return super().run_via_runner_api(pipeline_proto, options)

    def create_stages(self, pipeline_proto: Any) -> Any:
        """The stages of Beam's own runner, but no two steps are fused: elements are encoded between any two."""
        with mock.patch.object(translations.Stage, "can_fuse", _can_fuse):
            return super().create_stages(pipeline_proto)

    def _get_bundle_manager(self, bundle_context_manager: Any) -> "_ScatterBundles":
        return _ScatterBundles(bundle_context_manager, self._random, self.happened)


_can_fuse_steps = translations.Stage.can_fuse


def _can_fuse(producer: translations.Stage, consumer: translations.Stage, context: Any) -> bool:
    """Whether two stages become one: only if one of them does nothing but read or write a buffer."""
    buffers = (bundle_processor.DATA_INPUT_URN, bundle_processor.DATA_OUTPUT_URN)
    is_buffer = any(all(step.spec.urn in buffers for step in stage.transforms) for stage in (producer, consumer))
    return is_buffer and _can_fuse_steps(producer, consumer, context)


class _OneBundle(fn_runner.BundleManager):
    """Runs one bundle on a chosen worker."""

    def __init__(self, context: Any, worker: int) -> None:
        super().__init__(_OneWorker(context, worker), cache_token_generator=_tokens())


class _OneWorker:
    """A bundle's context as if it had one worker only."""

    def __init__(self, context: Any, worker: int) -> None:
        self._context = context
        self.worker_handlers = [context.worker_handlers[worker]]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


class _ScatterBundles:
    """Runs the input of a stage as many bundles."""

    def __init__(self, context: Any, rng: random.Random, happened: dict[str, int]) -> None:
        self._context = context
        self._random = rng
        self._happened = happened

    def process_bundle(self, inputs: Any, outputs: Any, timers: Any, output_timers: Any, dry_run: bool = False) -> Any:
        """Does what `fn_runner.BundleManager.process_bundle` does."""
        assert not timers, "no job has timers"
        assert not output_timers, "no job has timers"
        infos: list[Iterable[Any]] = []
        bundles = list(self._bundles(inputs))
        self._random.shuffle(bundles)
        for bundle in bundles:
            result, splits = self._run(bundle, outputs)
            assert not splits
            infos.append(result.process_bundle.monitoring_infos)
        merged = monitoring_infos.consolidate(itertools.chain(*infos))
        response = beam_fn_api_pb2.ProcessBundleResponse(monitoring_infos=merged)
        return beam_fn_api_pb2.InstructionResponse(process_bundle=response), []

    def _bundles(self, inputs: Any) -> Iterator[dict[str, list[bytes]]]:
        """One bundle for each element; one without elements if there are none."""
        is_empty = True
        for name, buffer in inputs.items():
            coder = self._context.get_input_coder_impl(name)
            for element in coder.decode_all(b"".join(buffer)):
                is_empty = False
                yield {other: [] for other in inputs} | {name: [coder.encode_all([element])]}
        if is_empty:
            yield {name: [] for name in inputs}

    def _run(self, bundle: dict[str, list[bytes]], outputs: Any) -> Any:
        chance = self._random.random()
        worker = self._random.randrange(WORKERS)
        self._happened["bundles"] += 1
        if self._random.random() < NEW_WORKER_SHARE:
            self._happened["new workers"] += 1
            self._replace_workers()
        if chance < TWIN_SHARE:
            self._happened["twins"] += 1
            with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
                runs = [
                    pool.submit(_OneBundle(self._context, each).process_bundle, bundle, outputs, {}, {}, each != worker)
                    for each in range(WORKERS)
                ]
            return [run.result() for run in runs][worker]  # both must succeed
        if chance < TWIN_SHARE + LOST_SHARE:
            self._happened["lost"] += 1
            _OneBundle(self._context, 1 - worker).process_bundle(bundle, outputs, {}, {}, dry_run=True)
        return _OneBundle(self._context, worker).process_bundle(bundle, outputs, {}, {})

    def _replace_workers(self) -> None:
        """Tears down all instances of DoFns and empties what the process has cached, as a new process would find it."""
        for handler in self._context.worker_handlers:
            cached = handler.bundle_processor_cache.cached_bundle_processors
            for processors in list(cached.values()):
                while processors:
                    processors.pop().shutdown()
        clear_process_caches()


def _tokens() -> Iterator[Any]:
    return fn_runner.FnApiRunner.get_cache_token_generator(static=False)
