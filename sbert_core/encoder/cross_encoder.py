"""The cross-encoder: pairs of texts in, scores out."""

import functools
import hashlib
import inspect
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import transformers
from tokenizers import Encoding, Tokenizer

from sbert_core.encoder.config_files import read_optional_object
from sbert_core.encoder.cross_encoder_folder import (
    choose_activation,
    read_cross_encoder,
    start_cross_encoder,
    write_cross_encoder,
)
from sbert_core.encoder.device import choose_device
from sbert_core.encoder.fingerprint import fingerprint
from sbert_core.encoder.model_folder import MODEL_CONFIG, EncoderParts, read_prompts
from sbert_core.encoder.model_source import find_model
from sbert_core.encoder.safety import refuse_damage
from sbert_core.encoder.text_inputs import check_pairs, distinct_items
from sbert_core.encoder.token_batches import TokenBatches, default_batch_tokens
from sbert_core.encoder.tokenization import MAX_CHARACTERS, MAX_ENCODINGS, replace_surrogates
from sbert_core.encoder.transformer import Transformer
from sbert_core.errors import ModelError

SIMILAR_LABELS = ("entailment", "paraphrase", "duplicate", "equivalent")
"""The labels, in lower case, whose probability is a similarity."""


class CrossEncoder:
    """A sequence-classification model that reads both texts of a pair at once, in float32.

    A pair's score does not depend on the other pairs, up to rounding. On CPU, threads may share one model.
    """

    def __init__(self, body: Transformer, activation: str, *, prompt: str = "", device: str = "auto") -> None:
        """See `load`; `activation` is sigmoid or identity, `prompt` is a prefix of the first text of each pair."""
        self.device = choose_device(device)
        self.activation, self.prompt, self.max_length = activation, prompt, body.max_tokens
        self.labels: list[str] = [str(label) for _, label in sorted(body.model.config.id2label.items())]
        self._body = body.to(self.device).eval()
        self.model: transformers.PreTrainedModel = body.model
        self._tokenizer = Tokenizer.from_str(body.text_tokenizer.definition)
        # Below this length the tokenizer does not truncate at all.
        min_length = self._tokenizer.num_special_tokens_to_add(is_pair=True) + 2
        if self.max_length < min_length:
            raise ModelError(f"max_length must be at least {min_length} for a pair to fit, got {self.max_length}")
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

        `max_length` counts the tokens of both texts and the special tokens; of a longer pair the longer text is
        truncated first.
        """
        folder = find_model(
            source, revision=revision, cache_dir=cache_dir, allow_pickle=allow_pickle, allow_code=allow_code
        )
        body = read_cross_encoder(folder, max_length, allow_pickle=allow_pickle, allow_code=allow_code)
        settings = read_optional_object(folder / MODEL_CONFIG)
        prompts, default_name = read_prompts(folder)
        with refuse_damage(folder, "score a pair"):
            activation = choose_activation(folder, body.model.config, settings)
            encoder = cls(body, activation, prompt=prompts.get(default_name or "", ""), device=device)
            # A valid configuration can still describe a model that cannot be computed: score a pair to find out.
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
        """Adds a head for `labels` to an encoder, to be trained: `default`, a folder, a URI or a hub name.

        Of a sentence encoder only the transformer is used. The head's weights are drawn from torch's global generator;
        a cross-encoder's own head is kept if it has as many labels.
        """
        body = start_cross_encoder(find_model(source), labels, max_length)
        return cls(body, "sigmoid" if len(labels) == 1 else "identity", device=device)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the model as a folder that `load` and sentence-transformers read.

        An existing model is replaced in one step, when the new one is complete.
        """
        write_cross_encoder(Path(folder), self._body, self.activation, self.prompt)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Identifies what this model computes; scores of different fingerprints must not be compared."""
        # `fingerprint` skips a pooler at the top level, which sentence vectors do not use; DeBERTa's classifier does.
        weights = sorted(self._body.model.state_dict().items())
        pooler = [hashlib.sha256(w.cpu().numpy()).hexdigest() for name, w in weights if name.startswith("pooler.")]
        options = {"activation": self.activation, "prompt": self.prompt, "pooler": pooler, "task": "pairs"}
        return fingerprint(EncoderParts(self._body, None), **options, cuts=self._body.tokenizer.truncation_side)

    def predict(
        self, pairs: Sequence[tuple[str, str]], *, batch_tokens: int | None = None, logits: bool = False
    ) -> np.ndarray:
        """Returns one float32 per pair, (n,), or with several labels (n, labels), in the order of `pairs`.

        The activation is the model's own, by default the sigmoid for one label and none for several; `logits` skips
        it. Each distinct pair is computed once. A batch holds at most `batch_tokens`, padding included.
        """
        scores = self._predict_logits(pairs, batch_tokens)
        if self.activation == "sigmoid" and not logits:
            scores = torch.sigmoid(scores)
        return (scores[:, 0] if len(self.labels) == 1 else scores).numpy()

    def score(self, pairs: Sequence[tuple[str, str]], *, batch_tokens: int | None = None) -> np.ndarray:
        """Returns one float32 per pair, (n,), that grows with similarity.

        With one label the prediction; else the probability of entailment, paraphrase, duplicate or equivalent.
        """
        if len(self.labels) == 1:
            return self.predict(pairs, batch_tokens=batch_tokens)
        similar = [column for column, label in enumerate(self.labels) if label.lower() in SIMILAR_LABELS]
        if len(similar) != 1:
            raise ModelError(
                f"the labels are {', '.join(self.labels)}: expected exactly one of {', '.join(SIMILAR_LABELS)}"
            )
        return torch.softmax(self._predict_logits(pairs, batch_tokens), dim=1)[:, similar[0]].numpy()

    @torch.inference_mode()
    def _predict_logits(self, pairs: Sequence[tuple[str, str]], batch_tokens: int | None) -> torch.Tensor:
        batches = TokenBatches(default_batch_tokens(self.device) if batch_tokens is None else batch_tokens, pads=True)
        distinct, rows = distinct_items(check_pairs(pairs))
        logits = torch.zeros(len(distinct), len(self.labels))
        for window in range(0, len(distinct), MAX_ENCODINGS):
            encodings = self._encode(distinct[window : window + MAX_ENCODINGS])
            # Without special tokens two empty texts have no token, and padding adds one.
            n_tokens = np.array([max(len(encoding), 1) for encoding in encodings])
            window_logits = logits[window : window + MAX_ENCODINGS]
            batches.run(n_tokens, functools.partial(self._fill_logits, window_logits, encodings))
        return logits[rows]

    def _fill_logits(self, logits: torch.Tensor, encodings: list[Encoding], batch: np.ndarray) -> None:
        logits[batch] = self._forward([encodings[row] for row in batch]).cpu()

    def count_tokens(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Returns the number of tokens of each pair that the model sees: (n,) int64."""
        checked = check_pairs(pairs)
        windows = (
            self._encode(checked[start : start + MAX_ENCODINGS]) for start in range(0, len(checked), MAX_ENCODINGS)
        )
        return np.array([len(encoding) for window in windows for encoding in window], dtype=np.int64)

    def logits(self, pairs: Sequence[tuple[str, str]]) -> torch.Tensor:
        """Returns the logits (n, labels) of one batch, with gradients: for training."""
        return self._forward(self._encode(pairs))

    def _encode(self, pairs: Sequence[tuple[str, str]]) -> list[Encoding]:
        return self._tokenizer.encode_batch_fast(
            [(self.prompt + _valid_text(first), _valid_text(second)) for first, second in pairs]
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


def _valid_text(text: str) -> str:
    """Applies the limit and the replacement of lone surrogates that `TextTokenizer` applies."""
    return replace_surrogates(text[:MAX_CHARACTERS])
