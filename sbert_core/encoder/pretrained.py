"""Loads a model and its tokenizer from a Hugging Face folder, with checks that transformers does not make."""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from sbert_core.encoder.tokenization import check_vocabulary
from sbert_core.encoder.weights import check_finite, check_fits
from sbert_core.errors import ModelError

# The files in which tokenizers store their vocabulary.
_VOCABULARY_FILES = (
    *("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model", "spm.model"),
    *("sentencepiece.bpe.model", "sentencepiece.model", "vocab.model", "bpe.codes"),
)


def load_config(folder: Path, allow_code: bool = False, **overrides: Any) -> PretrainedConfig:
    """Loads `config.json`, with some of its values replaced."""
    with silence_transformers():
        return transformers.AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=allow_code, **overrides
        )


def load_weights(
    folder: Path,
    model_class: Any,
    config: PretrainedConfig,
    *,
    new_head: bool = False,
    allow_pickle: bool = False,
    allow_code: bool = False,
) -> tuple[PreTrainedModel, set[str]]:
    """Loads the weights of a folder into a `model_class`, in float32.

    Returns the model, and the names of the tensors that the folder lacks or, with `new_head`, holds in another shape:
    transformers has filled them with random numbers. The folder is expected to have passed `check_folder`.
    """
    with silence_transformers():
        if not allow_code:  # a custom class decides by itself what it builds
            check_fits(folder, config, model_class, new_head=new_head)
        model, info = model_class.from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            local_files_only=True,
            use_safetensors=None if allow_pickle else True,
            output_loading_info=True,
            ignore_mismatched_sizes=new_head,
            **({"trust_remote_code": True} if allow_code else {}),
        )
    check_finite(folder, model)
    return model, set(info["missing_keys"]) | {name for name, *_ in info["mismatched_keys"]}


def refuse_missing(folder: Path, model: PreTrainedModel, missing: Iterable[str], remedy: str) -> None:
    """Refuses a model if `missing`, the names of tensors that it needs and its folder lacks, is not empty."""
    names = sorted(missing)
    if names:
        raise ModelError(
            f"{folder}: the weights lack {len(names)} tensors of {type(model).__name__}, for example {names[0]!r}: "
            f"{remedy}"
        )


def load_tokenizer(folder: Path, n_vectors: int, allow_code: bool = False) -> PreTrainedTokenizerBase:
    """Loads the tokenizer of a folder, for a model with `n_vectors` token vectors."""
    if not any((folder / name).exists() for name in _VOCABULARY_FILES):  # transformers would create an empty one
        raise ModelError(f"{folder} has no tokenizer.json: it is not a complete model folder")
    path = folder / "tokenizer.json"
    if path.exists():
        Tokenizer.from_file(str(path))  # transformers would ignore a damaged one
    with silence_transformers():
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=allow_code
        )
    if tokenizer.is_fast:
        check_vocabulary(folder, tokenizer.backend_tokenizer, n_vectors)
    return tokenizer


@contextlib.contextmanager
def silence_transformers() -> Iterator[None]:
    """Turns off the progress bars and load reports of transformers; our own checks raise what matters in them.

    The verbosity of transformers is global to the process: it is restored at the end.
    """
    logging = transformers.utils.logging
    verbosity, bars_enabled = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars_enabled:
            logging.enable_progress_bar()
