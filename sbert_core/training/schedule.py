"""How far a step goes: the optimiser, and the learning rate as a function of the step."""

import math
from collections.abc import Iterable
from typing import Literal, get_args

import torch
from torch import nn

from sbert_core.errors import DataError, ModelError

Schedule = Literal["linear", "cosine", "constant"]


def make_optimizer(
    modules: nn.Module | Iterable[nn.Module], learning_rate: float, weight_decay: float = 0.01
) -> torch.optim.AdamW:
    """AdamW over the parameters of `modules` that take a gradient; biases and norms do not decay.

    A parameter that several modules share counts once. The order of parameters is that of the modules, so that a saved
    state fits an optimiser made anew.
    """
    if not 0 < learning_rate < math.inf:
        raise DataError(f"learning_rate must be above 0, got {learning_rate}: 2e-5 is usual")
    if not 0 <= weight_decay < math.inf:
        raise DataError(f"weight_decay must not be negative, got {weight_decay}")
    several = [modules] if isinstance(modules, nn.Module) else list(modules)
    found = {id(parameter): parameter for module in several for parameter in module.parameters()}
    learned = [parameter for parameter in found.values() if parameter.requires_grad]
    if not learned:
        raise ModelError("there is nothing to learn: every parameter is frozen")
    # Biases and the scales of LayerNorm and RMSNorm are vectors, and a temperature is a number; all else is a matrix.
    groups = [
        {"params": [p for p in learned if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in learned if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, fused=True)  # one pass over memory per step, also on CPU


def learning_rate_factor(step: int, total_steps: int, warmup_steps: int = 0, kind: Schedule = "linear") -> float:
    """What the learning rate is multiplied by in `step`, counted from 0.

    It grows from 0 to 1 over the first `warmup_steps`. Then it is 1 (constant), or it falls to 0 at `total_steps`: in
    a straight line (linear) or along half a cosine.
    """
    if kind not in get_args(Schedule):
        raise DataError(f"the schedule {kind!r} is not known: use {', '.join(get_args(Schedule))}")
    if not 0 <= warmup_steps <= total_steps:
        raise DataError(f"warmup_steps must be between 0 and the {total_steps} steps there are, got {warmup_steps}")
    if step < 0:
        raise DataError(f"steps are counted from 0, got {step}")
    if step < warmup_steps:
        return step / warmup_steps
    if kind == "constant":
        return 1.0
    if step >= total_steps:
        return 0.0
    done = (step - warmup_steps) / (total_steps - warmup_steps)
    return 1 - done if kind == "linear" else (1 + math.cos(math.pi * done)) / 2
