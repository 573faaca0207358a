"""Runs a pipeline and says in one line what went wrong; the same for every job."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.runners.runner import PipelineResult
from google.protobuf import struct_pb2

from sbert_core.errors import DataError, JobError, ModelError

NAMESPACES = ("read", "resume", "encode", "mine")


def new_pipeline(beam_flags: Sequence[str], workers: int) -> beam.Pipeline:
    """A pipeline for the runner that the flags name, or else for this machine, in `workers` processes."""
    options = PipelineOptions(list(beam_flags))
    if options.get_all_options(drop_default=True).get("runner") is not None:
        return beam.Pipeline(options=options)
    local = [f"--direct_num_workers={workers}"] + ["--direct_running_mode=multi_processing"] * (workers > 1)
    return beam.Pipeline(runner=_local_runner(), options=PipelineOptions([*beam_flags, *local]))


def execute(root: beam.Pipeline, advice: Callable[[], str]) -> dict[str, Any]:
    """Runs a pipeline and returns our counters; a failure is a JobError, and `advice` tells how to go on."""
    try:
        result = root.run()
        result.wait_until_finish()
    except Exception as error:
        # With wrong data the same command would only fail again.
        hopeless = isinstance(error, (DataError, ModelError)) or re.search(r"\b(DataError|ModelError)\b", str(error))
        raise JobError(_reason(error) + ("" if hopeless else advice())) from error
    return _counters(result)


def _local_runner() -> fn_runner.FnApiRunner:
    """The in-process runner, its worker processes told to be quiet; Beam's own default would look for a download."""
    options = struct_pb2.Struct()
    options["default_sdk_harness_log_level"] = "CRITICAL"  # what matters is raised
    info = beam_provision_api_pb2.ProvisionInfo(pipeline_options=options)
    return fn_runner.FnApiRunner(provision_info=fn_runner.ExtendedProvisionInfo(info))


def _reason(error: Exception) -> str:
    """The line of a worker's traceback that says what happened."""
    lines = [line for line in str(error).splitlines() if re.match(r"[\w.]+(Error|Exception)\b.*: ", line)]
    line = lines[-1] if lines else f"{type(error).__name__}: {error}"
    return re.sub(r"^[\w.]*\b(DataError|ModelError): | \[while running .*$", "", line).strip()


def _counters(result: PipelineResult) -> dict[str, Any]:
    """Our counters and distributions, as Beam has them at the end."""
    metrics = result.metrics().query()
    found: dict[str, Any] = {}
    for counter in metrics["counters"]:
        name = f"{counter.key.metric.namespace}/{counter.key.metric.name}"
        if counter.key.metric.namespace in NAMESPACES:
            found[name] = found.get(name, 0) + counter.result
    for distribution in metrics["distributions"]:
        if distribution.key.metric.namespace in NAMESPACES:
            name = f"{distribution.key.metric.namespace}/{distribution.key.metric.name}"
            value = distribution.result
            found[name] = {"count": value.count, "mean": value.mean, "max": value.max}
    return found
