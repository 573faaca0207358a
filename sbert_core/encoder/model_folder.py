"""The folder format of sentence-transformers, read and written.

`modules.json` lists the modules of an encoder and the folder of each. A folder without it is a plain Hugging Face
transformer and gets mean pooling.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers
from torch import nn

from sbert_core.encoder.config_files import (
    inner_path,
    read_json,
    read_optional_object,
    required,
    setting,
    write_json,
)
from sbert_core.encoder.heads import Dense, Head, LayerNorm, Normalize
from sbert_core.encoder.module_folders import MODULE_KINDS, ReadOptions, read_module, write_module
from sbert_core.encoder.pooling import Pooling
from sbert_core.encoder.safety import check_folder, refuse_damage, set_default_file_modes
from sbert_core.encoder.static_embedding import StaticEmbedding
from sbert_core.encoder.transformer import Transformer
from sbert_core.errors import ModelError

MODULES = "modules.json"
MODEL_CONFIG = "config_sentence_transformers.json"


@dataclasses.dataclass(frozen=True)
class EncoderParts:
    """The contents of a folder: a body, the layers after it, and its prompts."""

    body: Transformer | StaticEmbedding
    pooling: Pooling | None  # None after a static body, which has no token vectors to pool
    heads: Sequence[Head] = ()
    prompts: dict[str, str] = dataclasses.field(default_factory=dict)
    default_prompt_name: str | None = None

    @property
    def dim(self) -> int:
        """Length of a vector."""
        modules = [self.body, *([self.pooling] if self.pooling else []), *self.heads]
        return next(module.dim for module in reversed(modules) if not isinstance(module, Normalize))


@dataclasses.dataclass(frozen=True)
class ModuleEntry:
    """An entry of `modules.json`."""

    type: str  # the import path of a class; it is compared, never imported
    folder: Path

    @property
    def kind(self) -> str:
        """The name of the class."""
        return self.type.rpartition(".")[2]


def read_folder(
    folder: Path,
    *,
    max_tokens: int | None = None,
    decoder: bool = False,
    allow_pickle: bool = False,
    allow_code: bool = False,
) -> EncoderParts:
    """Reads an encoder from `folder`; `max_tokens` overrides the folder's own limit.

    `decoder` turns a plain encoder-decoder model into a sentence encoder that uses the first token of its decoder.

    Nothing is unpickled and no code of the folder is run unless the caller allows it. Damage of any kind is a
    ModelError.
    """
    options = ReadOptions(max_tokens, allow_pickle, allow_code)
    with refuse_damage(folder):
        if not (folder / MODULES).exists():
            return _read_plain_transformer(folder, decoder, options)
        if decoder:
            raise ModelError(f"{folder} is a sentence encoder already: `decoder` is for a plain encoder-decoder model")
        modules: list[nn.Module] = []
        for entry in read_module_list(folder):
            if not entry.type.startswith("sentence_transformers.") or entry.kind not in MODULE_KINDS:
                raise ModelError(
                    f"{folder / MODULES} has a module of type {entry.type!r}; this library runs "
                    f"{', '.join(MODULE_KINDS)}"
                )
            modules.append(read_module(entry.kind, entry.folder, options))
        parts = _assemble(folder, modules, *read_prompts(folder))
        _check_dimensions(folder, parts)
        return parts


def _read_plain_transformer(folder: Path, decoder: bool, options: ReadOptions) -> EncoderParts:
    if not (folder / "config.json").exists():
        raise ModelError(f"{folder} has neither modules.json nor config.json: it is not a model folder")
    check_folder(folder, **options.permissions)
    body = Transformer.load(folder, max_tokens=options.max_tokens, decoder=decoder, **options.permissions)
    return EncoderParts(body, Pooling(body.dim, "cls" if decoder else "mean"))


def read_module_list(folder: Path) -> list[ModuleEntry]:
    """Reads `modules.json`."""
    path = folder / MODULES
    entries = read_json(path)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ModelError(f"{path} is not a list of modules: download it again")
    return [ModuleEntry(required(path, entry, "type", str), inner_path(folder, entry.get("path"))) for entry in entries]


def read_prompts(folder: Path) -> tuple[dict[str, str], str | None]:
    """Reads the prompts of a model by name, and the name of the default prompt."""
    path = folder / MODEL_CONFIG
    config = read_optional_object(path)
    stored = setting(path, config, "prompts", dict, None) or {}
    for name, text in stored.items():
        if text is not None and not isinstance(text, str):
            raise ModelError(f"{path}: the prompt {name!r} is {type(text).__name__}, expected text")
    prompts = {name: text for name, text in stored.items() if text is not None}
    return prompts, setting(path, config, "default_prompt_name", str, None)


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
        raise ModelError(f"{folder / MODULES} lists {kinds}: expected Transformer then Pooling, or StaticEmbedding")
    heads = tuple(module for module in rest if isinstance(module, Dense | LayerNorm | Normalize))
    if len(heads) < len(rest):
        raise ModelError(f"{folder / MODULES}: only Dense, LayerNorm and Normalize may follow pooling")
    if default_prompt_name is not None and default_prompt_name not in prompts:
        raise ModelError(f"{folder / MODEL_CONFIG}: the default prompt {default_prompt_name!r} is not defined")
    return EncoderParts(body, pooling, heads, prompts, default_prompt_name)


def _check_dimensions(folder: Path, parts: EncoderParts) -> None:
    """Refuses modules that do not fit together: each must accept the vectors of the one before."""
    body, pooling = parts.body, parts.pooling
    if pooling is not None and pooling.token_dim != body.dim:
        raise ModelError(f"{folder}: pooling is for {pooling.token_dim} dimensions, but the transformer has {body.dim}")
    dim = body.dim if pooling is None else pooling.dim
    for head in parts.heads:
        if isinstance(head, Normalize):
            continue
        if head.in_dim != dim:
            kind = type(head).__name__
            raise ModelError(f"{folder}: a {kind} layer is for {head.in_dim} dimensions, but its input has {dim}")
        dim = head.dim


def check_model_target(folder: Path) -> None:
    """Refuses to write a model over anything that is not a model: call it before hours of work."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else {"a file"}
    if folder.exists() and names and not names & {MODULES, "config.json"}:
        raise ModelError(f"{folder} exists and is not a model folder: choose another folder")


def library_versions() -> dict[str, str]:
    """Returns the versions that a folder records."""
    return {"transformers": transformers.__version__, "pytorch": torch.__version__}


def write_folder(folder: Path, parts: EncoderParts) -> None:
    """Writes an encoder so that `read_folder`, and sentence-transformers, can load it."""
    folder.mkdir(parents=True, exist_ok=True)
    modules = [parts.body, *([parts.pooling] if parts.pooling else []), *parts.heads]
    entries = []
    for position, module in enumerate(modules):
        kind = type(module).__name__
        # The first module's files are in the folder itself, as in a plain Hugging Face folder.
        path = "" if position == 0 else f"{position}_{kind}"
        (folder / path).mkdir(exist_ok=True)
        write_module(folder / path, module)
        entries.append(
            {"idx": position, "name": str(position), "path": path, "type": f"sentence_transformers.models.{kind}"}
        )
    config = {
        "__version__": library_versions(),
        "prompts": parts.prompts,
        "default_prompt_name": parts.default_prompt_name,
        "similarity_fn_name": "cosine",
    }
    write_json(folder / MODEL_CONFIG, config)
    write_json(folder / MODULES, entries)
    set_default_file_modes(folder)
