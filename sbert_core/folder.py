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

from sbert_core.errors import ModelError
from sbert_core.heads import Dense, Head, LayerNorm, Normalize
from sbert_core.pooling import Pooling
from sbert_core.safety import check_folder, inner_path, read_json
from sbert_core.static import StaticEmbedding
from sbert_core.transformer import Transformer

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

    Nothing is unpickled and no code of the folder is run unless the caller allows it.
    """
    allowed = {"allow_pickle": allow_pickle, "allow_code": allow_code}
    if not (folder / "modules.json").exists():
        if not (folder / "config.json").exists():
            raise ModelError(f"{folder} has neither modules.json nor config.json: it is not a model folder")
        check_folder(folder, **allowed)
        body = Transformer.load(folder, max_tokens=max_tokens, decoder=decoder, **allowed)
        return EncoderParts(body, Pooling(body.dim, "cls" if decoder else "mean"))
    if decoder:
        raise ModelError(f"{folder} is a sentence encoder already: `decoder` is for a plain encoder-decoder model")

    modules: list[nn.Module] = []
    for entry in read_json(folder / "modules.json"):
        kind = entry["type"].rpartition(".")[2]
        if not entry["type"].startswith("sentence_transformers.") or kind not in _READERS:
            raise ModelError(
                f"{folder / 'modules.json'} has a module of type {entry['type']!r}; "
                f"this library runs {', '.join(_READERS)}"
            )
        module_folder = inner_path(folder, entry["path"])
        modules.append(_READERS[kind](module_folder, max_tokens, allowed))
    settings = read_json(folder / _PROMPTS_CONFIG) if (folder / _PROMPTS_CONFIG).exists() else {}
    prompts = {name: text for name, text in settings.get("prompts", {}).items() if text is not None}
    return _assemble(folder, modules, prompts, settings.get("default_prompt_name"))


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
    if default_prompt_name is not None and default_prompt_name not in prompts:
        raise ModelError(f"{folder / _PROMPTS_CONFIG}: the default prompt {default_prompt_name!r} is not defined")
    return EncoderParts(body, pooling, heads, prompts, default_prompt_name)


def _read_transformer(folder: Path, max_tokens: int | None, allowed: dict[str, bool]) -> Transformer:
    check_folder(folder, **allowed)
    path = folder / _TRANSFORMER_CONFIG
    config = read_json(path) if path.exists() else {}
    return Transformer.load(
        folder,
        max_tokens=max_tokens or config.get("max_seq_length"),
        lower_case=config.get("do_lower_case") or False,
        decoder=config.get("first_decoder_token", False),
        **allowed,
    )


def _read_static(folder: Path, max_tokens: int | None, allowed: dict[str, bool]) -> StaticEmbedding:
    check_folder(folder)
    if max_tokens is not None:
        raise ModelError("max_tokens does not apply to a static encoder: every token counts")
    return StaticEmbedding.load(folder)


def _read_pooling(folder: Path, max_tokens: int | None, allowed: dict[str, bool]) -> Pooling:
    config = read_json(folder / "config.json")
    modes = config.get("pooling_mode")
    if modes is None:
        modes = [mode for flag, mode in _POOLING_FLAGS.items() if config.get(flag)] or ["mean"]
    else:
        ours = {theirs: mode for mode, theirs in _POOLING_NAMES.items()}
        modes = [ours.get(mode, mode) for mode in ([modes] if isinstance(modes, str) else modes)]
    token_dim = config.get("embedding_dimension") or config["word_embedding_dimension"]
    return Pooling(token_dim, modes, config.get("include_prompt", True))


def _read_dense(folder: Path, max_tokens: int | None, allowed: dict[str, bool]) -> Dense:
    config = read_json(folder / "config.json")
    if config.get("module_input_name", "sentence_embedding") != "sentence_embedding":
        raise ModelError(f"{folder / 'config.json'}: a dense layer on token vectors is not a sentence encoder's")
    module = Dense(
        config["in_features"],
        config["out_features"],
        config.get("bias", True),
        config.get("activation_function", "Tanh"),
        config.get("use_residual", False),
    )
    module.load_state_dict(_read_weights(folder, allowed))
    return module


def _read_layer_norm(folder: Path, max_tokens: int | None, allowed: dict[str, bool]) -> LayerNorm:
    module = LayerNorm(read_json(folder / "config.json")["dimension"])
    module.load_state_dict(_read_weights(folder, allowed))
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


def _read_weights(folder: Path, allowed: dict[str, bool]) -> dict[str, torch.Tensor]:
    check_folder(folder, **allowed)
    path = folder / "model.safetensors"
    if path.exists():
        return safetensors.torch.load_file(path)
    return torch.load(folder / "pytorch_model.bin", weights_only=True)


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
