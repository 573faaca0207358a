"""Which batches make up each optimizer step of a run."""

import dataclasses
import math
from collections.abc import Iterator

import numpy as np

from sbert_core.errors import DataError
from sbert_core.training.batches import mixed_steps
from sbert_core.training.plan import TrainPlan
from sbert_core.training.prepared_data import PreparedData

_IN_NO_BATCH = "in no batch, since their texts are in most batches: try a smaller batch_size or more epochs"


@dataclasses.dataclass(frozen=True, eq=False)
class Batch:
    """Some rows of one data set."""

    data: PreparedData
    rows: np.ndarray
    rng: np.random.Generator  # for augmentation and random views


@dataclasses.dataclass(frozen=True, eq=False)
class OptimizerStep:
    """One update of the weights, from the gradients of one batch or several."""

    number: int  # from 1
    epoch: int  # from 0
    batches: tuple[Batch, ...]
    ends_epoch: bool


@dataclasses.dataclass(frozen=True, eq=False)
class StepPlan:
    """All steps of a run, and the rows that are in none of them."""

    steps: list[OptimizerStep]
    left_out: dict[str, int]  # rows, by data set and reason


def plan_steps(plan: TrainPlan, data_sets: list[PreparedData]) -> StepPlan:
    """Cuts the epochs into steps. Depends on the plan and the data only, so a resumed run takes the same steps."""
    steps: list[OptimizerStep] = []
    is_used = {id(data): np.zeros(len(data.examples), bool) for data in data_sets}
    for epoch in range(plan.epochs):
        batches = list(_epoch_batches(plan, data_sets, epoch))
        for batch in batches:
            is_used[id(batch.data)][batch.rows] = True
        groups = [tuple(batches[at : at + plan.accumulate]) for at in range(0, len(batches), plan.accumulate)]
        steps += [
            OptimizerStep(len(steps) + place, epoch, group, ends_epoch=place == len(groups))
            for place, group in enumerate(groups, 1)
        ]
        if len(steps) >= (plan.max_steps or math.inf):
            break
    if not steps:
        raise DataError("no batch could be made of the data: use a smaller batch_size")
    unused = [int((~is_used[id(data)]).sum()) for data in data_sets]
    return StepPlan(steps[: plan.max_steps], _count_left_out(data_sets, unused))


def _epoch_batches(plan: TrainPlan, data_sets: list[PreparedData], epoch: int) -> Iterator[Batch]:
    batches = [data.batches(plan.seed, epoch) for data in data_sets]
    remaining = [iter(own) for own in batches]
    order = mixed_steps([len(own) for own in batches], plan.mixing, plan.seed, epoch)
    for number, which in enumerate(order):
        rng = np.random.default_rng((plan.seed, epoch, number))
        yield Batch(data_sets[which], next(remaining[which]), rng)


def _count_left_out(data_sets: list[PreparedData], unused: list[int]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for data, n_unused in zip(data_sets, unused, strict=True):
        reasons = {**data.examples.left_out, **({_IN_NO_BATCH: n_unused} if n_unused else {})}
        for reason, count in reasons.items():
            name = f"{data.spec.file}: {reason}"
            counts[name] = counts.get(name, 0) + count
    return counts
