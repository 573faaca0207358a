"""The optimizer, and the learning rate of each step."""

import math
from collections.abc import Iterable
from typing import Literal

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from transformers import get_scheduler

from sbert_core.errors import DataError, ModelError

Schedule = Literal["linear", "cosine", "constant"]

_TRANSFORMERS_NAMES = {"linear": "linear", "cosine": "cosine", "constant": "constant_with_warmup"}


def make_optimizer(
    modules: nn.Module | Iterable[nn.Module], learning_rate: float, weight_decay: float = 0.01
) -> torch.optim.AdamW:
    """AdamW over the parameters of `modules` that take a gradient; biases and norms do not decay.

    A parameter that several modules share counts once. The order of parameters is that of the modules, so that a saved
    state can be loaded into a new optimizer.
    """
    if not 0 < learning_rate < math.inf:
        raise DataError(f"learning_rate must be above 0, got {learning_rate}: 2e-5 is usual")
    if not 0 <= weight_decay < math.inf:
        raise DataError(f"weight_decay must not be negative, got {weight_decay}")
    several = [modules] if isinstance(modules, nn.Module) else list(modules)
    found = {id(parameter): parameter for module in several for parameter in module.parameters()}
    trainable = [parameter for parameter in found.values() if parameter.requires_grad]
    if not trainable:
        raise ModelError("there is nothing to train: every parameter is frozen")
    # Biases and the scales of LayerNorm and RMSNorm are vectors, and a temperature is a number; all else is a matrix.
    groups = [
        {"params": [p for p in trainable if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in trainable if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, fused=True)  # one pass over memory per step, also on CPU


def make_schedule(optimizer: torch.optim.Optimizer, kind: Schedule, warmup_steps: int, total_steps: int) -> LambdaLR:
    """The learning rate of each step: `schedule.step()` after each `optimizer.step()`.

    It grows from 0 over the first `warmup_steps`. Then it is constant, or it falls to 0 at `total_steps`: in a straight
    line (linear) or along half a cosine.
    """
    schedule: LambdaLR = get_scheduler(_TRANSFORMERS_NAMES[kind], optimizer, warmup_steps, total_steps)
    return schedule
