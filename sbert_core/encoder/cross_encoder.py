"""The cross-encoder: pairs of texts in, scores out."""

import functools
import hashlib
import inspect
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
import transformers
from tokenizers import Encoding, Tokenizer

from sbert_core.encoder.cross_encoder_folder import choose_activation, read_cross_encoder, write_cross_encoder
from sbert_core.encoder.fingerprint import fingerprint
from sbert_core.encoder.forward import batch_end
from sbert_core.encoder.model_folder import EncoderParts, read_prompts
from sbert_core.encoder.model_source import find_model
from sbert_core.encoder.safety import read_object, refuse_damage
from sbert_core.encoder.sentence_encoder import choose_device
from sbert_core.encoder.tokenization import MAX_CHARACTERS
from sbert_core.encoder.transformer import Transformer
from sbert_core.errors import ModelError, TextError

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
        self.model: transformers.PreTrainedModel = body.model
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
        folder = find_model(
            source, revision=revision, cache_dir=cache_dir, allow_pickle=allow_pickle, allow_code=allow_code
        )
        body = read_cross_encoder(folder, max_length, allow_pickle=allow_pickle, allow_code=allow_code)
        path = folder / "config_sentence_transformers.json"
        settings = read_object(path) if path.exists() else {}
        prompts, default = read_prompts(folder)
        with refuse_damage(folder, "score a pair"):
            activation = choose_activation(folder, body.model.config, settings)
            encoder = cls(body, activation, prompt=prompts.get(default or "", ""), device=device)
            # A configuration may be well-formed and yet nothing that can be computed with.
            if not np.isfinite(encoder.predict([("a text", "another")])).all():
                raise ModelError(f"{folder} gives a score that is not finite: its weights are damaged")
        return encoder

    @classmethod
    def begin(
        cls,
        source: str | os.PathLike[str],
        labels: Sequence[str] = ("LABEL_0",),
        device: str = "auto",
        max_length: int | None = None,
    ) -> "CrossEncoder":
        """Puts a head for `labels` on an encoder, to be trained: `default`, a folder, a URI or a hub name.

        The folder is a plain Hugging Face one or of sentence-transformers, of which only the transformer is taken. The
        head is drawn from torch's generator; a cross-encoder's own is kept if it has as many labels.
        """
        body = read_cross_encoder(find_model(source), max_length, labels)
        return cls(body, "sigmoid" if len(labels) == 1 else "identity", device=device)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the model as a folder that `load` and sentence-transformers read.

        It is written next to its place and then renamed, so that a model that is there already is replaced as a whole.
        """
        write_cross_encoder(Path(folder), self._body, self.activation, self.prompt)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Identifies what this model computes; scores of different fingerprints must not be compared."""
        # `fingerprint` leaves out a pooler at the top, which sentence vectors do not use; DeBERTa's classifier does.
        weights = sorted(self._body.model.state_dict().items())
        pooler = [hashlib.sha256(w.cpu().numpy()).hexdigest() for name, w in weights if name.startswith("pooler.")]
        options = {"activation": self.activation, "prompt": self.prompt, "pooler": pooler, "task": "pairs"}
        return fingerprint(EncoderParts(self._body, None), **options, cuts=self._body.tokenizer.truncation_side)

    def predict(
        self, pairs: Sequence[tuple[str, str]], *, batch_tokens: int | None = None, logits: bool = False
    ) -> np.ndarray:
        """Returns one float32 per pair, (n,), or with several labels (n, labels), in the order of `pairs`.

        The activation is the model's own, by default the sigmoid for one label and none for several; with `logits` it
        is left out. Each distinct pair is computed once. A batch holds at most `batch_tokens`, padding included.
        """
        found = self._logits(pairs, batch_tokens)
        if self.activation == "sigmoid" and not logits:
            found = torch.sigmoid(found)
        return (found[:, 0] if len(self.labels) == 1 else found).numpy()

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
        distinct = list(positions)
        logits = torch.zeros(len(distinct), len(self.labels))
        for window in range(0, len(distinct), _WINDOW):
            encodings = self._encode(distinct[window : window + _WINDOW])
            # Without special tokens two empty texts are no token at all, and padding makes that one.
            n_tokens = np.array([max(len(encoding), 1) for encoding in encodings])
            order = np.argsort(-n_tokens, kind="stable")
            start = 0
            while start < len(order):
                stop = batch_end(n_tokens[order], start, batch_tokens, pads=True)
                batch = order[start:stop]
                logits[window + batch] = self._forward([encodings[at] for at in batch]).cpu()
                start = stop
        return logits[rows]

    def count_tokens(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """How many tokens the model sees of each pair: (n,) int64."""
        checked = _check_pairs(pairs)
        windows = (self._encode(checked[start : start + _WINDOW]) for start in range(0, len(checked), _WINDOW))
        return np.array([len(encoding) for window in windows for encoding in window], dtype=np.int64)

    def logits(self, pairs: Sequence[tuple[str, str]]) -> torch.Tensor:
        """The logits (n, labels) of one batch, with gradients, as the model is now: for training."""
        return self._forward(self._encode(pairs))

    def _encode(self, pairs: Sequence[tuple[str, str]]) -> list[Encoding]:
        return self._tokenizer.encode_batch_fast(
            [(self.prompt + _mend(first), _mend(second)) for first, second in pairs]
        )

    def _forward(self, batch: list[Encoding]) -> torch.Tensor:
        tokenizer = self._body.tokenizer
        length = max(1, *map(len, batch))
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
        return self.model(**tensors).logits


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
        checked.append((pair[0], pair[1]))
    return checked


def _mend(text: str) -> str:
    """Cuts what no tokenizer should see and replaces lone surrogates, as `TextTokenizer` does."""
    return text[:MAX_CHARACTERS].encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
