"""The cross-encoder: pairs of texts in, scores out."""

import functools
import hashlib
import inspect
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Encoding, Tokenizer

from sbert_core.encoder import choose_device
from sbert_core.errors import ModelError, TextError
from sbert_core.fingerprint import fingerprint
from sbert_core.folder import EncoderParts
from sbert_core.forward import batch_end
from sbert_core.safety import check_folder, inner_path, read_json
from sbert_core.source import find_model
from sbert_core.tokenization import MAX_CHARACTERS
from sbert_core.transformer import Transformer, _quiet

# Where torch keeps what a folder may name. Names are compared, never imported.
_ACTIVATIONS = {"torch.nn.modules.activation.Sigmoid": "sigmoid", "torch.nn.modules.linear.Identity": "identity"}
_ACTIVATIONS |= {"torch.nn.Sigmoid": "sigmoid", "torch.nn.Identity": "identity"}
_SIMILAR = ("entailment", "paraphrase", "duplicate", "equivalent")
_WINDOW = 4096  # encodings hold strings and offsets next to the ids: only this many are alive at a time


class CrossEncoder:
    """A sequence-classification model that reads both texts of a pair at once, in float32.

    A pair's score does not depend on the other pairs, up to rounding. On CPU threads may share one model.
    """

    def __init__(self, body: Transformer, activation: str, *, prompt: str = "", device: str = "auto") -> None:
        """See `load`; `activation` is sigmoid or identity, `prompt` is put before the first text of each pair."""
        self.device = choose_device(device)
        self.activation, self.prompt, self.max_length = activation, prompt, body.max_tokens
        self.labels: list[str] = [str(label) for _, label in sorted(body.model.config.id2label.items())]
        self._body = body.to(self.device).eval()
        self._tokenizer = Tokenizer.from_str(body.text_tokenizer.definition)
        least = self._tokenizer.num_special_tokens_to_add(is_pair=True) + 2  # below, the tokenizer does not cut at all
        if self.max_length < least:
            raise ModelError(f"max_length must be at least {least} for a pair to fit, got {self.max_length}")
        self._tokenizer.enable_truncation(
            self.max_length, strategy="longest_first", direction=body.tokenizer.truncation_side
        )
        accepted = set(inspect.signature(body.model.forward).parameters) & set(body.tokenizer.model_input_names)
        self._uses_types = "token_type_ids" in accepted

    @classmethod
    def load(
        cls,
        source: str | os.PathLike[str],
        device: str = "auto",
        max_length: int | None = None,
        *,
        revision: str | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        allow_pickle: bool = False,
        allow_code: bool = False,
    ) -> "CrossEncoder":
        """Loads a cross-encoder from a folder, a URI or the hub; the options are those of `SentenceEncoder.load`.

        `max_length` counts the tokens of both texts and the special ones; a longer pair is cut, its longer text first.
        """
        if max_length is not None and max_length < 1:
            raise ModelError(f"max_length must be at least 1, got {max_length}")
        allowed = {"allow_pickle": allow_pickle, "allow_code": allow_code}
        folder = find_model(source, revision=revision, cache_dir=cache_dir, **allowed)
        body = _read_body(folder, max_length, **allowed)
        path = folder / "config_sentence_transformers.json"
        settings = read_json(path) if path.exists() else {}
        prompt = settings.get("prompts", {}).get(settings.get("default_prompt_name")) or ""
        return cls(body, _choose_activation(folder, body.model.config, settings), prompt=prompt, device=device)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Identifies what this model computes; scores of different fingerprints must not be compared."""
        # `fingerprint` leaves out a pooler at the top, which sentence vectors do not use; DeBERTa's classifier does.
        weights = sorted(self._body.model.state_dict().items())
        pooler = [hashlib.sha256(w.cpu().numpy()).hexdigest() for name, w in weights if name.startswith("pooler.")]
        options = {"activation": self.activation, "prompt": self.prompt, "pooler": pooler, "task": "pairs"}
        return fingerprint(EncoderParts(self._body, None), **options, cuts=self._body.tokenizer.truncation_side)

    def predict(self, pairs: Sequence[tuple[str, str]], *, batch_tokens: int | None = None) -> np.ndarray:
        """Returns one float32 per pair, (n,), or with several labels (n, labels), in the order of `pairs`.

        The activation is the model's own, by default the sigmoid for one label and none (logits) for several. Each
        distinct pair is computed once. A batch holds at most `batch_tokens`, padding included.
        """
        logits = self._logits(pairs, batch_tokens)
        activated = torch.sigmoid(logits) if self.activation == "sigmoid" else logits
        return (activated[:, 0] if len(self.labels) == 1 else activated).numpy()

    def score(self, pairs: Sequence[tuple[str, str]], *, batch_tokens: int | None = None) -> np.ndarray:
        """Returns one float32 per pair, (n,), that grows with similarity.

        With one label the prediction; else the probability of entailment, paraphrase, duplicate or equivalent.
        """
        if len(self.labels) == 1:
            return self.predict(pairs, batch_tokens=batch_tokens)
        similar = [column for column, label in enumerate(self.labels) if label.lower() in _SIMILAR]
        if len(similar) != 1:
            raise ModelError(f"the labels are {', '.join(self.labels)}: expected exactly one of {', '.join(_SIMILAR)}")
        return torch.softmax(self._logits(pairs, batch_tokens), dim=1)[:, similar[0]].numpy()

    @torch.inference_mode()
    def _logits(self, pairs: Sequence[tuple[str, str]], batch_tokens: int | None) -> torch.Tensor:
        if batch_tokens is None:
            batch_tokens = 2048 if self.device.type == "cpu" else 32_768
        if batch_tokens < 1:
            raise ModelError(f"batch_tokens must be at least 1, got {batch_tokens}")
        positions: dict[tuple[str, str], int] = {}
        rows = [positions.setdefault(pair, len(positions)) for pair in _check_pairs(pairs)]
        distinct = [(self.prompt + first, second) for first, second in positions]
        logits = torch.zeros(len(distinct), len(self.labels))
        for window in range(0, len(distinct), _WINDOW):
            encodings = self._tokenizer.encode_batch_fast(distinct[window : window + _WINDOW])
            # Without special tokens two empty texts are no token at all, and padding makes that one.
            n_tokens = np.array([max(len(encoding), 1) for encoding in encodings])
            order = np.argsort(-n_tokens, kind="stable")
            start = 0
            while start < len(order):
                stop = batch_end(n_tokens[order], start, batch_tokens, pads=True)
                batch = order[start:stop]
                logits[window + batch] = self._forward([encodings[at] for at in batch], int(n_tokens[order[start]]))
                start = stop
        return logits[rows]

    def _forward(self, batch: list[Encoding], length: int) -> torch.Tensor:
        tokenizer = self._body.tokenizer
        for encoding in batch:
            encoding.pad(
                length,
                direction=tokenizer.padding_side,
                pad_id=self._body.pad_id,
                pad_type_id=tokenizer.pad_token_type_id,
            )
        inputs = {"input_ids": [e.ids for e in batch], "attention_mask": [e.attention_mask for e in batch]}
        if self._uses_types:
            inputs["token_type_ids"] = [e.type_ids for e in batch]
        tensors = {name: torch.tensor(values, device=self.device) for name, values in inputs.items()}  # (n, length)
        return self._body.model(**tensors).logits.cpu()


def _check_pairs(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    if isinstance(pairs, str | bytes | dict | set) or not isinstance(pairs, Iterable):
        raise TextError(f"pairs is a {type(pairs).__name__}: pass a list of pairs of str")
    checked = []
    for row, pair in enumerate(pairs):
        if not isinstance(pair, tuple | list | np.ndarray) or len(pair) != 2:
            raise TextError(f"pairs[{row}] is {type(pair).__name__}, expected a pair of str")
        for side, text in enumerate(pair):
            if not isinstance(text, str):
                raise TextError(f"pairs[{row}][{side}] is {type(text).__name__}, expected str")
        checked.append((_mend(pair[0]), _mend(pair[1])))
    return checked


def _mend(text: str) -> str:
    """Cuts what no tokenizer should see and replaces lone surrogates, as `TextTokenizer` does."""
    return text[:MAX_CHARACTERS].encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _read_body(folder: Path, max_length: int | None, *, allow_pickle: bool, allow_code: bool) -> Transformer:
    if (folder / "modules.json").exists():
        modules = read_json(folder / "modules.json")
        kinds = [entry["type"].rpartition(".")[2] for entry in modules]
        if kinds != ["Transformer"]:
            raise ModelError(f"{folder} is made of {kinds}: expected one Transformer with a classification head")
        folder = inner_path(folder, modules[0]["path"])
    if not (folder / "config.json").exists():
        raise ModelError(f"{folder} has no config.json: it is not a model folder")
    architectures = read_json(folder / "config.json").get("architectures") or []
    if architectures and not any(name.endswith("ForSequenceClassification") for name in architectures):
        raise ModelError(
            f"{folder} holds {architectures[0]}, which has no classification head: "
            "expected a cross-encoder, that is a model of kind ...ForSequenceClassification"
        )
    check_folder(folder, allow_pickle=allow_pickle, allow_code=allow_code)
    local = {"local_files_only": True, "trust_remote_code": allow_code}
    weights = {"dtype": torch.float32, "use_safetensors": None if allow_pickle else True, "output_loading_info": True}
    try:
        with _quiet():
            load_model = transformers.AutoModelForSequenceClassification.from_pretrained
            model, info = load_model(folder, **weights, **local)
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **local)
    except Exception as error:  # transformers, tokenizers and safetensors each raise their own
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelError(f"{folder} cannot be loaded as a sequence-classification model: {reason}") from error
    if info["missing_keys"]:  # transformers has made them up at random
        raise ModelError(
            f"{folder}: the weights lack {len(info['missing_keys'])} tensors of {type(model).__name__}, "
            f"{min(info['missing_keys'])!r} among them: expected a trained cross-encoder"
        )
    path = folder / "sentence_bert_config.json"
    config = read_json(path) if path.exists() else {}
    limit, lower_case = max_length or config.get("max_seq_length"), config.get("do_lower_case") or False
    return Transformer(model, tokenizer, limit, lower_case)


def _choose_activation(folder: Path, config: Any, settings: dict[str, Any]) -> str:
    # Popped: they are notes, and would make the fingerprint depend on which release saved the model.
    newer = vars(config).pop("sentence_transformers", None) or {}
    older = vars(config).pop("sbert_ce_default_activation_function", None)
    path = settings.get("activation_fn") or newer.get("activation_fn") or older
    if path is None:
        return "sigmoid" if config.num_labels == 1 else "identity"
    if str(path) not in _ACTIVATIONS:
        raise ModelError(f"{folder} asks for the activation {path!r}: expected torch.nn's Sigmoid or Identity")
    return _ACTIVATIONS[path]
