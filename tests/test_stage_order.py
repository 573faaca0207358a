"""A PCollection is produced before it is read, also as a side input."""

import random

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.runners.portability.fn_api_runner.execution import FnApiRunnerExecutionContext

from pipelines.stage_order import OrderedRunner, order_stages


def make_pipeline() -> beam.Pipeline:
    """`Layout` is the side input of one step, and the input of a step that waits for the first."""
    root = beam.Pipeline(runner=OrderedRunner())
    layout = root | beam.Create([3]) | "Layout" >> beam.Map(lambda size: size)
    numbers = layout | "Numbers" >> beam.FlatMap(lambda size: list(range(size))) | beam.Reshuffle()
    done = numbers | "Work" >> beam.Map(lambda number, sizes: (number, sizes), beam.pvalue.AsList(layout))
    count = done | "Count" >> beam.combiners.Count.Globally()
    _ = layout | "Finish" >> beam.Map(lambda size, n_done: (size, n_done), beam.pvalue.AsSingleton(count))
    return root


def stage_of(stages, label: str) -> str:
    return next(stage.name for stage in stages if any(t.unique_name.endswith(label) for t in stage.transforms))


def side_inputs_by_stage(stages) -> dict[str, set[str]]:
    """The steps whose side inputs are stored when a stage is done."""
    found = FnApiRunnerExecutionContext._build_data_side_inputs_map(stages)
    return {stage: {step for step, _ in inputs} for stage, inputs in found.items()}


def test_side_inputs_are_stored_by_their_producer_in_whatever_order_stages_come():
    stages = fn_runner.FnApiRunner().create_stages(make_pipeline().to_runner_api())[1]
    wrong = 0
    for seed in range(20):
        shuffled = random.Random(seed).sample(list(stages), len(stages))
        ordered = order_stages(shuffled)
        assert sorted(stage.name for stage in ordered) == sorted(stage.name for stage in stages)
        assert "Work" in side_inputs_by_stage(ordered)[stage_of(stages, "Layout")]
        wrong += "Work" not in side_inputs_by_stage(shuffled)[stage_of(stages, "Layout")]
    assert wrong  # some orders lose the side input: the test would notice


@pytest.mark.slow
def test_a_pipeline_runs_in_that_order():
    root = make_pipeline()
    found = []
    create_stages = root.runner.create_stages

    def remember(proto):
        context, stages = create_stages(proto)
        found.append(side_inputs_by_stage(stages)[stage_of(stages, "Layout")])
        return context, stages

    root.runner.create_stages = remember
    root.run().wait_until_finish()
    assert "Work" in found[0]
