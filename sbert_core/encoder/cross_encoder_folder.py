"""The folder of a cross-encoder, read and written.

It is a Hugging Face folder with a classification head, to which sentence-transformers adds the settings that a
configuration of transformers has no place for.
"""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import transformers
from transformers import PretrainedConfig, PreTrainedModel

from sbert_core.encoder.config_files import read_object, write_json
from sbert_core.encoder.model_folder import (
    MODEL_CONFIG,
    MODULES,
    ModuleEntry,
    check_model_target,
    library_versions,
    read_module_list,
)
from sbert_core.encoder.module_folders import TRANSFORMER_CONFIG, read_transformer_settings
from sbert_core.encoder.pretrained import load_config, load_tokenizer, load_weights, refuse_missing
from sbert_core.encoder.safety import check_folder, refuse_damage, set_default_file_modes
from sbert_core.encoder.transformer import Transformer
from sbert_core.errors import ModelError

# torch's import path of an activation -> our name. Paths are compared, never imported.
_ACTIVATIONS = {
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.modules.linear.Identity": "identity",
    "torch.nn.Sigmoid": "sigmoid",
    "torch.nn.Identity": "identity",
}
_ACTIVATION_PATHS = {"sigmoid": "torch.nn.modules.activation.Sigmoid", "identity": "torch.nn.modules.linear.Identity"}
_MODULE_TYPE = "sentence_transformers.base.modules.transformer.Transformer"


def read_cross_encoder(
    folder: Path, max_length: int | None = None, *, allow_pickle: bool = False, allow_code: bool = False
) -> Transformer:
    """Reads a trained cross-encoder; `max_length` overrides the folder's own limit.

    A folder without a trained classification head, or with a damaged file, is a ModelError.
    """
    _check_max_length(max_length)
    with refuse_damage(folder):
        modules = _list_modules(folder)
        kinds = [module.kind for module in modules]
        if kinds != ["Transformer"]:
            raise ModelError(f"{folder} is made of {kinds}: expected one Transformer with a classification head")
        folder = modules[0].folder
        _check_has_head(folder)
        check_folder(folder, allow_pickle=allow_pickle, allow_code=allow_code)
        with refuse_damage(folder, "be loaded as a sequence-classification model"):
            config = load_config(folder, allow_code)
            model, missing = _load_classifier(folder, config, allow_pickle=allow_pickle, allow_code=allow_code)
        refuse_missing(folder, model, missing, "expected a trained cross-encoder")
        return _with_tokenizer(folder, model, max_length, allow_code)


def start_cross_encoder(folder: Path, labels: Sequence[str], max_length: int | None = None) -> Transformer:
    """Reads an encoder and adds a classification head for `labels`, with random weights, to be trained.

    Of a sentence encoder's folder only the transformer is read. The head of a cross-encoder with as many labels is
    kept.
    """
    _check_max_length(max_length)
    with refuse_damage(folder):
        modules = _list_modules(folder)
        kinds = [module.kind for module in modules]
        if kinds[:1] != ["Transformer"]:
            raise ModelError(f"{folder} is made of {kinds}: expected a Transformer, which can read two texts at once")
        folder = modules[0].folder
        check_folder(folder)
        with refuse_damage(folder, "be loaded as a sequence-classification model"):
            config = load_config(
                folder,
                num_labels=len(labels),
                id2label=dict(enumerate(labels)),
                label2id={label: number for number, label in enumerate(labels)},
            )
            model, missing = _load_classifier(folder, config, new_head=True)
        _pop_stored_activations(model.config)  # the trained model gets its own
        # The head, to which a pooler belongs, is to be trained: only the encoder must be complete.
        encoder_prefix = f"{model.base_model_prefix}."
        needed = (name for name in missing if name.startswith(encoder_prefix) and ".pooler." not in name)
        refuse_missing(folder, model, needed, "expected a complete encoder")
        return _with_tokenizer(folder, model, max_length)


def _check_max_length(max_length: int | None) -> None:
    if max_length is not None and max_length < 1:
        raise ModelError(f"max_length must be at least 1, got {max_length}")


def _list_modules(folder: Path) -> list[ModuleEntry]:
    """Returns the modules of a folder; a plain Hugging Face folder counts as one Transformer."""
    modules = read_module_list(folder) if (folder / MODULES).exists() else [ModuleEntry("Transformer", folder)]
    for module in modules[:1]:
        if module.kind == "Transformer" and not (module.folder / "config.json").exists():
            raise ModelError(f"{module.folder} has no config.json: it is not a model folder")
    return modules


def _check_has_head(folder: Path) -> None:
    """Refuses a model that was saved without a classification head. A folder need not name its architecture."""
    path = folder / "config.json"
    architectures = read_object(path).get("architectures") or []
    if not isinstance(architectures, list) or not all(isinstance(name, str) for name in architectures):
        raise ModelError(f"{path}: 'architectures' must be a list of names")
    if architectures and not any(name.endswith("ForSequenceClassification") for name in architectures):
        raise ModelError(
            f"{folder} holds {architectures[0]}, which has no classification head: "
            "expected a cross-encoder, that is a model of kind ...ForSequenceClassification"
        )


def _load_classifier(folder: Path, config: PretrainedConfig, **options: bool) -> tuple[PreTrainedModel, set[str]]:
    return load_weights(folder, transformers.AutoModelForSequenceClassification, config, **options)


def _with_tokenizer(
    folder: Path, model: PreTrainedModel, max_length: int | None, allow_code: bool = False
) -> Transformer:
    tokenizer = load_tokenizer(folder, len(model.get_input_embeddings().weight), allow_code)
    stored = read_transformer_settings(folder)
    return Transformer(model, tokenizer, max_length or stored.max_tokens, stored.lower_case)


def choose_activation(folder: Path, config: PretrainedConfig, settings: dict[str, Any]) -> str:
    """Returns the activation that a folder names, in the format of any release, or the default for its labels."""
    newer, older = _pop_stored_activations(config)
    path = settings.get("activation_fn") or (newer if isinstance(newer, dict) else {}).get("activation_fn") or older
    if path is None:
        return "sigmoid" if config.num_labels == 1 else "identity"
    if str(path) not in _ACTIVATIONS:
        raise ModelError(f"{folder} asks for the activation {path!r}: expected torch.nn's Sigmoid or Identity")
    return _ACTIVATIONS[str(path)]


def _pop_stored_activations(config: PretrainedConfig) -> tuple[Any, Any]:
    """Removes what releases of sentence-transformers stored in `config`: the fingerprint must not depend on which."""
    values = vars(config)
    return values.pop("sentence_transformers", None), values.pop("sbert_ce_default_activation_function", None)


def write_cross_encoder(folder: Path, body: Transformer, activation: str, prompt: str) -> None:
    """Writes a cross-encoder beside `folder` and renames it, so that an existing model is replaced in one step."""
    check_model_target(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        (temporary / "new").mkdir()
        _write_files(temporary / "new", body, activation, prompt)
        if folder.exists():
            folder.rename(temporary / "old")
        (temporary / "new").rename(folder)
    finally:
        shutil.rmtree(temporary)


def _write_files(folder: Path, body: Transformer, activation: str, prompt: str) -> None:
    body.save(folder)
    write_json(folder / MODULES, [{"idx": 0, "name": "0", "path": "", "type": _MODULE_TYPE}])
    transformer_config = {
        "transformer_task": "sequence-classification",
        "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
        "module_output_name": "scores",
        "max_seq_length": body.max_tokens,
        "do_lower_case": body.lower_case,
    }
    write_json(folder / TRANSFORMER_CONFIG, transformer_config)
    model_config = {
        "__version__": library_versions(),
        "model_type": "CrossEncoder",
        "activation_fn": _ACTIVATION_PATHS[activation],
        "prompts": {"default": prompt} if prompt else {},
        "default_prompt_name": "default" if prompt else None,
    }
    write_json(folder / MODEL_CONFIG, model_config)
    set_default_file_modes(folder)
