"""The folder format of sentence-transformers, read and written.

`modules.json` lists the modules of an encoder and where each keeps its files. A folder without it is a plain
Hugging Face transformer and gets mean pooling.
"""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import transformers
from torch import nn

from sbert_core.encoder.heads import Dense, Head, LayerNorm, Normalize
from sbert_core.encoder.pooling import Pooling
from sbert_core.encoder.safety import (
    check_folder,
    inner_path,
    read_json,
    read_object,
    refuse_damage,
    required,
    setting,
    share_files,
)
from sbert_core.encoder.static_embedding import StaticEmbedding
from sbert_core.encoder.transformer import Transformer
from sbert_core.encoder.weights import WEIGHTS, check_finite, load_tensors
from sbert_core.errors import ModelError

# Our name of a pooling mode -> the name in the folder. The order is that of the older format's flags.
_POOLING_NAMES = {
    "cls": "cls",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len": "mean_sqrt_len_tokens",
    "weighted_mean": "weightedmean",
    "last": "lasttoken",
}
_POOLING_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weighted_mean",
    "pooling_mode_lasttoken": "last",
}
_TRANSFORMER_CONFIG = "sentence_bert_config.json"
_PROMPTS_CONFIG = "config_sentence_transformers.json"


@dataclasses.dataclass(frozen=True)
class EncoderParts:
    """What a folder holds: a body, what follows it, and its prompts."""

    body: Transformer | StaticEmbedding
    pooling: Pooling | None  # None behind a static body, which has no token vectors to pool
    heads: Sequence[Head] = ()
    prompts: dict[str, str] = dataclasses.field(default_factory=dict)
    default_prompt_name: str | None = None


def read_folder(
    folder: Path,
    *,
    max_tokens: int | None = None,
    decoder: bool = False,
    allow_pickle: bool = False,
    allow_code: bool = False,
) -> EncoderParts:
    """Reads an encoder from `folder`; `max_tokens` overrides the folder's own limit.

    `decoder` makes a sentence encoder of a plain encoder-decoder model by the first token of its decoder.

    Nothing is unpickled and no code of the folder is run unless the caller allows it. A folder that is damaged is a
    ModelError, whatever is wrong with it.
    """
    with refuse_damage(folder):
        return _read_folder(folder, max_tokens, decoder, {"allow_pickle": allow_pickle, "allow_code": allow_code})


def _read_folder(folder: Path, max_tokens: int | None, decoder: bool, allowed: dict[str, bool]) -> EncoderParts:
    if not (folder / "modules.json").exists():
        if not (folder / "config.json").exists():
            raise ModelError(f"{folder} has neither modules.json nor config.json: it is not a model folder")
        check_folder(folder, **allowed)
        body = Transformer.load(folder, max_tokens=max_tokens, decoder=decoder, **allowed)
        return EncoderParts(body, Pooling(body.dim, "cls" if decoder else "mean"))
    if decoder:
        raise ModelError(f"{folder} is a sentence encoder already: `decoder` is for a plain encoder-decoder model")

    modules: list[nn.Module] = []
    for full_kind, module_folder in _listed_modules(folder):
        kind = full_kind.rpartition(".")[2]
        if not full_kind.startswith("sentence_transformers.") or kind not in _READERS:
            raise ModelError(
                f"{folder / 'modules.json'} has a module of type {full_kind!r}; this library runs {', '.join(_READERS)}"
            )
        modules.append(_READERS[kind](module_folder, max_tokens, allowed))
    return _assemble(folder, modules, *read_prompts(folder))


def _listed_modules(folder: Path) -> list[tuple[str, Path]]:
    """The kind and the folder of each module."""
    path = folder / "modules.json"
    entries = read_json(path)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ModelError(f"{path} is not a list of modules: download it again")
    return [(required(path, entry, "type", str), inner_path(folder, entry.get("path"))) for entry in entries]


def read_prompts(folder: Path) -> tuple[dict[str, str], str | None]:
    """The prompts of a model by name, and the name of the one that is used by default."""
    path = folder / _PROMPTS_CONFIG
    if not path.exists():
        return {}, None
    settings = read_object(path)
    given = setting(path, settings, "prompts", dict, None) or {}
    for name, text in given.items():
        if text is not None and not isinstance(text, str):
            raise ModelError(f"{path}: the prompt {name!r} is {type(text).__name__}, expected text")
    prompts = {name: text for name, text in given.items() if text is not None}
    return prompts, setting(path, settings, "default_prompt_name", str, None)


def _assemble(
    folder: Path, modules: list[nn.Module], prompts: dict[str, str], default_prompt_name: str | None
) -> EncoderParts:
    body, rest = modules[0] if modules else None, modules[1:]
    if isinstance(body, StaticEmbedding):
        pooling = None
    elif isinstance(body, Transformer) and rest and isinstance(rest[0], Pooling):
        pooling, rest = rest[0], rest[1:]
    else:
        kinds = [type(module).__name__ for module in modules]
        raise ModelError(
            f"{folder / 'modules.json'} lists {kinds}: expected Transformer then Pooling, or StaticEmbedding"
        )
    heads = tuple(module for module in rest if isinstance(module, Dense | LayerNorm | Normalize))
    if len(heads) < len(rest):
        raise ModelError(f"{folder / 'modules.json'}: only Dense, LayerNorm and Normalize may follow pooling")
    if pooling is not None and pooling.token_dim != body.dim:
        raise ModelError(f"{folder}: pooling is for {pooling.token_dim} dimensions, and the transformer has {body.dim}")
    dim = body.dim if pooling is None else pooling.dim
    for head in heads:
        if not isinstance(head, Normalize):
            if head.in_dim != dim:
                kind = type(head).__name__
                raise ModelError(f"{folder}: a {kind} layer is for {head.in_dim} dimensions, and is given {dim}")
            dim = head.dim
    if default_prompt_name is not None and default_prompt_name not in prompts:
        raise ModelError(f"{folder / _PROMPTS_CONFIG}: the default prompt {default_prompt_name!r} is not defined")
    return EncoderParts(body, pooling, heads, prompts, default_prompt_name)


def _read_transformer(folder: Path, max_tokens: int | None, allowed: dict[str, bool]) -> Transformer:
    check_folder(folder, **allowed)
    path = folder / _TRANSFORMER_CONFIG
    config = read_object(path) if path.exists() else {}
    own_limit = setting(path, config, "max_seq_length", int, None)
    return Transformer.load(
        folder,
        max_tokens=max_tokens or own_limit,
        lower_case=setting(path, config, "do_lower_case", bool, False) or False,
        decoder=setting(path, config, "first_decoder_token", bool, False) or False,
        **allowed,
    )


def _read_static(folder: Path, max_tokens: int | None, allowed: dict[str, bool]) -> StaticEmbedding:
    check_folder(folder)
    if max_tokens is not None:
        raise ModelError("max_tokens does not apply to a static encoder: every token counts")
    return StaticEmbedding.load(folder)


def _read_pooling(folder: Path, max_tokens: int | None, allowed: dict[str, bool]) -> Pooling:
    path = folder / "config.json"
    config = read_object(path)
    modes = config.get("pooling_mode")
    if modes is None:
        modes = [mode for flag, mode in _POOLING_FLAGS.items() if setting(path, config, flag, bool, False)] or ["mean"]
    else:
        modes = [modes] if isinstance(modes, str) else modes
        if not isinstance(modes, list) or not all(isinstance(mode, str) for mode in modes):
            raise ModelError(f"{path}: 'pooling_mode' must be the name of a mode, or a list of them")
        ours = {theirs: mode for mode, theirs in _POOLING_NAMES.items()}
        modes = [ours.get(mode, mode) for mode in modes]
    token_dim = setting(path, config, "embedding_dimension", int, None)
    if token_dim is None:
        token_dim = required(path, config, "word_embedding_dimension", int)
    include_prompt = setting(path, config, "include_prompt", bool, True)
    return Pooling(token_dim, modes, include_prompt is not False)


def _read_dense(folder: Path, max_tokens: int | None, allowed: dict[str, bool]) -> Dense:
    path = folder / "config.json"
    config = read_object(path)
    if config.get("module_input_name", "sentence_embedding") != "sentence_embedding":
        raise ModelError(f"{path}: a dense layer on token vectors is not a sentence encoder's")
    sizes = required(path, config, "in_features", int), required(path, config, "out_features", int)
    bias = setting(path, config, "bias", bool, True) is not False
    residual = setting(path, config, "use_residual", bool, False) or False
    activation = setting(path, config, "activation_function", str, "Tanh") or "Tanh"
    shapes: dict[str, tuple[int, ...]] = {"linear.weight": sizes[::-1]}
    if bias:
        shapes["linear.bias"] = sizes[1:]
    if residual and sizes[0] != sizes[1]:
        shapes["residual.weight"] = sizes[::-1]
    weights = _read_weights(folder, shapes, allowed)
    module = Dense(*sizes, bias, activation, residual)
    module.load_state_dict(weights)
    check_finite(folder, module)
    return module


def _read_layer_norm(folder: Path, max_tokens: int | None, allowed: dict[str, bool]) -> LayerNorm:
    path = folder / "config.json"
    dim = required(path, read_object(path), "dimension", int)
    weights = _read_weights(folder, {"norm.weight": (dim,), "norm.bias": (dim,)}, allowed)
    module = LayerNorm(dim)
    module.load_state_dict(weights)
    check_finite(folder, module)
    return module


def _read_normalize(folder: Path, max_tokens: int | None, allowed: dict[str, bool]) -> Normalize:
    return Normalize()


_READERS = {
    "Transformer": _read_transformer,
    "StaticEmbedding": _read_static,
    "Pooling": _read_pooling,
    "Dense": _read_dense,
    "LayerNorm": _read_layer_norm,
    "Normalize": _read_normalize,
}


def _read_weights(
    folder: Path, shapes: dict[str, tuple[int, ...]], allowed: dict[str, bool]
) -> dict[str, torch.Tensor]:
    """The weights of a layer, which must have these shapes: it is built only then."""
    check_folder(folder, **allowed)
    if (folder / WEIGHTS).exists():
        return load_tensors(folder / WEIGHTS, shapes)
    path = folder / "pytorch_model.bin"
    weights = torch.load(path, weights_only=True)
    found = {name: tuple(weight.shape) for name, weight in weights.items()}
    if found != shapes:
        raise ModelError(f"{path} has {found}, and config.json asks for {shapes}")
    return weights


def write_folder(folder: Path, parts: EncoderParts) -> None:
    """Writes an encoder so that `read_folder`, and sentence-transformers, can load it."""
    folder.mkdir(parents=True, exist_ok=True)
    modules = [parts.body, *([parts.pooling] if parts.pooling else []), *parts.heads]
    entries = []
    for position, module in enumerate(modules):
        kind = type(module).__name__
        # The first module's files lie in the folder itself, as in a plain Hugging Face folder.
        path = "" if position == 0 else f"{position}_{kind}"
        (folder / path).mkdir(exist_ok=True)
        _write_module(folder / path, module)
        entries.append(
            {"idx": position, "name": str(position), "path": path, "type": f"sentence_transformers.models.{kind}"}
        )
    settings = {
        "__version__": {"transformers": transformers.__version__, "pytorch": torch.__version__},
        "prompts": parts.prompts,
        "default_prompt_name": parts.default_prompt_name,
        "similarity_fn_name": "cosine",
    }
    _write_json(folder / _PROMPTS_CONFIG, settings)
    _write_json(folder / "modules.json", entries)
    share_files(folder)


def _write_module(folder: Path, module: nn.Module) -> None:
    config: dict[str, Any]
    if isinstance(module, Transformer):
        module.save(folder)
        config = {"max_seq_length": module.max_tokens, "do_lower_case": module.lower_case}
        if module.decoder:  # ours alone: sentence-transformers has no such form
            config["first_decoder_token"] = True
        _write_json(folder / _TRANSFORMER_CONFIG, config)
    elif isinstance(module, StaticEmbedding):
        module.save(folder)
    elif isinstance(module, Pooling):
        flags = {flag: mode in module.modes for flag, mode in _POOLING_FLAGS.items()}
        config = {"word_embedding_dimension": module.token_dim, **flags}
        if module.modes != tuple(mode for mode in _POOLING_NAMES if mode in module.modes):
            # Only the newer format can say in which order to concatenate.
            modes = [_POOLING_NAMES[mode] for mode in module.modes]
            config = {"embedding_dimension": module.token_dim, "pooling_mode": modes}
        _write_json(folder / "config.json", {**config, "include_prompt": module.include_prompt})
    elif isinstance(module, Dense | LayerNorm):
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in module.state_dict().items()}
        safetensors.torch.save_file(weights, folder / "model.safetensors")
        _write_json(folder / "config.json", _head_config(module))


def _head_config(module: Dense | LayerNorm) -> dict[str, Any]:
    if isinstance(module, LayerNorm):
        return {"dimension": module.dim}
    activation = type(module.activation)
    config = {
        "in_features": module.linear.in_features,
        "out_features": module.linear.out_features,
        "bias": module.linear.bias is not None,
        "activation_function": f"{activation.__module__}.{activation.__name__}",
    }
    return {**config, "use_residual": True} if module.with_residual else config


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
