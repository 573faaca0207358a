"""The modules of an encoder in the format of sentence-transformers, each read from and written to its own folder."""

from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from torch import nn

from sbert_core.encoder.config_files import read_object, read_optional_object, required, setting, write_json
from sbert_core.encoder.heads import Dense, LayerNorm, Normalize
from sbert_core.encoder.pooling import Pooling
from sbert_core.encoder.safety import check_folder
from sbert_core.encoder.static_embedding import StaticEmbedding
from sbert_core.encoder.transformer import Transformer
from sbert_core.encoder.weights import WEIGHTS, check_finite, load_tensors
from sbert_core.errors import ModelError

TRANSFORMER_CONFIG = "sentence_bert_config.json"

# Our name of a pooling mode -> its name in the newer format.
_POOLING_NAMES = {
    "cls": "cls",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len": "mean_sqrt_len_tokens",
    "weighted_mean": "weightedmean",
    "last": "lasttoken",
}
# The flag in the older format -> our name. Modes are concatenated in the order of these flags.
_POOLING_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weighted_mean",
    "pooling_mode_lasttoken": "last",
}


class ReadOptions(NamedTuple):
    """What the caller of a load asks for and permits."""

    max_tokens: int | None = None
    allow_pickle: bool = False
    allow_code: bool = False

    @property
    def permissions(self) -> dict[str, bool]:
        """The two permissions as keyword arguments."""
        return {"allow_pickle": self.allow_pickle, "allow_code": self.allow_code}


class TransformerSettings(NamedTuple):
    """What sentence-transformers stores about a transformer besides its own configuration."""

    max_tokens: int | None
    lower_case: bool
    decoder: bool


def read_transformer_settings(folder: Path) -> TransformerSettings:
    """Reads `sentence_bert_config.json`; every value has a default, and so has a missing file."""
    path = folder / TRANSFORMER_CONFIG
    config = read_optional_object(path)
    return TransformerSettings(
        max_tokens=setting(path, config, "max_seq_length", int, None),
        lower_case=setting(path, config, "do_lower_case", bool, False) or False,
        decoder=setting(path, config, "first_decoder_token", bool, False) or False,
    )


def read_module(kind: str, folder: Path, options: ReadOptions) -> nn.Module:
    """Reads the module of class `kind`, one of `MODULE_KINDS`."""
    return _READERS[kind](folder, options)


def _read_transformer(folder: Path, options: ReadOptions) -> Transformer:
    check_folder(folder, **options.permissions)
    stored = read_transformer_settings(folder)
    return Transformer.load(
        folder,
        max_tokens=options.max_tokens or stored.max_tokens,
        lower_case=stored.lower_case,
        decoder=stored.decoder,
        **options.permissions,
    )


def _read_static(folder: Path, options: ReadOptions) -> StaticEmbedding:
    check_folder(folder)
    if options.max_tokens is not None:
        raise ModelError("max_tokens does not apply to a static encoder: every token counts")
    return StaticEmbedding.load(folder)


def _read_pooling(folder: Path, options: ReadOptions) -> Pooling:
    path = folder / "config.json"
    config = read_object(path)
    token_dim = setting(path, config, "embedding_dimension", int, None)
    if token_dim is None:
        token_dim = required(path, config, "word_embedding_dimension", int)
    include_prompt = setting(path, config, "include_prompt", bool, True)
    return Pooling(token_dim, _pooling_modes(path, config), include_prompt is not False)


def _pooling_modes(path: Path, config: dict[str, Any]) -> list[str]:
    names = config.get("pooling_mode")
    if names is None:  # the older format
        return [mode for flag, mode in _POOLING_FLAGS.items() if setting(path, config, flag, bool, False)] or ["mean"]
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ModelError(f"{path}: 'pooling_mode' must be the name of a mode, or a list of them")
    ours = {theirs: mode for mode, theirs in _POOLING_NAMES.items()}
    return [ours.get(name, name) for name in names]


def _read_dense(folder: Path, options: ReadOptions) -> Dense:
    path = folder / "config.json"
    config = read_object(path)
    if config.get("module_input_name", "sentence_embedding") != "sentence_embedding":
        raise ModelError(f"{path}: this dense layer is for token vectors, and only those for sentence vectors are read")
    sizes = required(path, config, "in_features", int), required(path, config, "out_features", int)
    bias = setting(path, config, "bias", bool, True) is not False
    residual = setting(path, config, "use_residual", bool, False) or False
    activation = setting(path, config, "activation_function", str, "Tanh") or "Tanh"
    shapes: dict[str, tuple[int, ...]] = {"linear.weight": sizes[::-1]}
    if bias:
        shapes["linear.bias"] = sizes[1:]
    if residual and sizes[0] != sizes[1]:
        shapes["residual.weight"] = sizes[::-1]
    weights = _read_weights(folder, shapes, options)
    module = Dense(*sizes, bias, activation, residual)
    module.load_state_dict(weights)
    check_finite(folder, module)
    return module


def _read_layer_norm(folder: Path, options: ReadOptions) -> LayerNorm:
    path = folder / "config.json"
    dim = required(path, read_object(path), "dimension", int)
    weights = _read_weights(folder, {"norm.weight": (dim,), "norm.bias": (dim,)}, options)
    module = LayerNorm(dim)
    module.load_state_dict(weights)
    check_finite(folder, module)
    return module


def _read_normalize(folder: Path, options: ReadOptions) -> Normalize:
    return Normalize()


_READERS = {
    "Transformer": _read_transformer,
    "StaticEmbedding": _read_static,
    "Pooling": _read_pooling,
    "Dense": _read_dense,
    "LayerNorm": _read_layer_norm,
    "Normalize": _read_normalize,
}
MODULE_KINDS = tuple(_READERS)


def _read_weights(folder: Path, shapes: dict[str, tuple[int, ...]], options: ReadOptions) -> dict[str, torch.Tensor]:
    """Reads the weights of a layer and checks their shapes, before a layer of that size is built."""
    check_folder(folder, **options.permissions)
    if (folder / WEIGHTS).exists():
        return load_tensors(folder / WEIGHTS, shapes)
    path = folder / "pytorch_model.bin"
    weights = torch.load(path, weights_only=True)
    found = {name: tuple(weight.shape) for name, weight in weights.items()}
    if found != shapes:
        raise ModelError(f"{path} has {found}, but config.json asks for {shapes}: download the folder again")
    return weights


def write_module(folder: Path, module: nn.Module) -> None:
    """Writes what `read_module` reads."""
    if isinstance(module, Transformer):
        module.save(folder)
        config: dict[str, Any] = {"max_seq_length": module.max_tokens, "do_lower_case": module.lower_case}
        if module.decoder:  # an extension of the format: sentence-transformers has no such model
            config["first_decoder_token"] = True
        write_json(folder / TRANSFORMER_CONFIG, config)
    elif isinstance(module, StaticEmbedding):
        module.save(folder)
    elif isinstance(module, Pooling):
        write_json(folder / "config.json", _pooling_config(module))
    elif isinstance(module, Dense | LayerNorm):
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in module.state_dict().items()}
        safetensors.torch.save_file(weights, folder / WEIGHTS)
        write_json(folder / "config.json", _head_config(module))


def _pooling_config(pooling: Pooling) -> dict[str, Any]:
    config: dict[str, Any] = {"word_embedding_dimension": pooling.token_dim}
    config |= {flag: mode in pooling.modes for flag, mode in _POOLING_FLAGS.items()}
    if pooling.modes != tuple(mode for mode in _POOLING_FLAGS.values() if mode in pooling.modes):
        # Only the newer format can store another order of concatenation.
        names = [_POOLING_NAMES[mode] for mode in pooling.modes]
        config = {"embedding_dimension": pooling.token_dim, "pooling_mode": names}
    return {**config, "include_prompt": pooling.include_prompt}


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
