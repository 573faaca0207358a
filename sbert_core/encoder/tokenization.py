"""Texts to token ids: the Rust tokenizer without the wrapper of transformers, flat arrays, no padding."""

import dataclasses
import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Encoding, Tokenizer, normalizers

from sbert_core.errors import ModelError

MAX_CHARACTERS = 1_000_000
"""A text is read up to here: a tokenizer's memory grows with its input, and no model sees that many characters."""

MAX_ENCODINGS = 4096
"""How many encodings are held at a time: each stores strings and offsets besides the ids."""


@dataclasses.dataclass(frozen=True)
class TokenizedTexts:
    """Token ids of many texts, concatenated.

    `n_tokens` counts the tokens of each text that the model sees, special tokens included.
    """

    ids: np.ndarray  # (sum of n_tokens,) int32
    n_tokens: np.ndarray  # (n,) int64
    truncated: np.ndarray  # (n,) bool

    @property
    def starts(self) -> np.ndarray:
        """Where each text begins in `ids`: (n,)."""
        return np.cumsum(self.n_tokens) - self.n_tokens


class TextTokenizer:
    """Converts texts to token ids, truncated to `max_tokens` (None: no limit)."""

    def __init__(
        self,
        backend: Tokenizer,
        max_tokens: int | None,
        special_tokens: bool = True,
        lower_case: bool = False,
    ) -> None:
        self._backend = Tokenizer.from_str(backend.to_str())  # a copy: the settings below are for this object only
        self._backend.no_padding()
        self._backend.no_truncation()
        if lower_case and not _lower_cases(self._backend):
            first = normalizers.Lowercase()
            rest = self._backend.normalizer
            self._backend.normalizer = normalizers.Sequence([first, rest] if rest else [first])
        self.definition = self._backend.to_str()
        """The tokenizer as JSON, without padding and truncation."""
        if max_tokens is not None:
            self._backend.enable_truncation(max_tokens)
        self._special_tokens = special_tokens

    def tokenize(self, texts: Sequence[str]) -> TokenizedTexts:
        """Tokenizes `texts`. A lone surrogate is read as U+FFFD, the replacement character."""
        ids, counts, truncated = [], [], []
        for start in range(0, len(texts), MAX_ENCODINGS):
            window = [text[:MAX_CHARACTERS] for text in texts[start : start + MAX_ENCODINGS]]
            encodings = self._encode(window)
            counts.append(np.fromiter(map(len, encodings), np.int64, len(encodings)))
            flat = chain.from_iterable(encoding.ids for encoding in encodings)
            ids.append(np.fromiter(flat, np.int32, counts[-1].sum()))
            truncated += [bool(encoding.overflowing) for encoding in encodings]
        too_long = np.fromiter((len(text) > MAX_CHARACTERS for text in texts), bool, len(texts))
        return TokenizedTexts(
            ids=np.concatenate(ids) if ids else np.empty(0, np.int32),
            n_tokens=np.concatenate(counts) if counts else np.empty(0, np.int64),
            truncated=np.array(truncated, dtype=bool) | too_long,
        )

    def count_prompt_tokens(self, prompt: str) -> int:
        """Returns the number of tokens of `prompt` at the front of a text, an opening special token included."""
        encoding = self._encode([prompt])[0]
        closes = len(encoding) > 0 and encoding.special_tokens_mask[-1] == 1
        return len(encoding) - closes

    def _encode(self, texts: list[str]) -> list[Encoding]:
        try:
            return self._backend.encode_batch_fast(texts, add_special_tokens=self._special_tokens)
        except TypeError:  # raised for a text that is not valid Unicode
            valid = [replace_surrogates(text) for text in texts]
            return self._backend.encode_batch_fast(valid, add_special_tokens=self._special_tokens)


def replace_surrogates(text: str) -> str:
    """Replaces lone surrogates by U+FFFD and joins surrogate pairs into their character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def check_vocabulary(folder: Path, tokenizer: Tokenizer, n_vectors: int) -> None:
    """Refuses a tokenizer with an empty vocabulary, or with more tokens than the model has vectors.

    Added tokens do not count: some models have added tokens without a vector that occur in no text.
    """
    size = tokenizer.get_vocab_size(with_added_tokens=False)
    if not 0 < size <= n_vectors:
        raise ModelError(
            f"{folder}: the tokenizer has {size:,} tokens, but the model has vectors for {n_vectors:,}: "
            "they do not belong together, download the folder again"
        )


def _lower_cases(backend: Tokenizer) -> bool:
    """Whether the tokenizer's own normalizer converts to lower case."""

    def search(node: Any) -> bool:
        if isinstance(node, dict):
            return node.get("type") == "Lowercase" or node.get("lowercase") is True or search(node.get("normalizers"))
        return isinstance(node, list) and any(map(search, node))

    return search(json.loads(backend.to_str()).get("normalizer"))
