"""The tensors of a model folder: their shapes before anything is loaded, and whether a configuration fits them.

A configuration is a small file that can ask for any amount of memory. What it asks for is compared with the tensors
that are there before a model of that size is built.
"""

import math
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import nn
from transformers import PretrainedConfig

from sbert_core.encoder.safety import inner_path, one_line, read_object
from sbert_core.errors import ModelError

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"

_FLOATS = ("F64", "F32", "F16", "BF16")
_MOST_NUMBER = 2**31  # of a size in a configuration; a length limit of a tokenizer may be larger
_MOST_MISSING = 2  # times as many numbers as the weights have
_MOST_LAYERS_UNSEEN = 100  # that need not have tensors of their own: ALBERT uses one layer for all
# What architectures call the number of their layers, of which each is built.
_LAYER_NAMES = (
    *("num_hidden_layers", "n_layers", "n_layer", "num_layers", "num_decoder_layers", "encoder_layers"),
    *("decoder_layers", "num_hidden_groups", "inner_group_num", "num_encoder_layers", "num_blocks", "depth"),
)


def read_shapes(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The kind of numbers and the shape of each tensor of a safetensors file, by name; only its header is read."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  it is no mapping
            return {name: (part.get_dtype(), tuple(part.get_shape())) for name, part in slices.items()}
    except Exception as error:  # of safetensors, or of the file system
        raise ModelError(f"{path} is not readable as safetensors: {one_line(error)}; download it again") from error


def folder_shapes(folder: Path) -> dict[str, tuple[str, tuple[int, ...]]] | None:
    """The same of all weights of a transformer's folder; None if they are pickled and cannot be looked at."""
    if (folder / WEIGHTS).exists():
        return read_shapes(folder / WEIGHTS)
    if not (folder / INDEX).exists():
        return None
    places = read_object(folder / INDEX).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(shard, str) for shard in places.values()):
        raise ModelError(f"{folder / INDEX} has no weight_map that names the file of each tensor: download it again")
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {}
    for shard in sorted(set(places.values())):
        shapes |= read_shapes(inner_path(folder, shard))
    return shapes


def check_fits(folder: Path, config: PretrainedConfig, model_class: Any, *, new_head: bool = False) -> None:
    """Refuses a configuration that asks for many more layers or numbers than the weights have.

    `new_head` allows for a classification head that is to be learned.
    """
    shapes = folder_shapes(folder)
    if shapes is None:
        return
    for name, (kind, _) in shapes.items():
        if kind not in _FLOATS and not name.endswith(("position_ids", "token_type_ids", "num_batches_tracked")):
            raise ModelError(f"{folder}: the tensor {name!r} holds {kind}, expected {', '.join(_FLOATS)}")
    path = folder / "config.json"
    _check_numbers(path, config.to_dict(), max(len(shapes), _MOST_LAYERS_UNSEEN))
    with torch.device("meta"):  # shapes only
        model = model_class.from_config(config) if hasattr(model_class, "from_config") else model_class(config)
    prefix = f"{model.base_model_prefix}."
    wanted = sum(
        weight.numel()
        for name, weight in model.named_parameters()
        if "pooler." not in name and not (new_head and not name.startswith(prefix))
    )
    there = sum(math.prod(shape) for _, shape in shapes.values())
    if wanted > _MOST_MISSING * there:  # fewer are missed by name when they are loaded
        raise ModelError(
            f"{path} describes a {type(model).__name__} of {wanted:,} numbers, and the weights have {there:,}: is it "
            "the one they were saved with?"
        )


def _check_numbers(path: Path, config: Any, most_layers: int, name: str = "") -> None:
    if isinstance(config, dict):
        for inner, value in config.items():
            _check_numbers(path, value, most_layers, str(inner))
    elif isinstance(config, int) and not isinstance(config, bool):
        if name in _LAYER_NAMES and config > most_layers:
            raise ModelError(f"{path}: {name} is {config:,}, and the weights have {most_layers:,} tensors at most")
        if abs(config) > _MOST_NUMBER:
            raise ModelError(f"{path}: {name} is {config:,}, which no model has: is the file damaged?")


def load_tensors(path: Path, expected: dict[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    """Loads a safetensors file that must have exactly these tensors of floats, by name and shape."""
    shapes = read_shapes(path)
    for name in expected.keys() | shapes.keys():
        if name not in shapes:
            raise ModelError(f"{path} has no tensor {name!r}: it has {', '.join(sorted(shapes)) or 'none'}")
        if name not in expected:
            raise ModelError(f"{path} has the tensor {name!r}, which its config.json says nothing of")
        kind, shape = shapes[name]
        if shape != expected[name] or kind not in _FLOATS:
            raise ModelError(f"{path}: {name!r} is {kind} {shape}, and config.json asks for {expected[name]} of floats")
    return safetensors.torch.load_file(path)


def check_finite(folder: Path, model: nn.Module) -> None:
    """Refuses weights with a number that is none: attention may pass over it, and only some texts would show it."""
    for name, weight in model.named_parameters():
        if not weight.detach().sum().isfinite():
            raise ModelError(f"{folder}: the tensor {name!r} has numbers that are not finite: its weights are damaged")
