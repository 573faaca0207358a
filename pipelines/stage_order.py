"""Beam's in-process runner with its stages in the right order.

Beam sorts stages by the producers of PCollections. A stage that reads a stored PCollection has it among its outputs
too, and of all stages that have it Beam takes an arbitrary one for its producer (Beam 2.77, `sort_stages`). A reader
may then come before the producer, and side inputs that are made of the PCollection are stored when the reader is done:
too late. They are empty, without an error. It happens now and then to any PCollection that is both a side input and the
input of a later stage.
"""

from collections.abc import Iterable
from typing import Any

from apache_beam.runners.portability.fn_api_runner import fn_runner, translations
from apache_beam.runners.worker import bundle_processor


class OrderedRunner(fn_runner.FnApiRunner):
    """Runs a pipeline in this process; a side input has all its elements in every run."""

    def create_stages(self, pipeline_proto: Any) -> Any:
        """The stages of Beam's own runner, each after all stages that it depends on."""
        context, stages = super().create_stages(pipeline_proto)
        return context, order_stages(stages)


def order_stages(stages: Iterable[translations.Stage]) -> list[translations.Stage]:
    """The stages in an order in which a PCollection is produced before it is read, as input or as side input."""
    stages = list(stages)
    producers = {
        pcollection: stage
        for stage in stages
        for transform in stage.transforms
        if not _is_read(transform)
        for pcollection in transform.outputs.values()
    }
    known = set(stages)
    ordered: dict[translations.Stage, None] = {}
    started: set[translations.Stage] = set()

    def add(stage: translations.Stage) -> None:
        if stage in started or stage not in known:
            return
        started.add(stage)
        for earlier in stage.must_follow:
            add(earlier)
        for transform in stage.transforms:
            used = transform.outputs if _is_read(transform) else transform.inputs
            for pcollection in used.values():
                if pcollection in producers:
                    add(producers[pcollection])
        ordered[stage] = None

    for stage in stages:
        add(stage)
    return list(ordered)


def _is_read(transform: Any) -> bool:
    """Whether a transform only reads what another stage has stored."""
    return bool(transform.spec.urn == bundle_processor.DATA_INPUT_URN)
