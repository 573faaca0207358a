"""The tensors of a model folder: their shapes before anything is loaded, and whether a configuration fits them.

A configuration is a small file that can ask for any amount of memory. It is compared with the stored tensors before a
model of that size is built.
"""

import math
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import nn
from transformers import PretrainedConfig

from sbert_core.encoder.config_files import MAX_SIZE, inner_path, one_line, read_object
from sbert_core.errors import ModelError

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"

_FLOAT_TYPES = ("F64", "F32", "F16", "BF16")
_INTEGER_BUFFERS = ("position_ids", "token_type_ids", "num_batches_tracked")
_MAX_PARAMETER_RATIO = 2  # parameters that a configuration describes, per number in the weights
_MAX_SHARED_LAYERS = 100  # layers need not have tensors of their own: ALBERT uses one layer for all
# The names that architectures give to their number of layers.
_LAYER_COUNT_NAMES = (
    *("num_hidden_layers", "n_layers", "n_layer", "num_layers", "num_decoder_layers", "encoder_layers"),
    *("decoder_layers", "num_hidden_groups", "inner_group_num", "num_encoder_layers", "num_blocks", "depth"),
)


def read_shapes(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Returns the number type and the shape of each tensor of a safetensors file, by name; only its header is read."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  not a mapping
            return {name: (part.get_dtype(), tuple(part.get_shape())) for name, part in slices.items()}
    except Exception as error:  # from safetensors or from the file system
        raise ModelError(f"{path} is not readable as safetensors: {one_line(error)}; download it again") from error


def folder_shapes(folder: Path) -> dict[str, tuple[str, tuple[int, ...]]] | None:
    """Returns the same for all weights of a transformer's folder; None if they are pickled and cannot be inspected."""
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
    """Refuses a configuration that describes many more layers or parameters than the weights have.

    With `new_head` the classification head does not count: it is to be trained.
    """
    shapes = folder_shapes(folder)
    if shapes is None:
        return
    for name, (kind, _) in shapes.items():
        if kind not in _FLOAT_TYPES and not name.endswith(_INTEGER_BUFFERS):
            raise ModelError(f"{folder}: the tensor {name!r} holds {kind}, expected {', '.join(_FLOAT_TYPES)}")
    path = folder / "config.json"
    _check_sizes(path, config.to_dict(), max_layers=max(len(shapes), _MAX_SHARED_LAYERS))
    with torch.device("meta"):  # shapes only
        model = model_class.from_config(config) if hasattr(model_class, "from_config") else model_class(config)
    prefix = f"{model.base_model_prefix}."
    n_described = sum(
        weight.numel()
        for name, weight in model.named_parameters()
        if "pooler." not in name and not (new_head and not name.startswith(prefix))
    )
    n_stored = sum(math.prod(shape) for _, shape in shapes.values())
    if n_described > _MAX_PARAMETER_RATIO * n_stored:  # a smaller difference is found by name when weights are loaded
        raise ModelError(
            f"{path} describes a {type(model).__name__} of {n_described:,} numbers, but the weights have {n_stored:,}: "
            "is it the one they were saved with?"
        )


def _check_sizes(path: Path, value: Any, *, max_layers: int, name: str = "") -> None:
    """Checks every integer of a configuration, also in objects inside it; `name` is the key of `value`."""
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_sizes(path, inner, max_layers=max_layers, name=str(key))
    elif isinstance(value, int) and not isinstance(value, bool):
        if name in _LAYER_COUNT_NAMES and value > max_layers:
            raise ModelError(f"{path}: {name} is {value:,}, but the weights have tensors for at most {max_layers:,}")
        if abs(value) > MAX_SIZE:
            raise ModelError(f"{path}: {name} is {value:,}, larger than in any model: the file may be damaged")


def load_tensors(path: Path, expected: dict[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    """Loads a safetensors file that must have exactly these float tensors, by name and shape."""
    shapes = read_shapes(path)
    for name in expected.keys() | shapes.keys():
        if name not in shapes:
            raise ModelError(f"{path} has no tensor {name!r}: it has {', '.join(sorted(shapes)) or 'none'}")
        if name not in expected:
            raise ModelError(f"{path} has the tensor {name!r}, which its config.json does not describe")
        kind, shape = shapes[name]
        if shape != expected[name] or kind not in _FLOAT_TYPES:
            raise ModelError(f"{path}: {name!r} is {kind} {shape}, but config.json asks for floats {expected[name]}")
    return safetensors.torch.load_file(path)


def check_finite(folder: Path, model: nn.Module) -> None:
    """Refuses weights with NaN or infinity, which may affect only some texts."""
    for name, weight in model.named_parameters():
        if not weight.detach().sum().isfinite():
            raise ModelError(f"{folder}: the tensor {name!r} has numbers that are not finite: its weights are damaged")
