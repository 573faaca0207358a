"""The folder of a cross-encoder, read and written.

A plain Hugging Face folder, to which sentence-transformers adds what a configuration of transformers cannot say.
"""

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

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
from sbert_core.encoder.transformer import Transformer, load_tokenizer, quiet
from sbert_core.encoder.weights import check_finite, check_fits
from sbert_core.errors import ModelError

# Where torch keeps what a folder may name. Names are compared, never imported.
_ACTIVATION_PATHS = {"sigmoid": "torch.nn.modules.activation.Sigmoid", "identity": "torch.nn.modules.linear.Identity"}
_ACTIVATIONS = {path: name for name, path in _ACTIVATION_PATHS.items()}
_ACTIVATIONS |= {"torch.nn.Sigmoid": "sigmoid", "torch.nn.Identity": "identity"}


def read_cross_encoder(
    folder: Path,
    max_length: int | None,
    labels: Sequence[str] | None = None,
    *,
    allow_pickle: bool = False,
    allow_code: bool = False,
) -> Transformer:
    """Reads a trained cross-encoder, or, if there are `labels`, an encoder that gets a head for them."""
    if max_length is not None and max_length < 1:
        raise ModelError(f"max_length must be at least 1, got {max_length}")
    with refuse_damage(folder):
        return _read(folder, max_length, labels, allow_pickle, allow_code)


def _read(
    folder: Path, max_length: int | None, labels: Sequence[str] | None, allow_pickle: bool, allow_code: bool
) -> Transformer:
    if (folder / "modules.json").exists():
        modules = read_json(folder / "modules.json")
        if not isinstance(modules, list) or not all(isinstance(entry, dict) for entry in modules):
            raise ModelError(f"{folder / 'modules.json'} is not a list of modules: download it again")
        path = folder / "modules.json"
        kinds = [required(path, entry, "type", str).rpartition(".")[2] for entry in modules]
        if labels is None and kinds != ["Transformer"]:
            raise ModelError(f"{folder} is made of {kinds}: expected one Transformer with a classification head")
        if kinds[:1] != ["Transformer"]:
            raise ModelError(f"{folder} is made of {kinds}: expected a Transformer, which can read two texts at once")
        folder = inner_path(folder, modules[0].get("path"))
    if not (folder / "config.json").exists():
        raise ModelError(f"{folder} has no config.json: it is not a model folder")
    architectures = read_object(folder / "config.json").get("architectures") or []
    if not isinstance(architectures, list) or not all(isinstance(name, str) for name in architectures):
        raise ModelError(f"{folder / 'config.json'}: 'architectures' must be a list of names")
    headless = architectures and not any(name.endswith("ForSequenceClassification") for name in architectures)
    if labels is None and headless:
        raise ModelError(
            f"{folder} holds {architectures[0]}, which has no classification head: "
            "expected a cross-encoder, that is a model of kind ...ForSequenceClassification"
        )
    check_folder(folder, allow_pickle=allow_pickle, allow_code=allow_code)
    local = {"local_files_only": True, "trust_remote_code": allow_code}
    weights: dict[str, Any] = {"dtype": torch.float32, "use_safetensors": None if allow_pickle else True}
    if labels is not None:
        numbers = {label: number for number, label in enumerate(labels)}
        head = {"num_labels": len(labels), "id2label": dict(enumerate(labels)), "label2id": numbers}
        weights |= head | {"ignore_mismatched_sizes": True}  # a head for other labels is learned anew
    with refuse_damage(folder, "be loaded as a sequence-classification model"), quiet():
        model_class = transformers.AutoModelForSequenceClassification
        if not allow_code:  # whose code says what it builds
            config = transformers.AutoConfig.from_pretrained(folder, **local)
            check_fits(folder, config, model_class, new_head=labels is not None)
        model, info = model_class.from_pretrained(folder, **weights, **local, output_loading_info=True)
    # transformers has made them up at random.
    missing = set(info["missing_keys"]) | {key for key, *_ in info["mismatched_keys"]}
    if labels is not None:  # the head, to which a pooler belongs, is to be learned
        _pop_notes(model.config)
        missing = {key for key in missing if key.startswith(f"{model.base_model_prefix}.") and ".pooler." not in key}
    if missing:
        expected = "a trained cross-encoder" if labels is None else "a whole encoder"
        raise ModelError(
            f"{folder}: the weights lack {len(missing)} tensors of {type(model).__name__}, "
            f"{min(missing)!r} among them: expected {expected}"
        )
    check_finite(folder, model)
    with quiet():
        tokenizer = load_tokenizer(folder, len(model.get_input_embeddings().weight), allow_code)
    path = folder / "sentence_bert_config.json"
    own = read_object(path) if path.exists() else {}
    limit = max_length or setting(path, own, "max_seq_length", int, None)
    return Transformer(model, tokenizer, limit, setting(path, own, "do_lower_case", bool, False) or False)


def choose_activation(folder: Path, config: Any, settings: dict[str, Any]) -> str:
    """The activation that a folder asks for in whichever release's way, or the usual one for its labels."""
    newer, older = _pop_notes(config)
    path = settings.get("activation_fn") or (newer if isinstance(newer, dict) else {}).get("activation_fn") or older
    if path is None:
        return "sigmoid" if config.num_labels == 1 else "identity"
    if str(path) not in _ACTIVATIONS:
        raise ModelError(f"{folder} asks for the activation {path!r}: expected torch.nn's Sigmoid or Identity")
    return _ACTIVATIONS[str(path)]


def _pop_notes(config: Any) -> tuple[dict[str, Any], Any]:
    """Takes out what releases of sentence-transformers wrote here: the fingerprint must not depend on which it was."""
    notes = vars(config)
    return notes.pop("sentence_transformers", None) or {}, notes.pop("sbert_ce_default_activation_function", None)


def check_target(folder: Path) -> None:
    """Refuses to write a model where there is something else: call it before hours of work."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else {"a file"}
    if folder.exists() and names and "config.json" not in names:
        raise ModelError(f"{folder} is there already and is not a model folder: choose another")


def write_cross_encoder(folder: Path, body: Transformer, activation: str, prompt: str) -> None:
    """Writes a cross-encoder next to its place and renames it, so that one that is there is replaced as a whole."""
    check_target(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        (partial / "new").mkdir()
        _write_files(partial / "new", body, activation, prompt)
        if folder.exists():
            folder.rename(partial / "old")
        (partial / "new").rename(folder)
    finally:
        shutil.rmtree(partial)


def _write_files(folder: Path, body: Transformer, activation: str, prompt: str) -> None:
    body.save(folder)
    kind = "sentence_transformers.base.modules.transformer.Transformer"
    files = {
        "modules.json": [{"idx": 0, "name": "0", "path": "", "type": kind}],
        "sentence_bert_config.json": {
            "transformer_task": "sequence-classification",
            "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
            "module_output_name": "scores",
            "max_seq_length": body.max_tokens,
            "do_lower_case": body.lower_case,
        },
        "config_sentence_transformers.json": {
            "__version__": {"transformers": transformers.__version__, "pytorch": torch.__version__},
            "model_type": "CrossEncoder",
            "activation_fn": _ACTIVATION_PATHS[activation],
            "prompts": {"default": prompt} if prompt else {},
            "default_prompt_name": "default" if prompt else None,
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    share_files(folder)
