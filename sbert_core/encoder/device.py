"""Where to compute and in which precision."""

from typing import Literal, get_args

import torch

from sbert_core.errors import ModelError

Precision = Literal["auto", "float32", "float16", "bfloat16", "int8"]


def choose_device(device: str) -> torch.device:
    """Resolves `auto` to the best device available: CUDA, then MPS, then CPU."""
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ModelError(f"device {device!r} is not known: use auto, cpu, cuda, cuda:0, mps ...") from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ModelError(f"device {device!r} was requested, but torch finds no GPU here: use auto or cpu")
    return chosen


def choose_precision(precision: Precision, device: torch.device) -> str:
    """Resolves `auto` to float16 on CUDA and float32 elsewhere."""
    if precision not in get_args(Precision):
        raise ModelError(f"precision {precision!r} is not known: use {', '.join(get_args(Precision))}")
    if precision == "auto":
        return "float16" if device.type == "cuda" else "float32"
    return precision
