"""The sentence encoder: texts in, vectors out."""

import dataclasses
import functools
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, overload

import numpy as np
import torch

from sbert_core.encoder.device import Precision, choose_device, choose_precision
from sbert_core.encoder.fingerprint import fingerprint
from sbert_core.encoder.forward import choose_forward
from sbert_core.encoder.heads import Normalize
from sbert_core.encoder.model_folder import EncoderParts, check_model_target, read_folder, write_folder
from sbert_core.encoder.model_source import find_model
from sbert_core.encoder.prompts import document_prompt, query_prompt
from sbert_core.encoder.quantization import OutputPrecision, quantize
from sbert_core.encoder.safety import refuse_damage
from sbert_core.encoder.text_inputs import check_texts, distinct_items
from sbert_core.encoder.token_batches import TokenBatches
from sbert_core.encoder.tokenization import TokenizedTexts
from sbert_core.errors import ModelError, TextError
from sbert_core.progress import ProgressBar


@dataclasses.dataclass(frozen=True)
class Encoded:
    """Vectors of texts, with their token counts."""

    embeddings: np.ndarray  # (n, dim)
    n_tokens: np.ndarray  # (n,) int64: tokens that the model saw, special tokens and prompt included
    truncated: np.ndarray  # (n,) bool: the text was longer than that


class SentenceEncoder:
    """A Sentence-BERT encoder: transformer (or static table), pooling, dense layers, normalization.

    The vector of a text does not depend on the other texts of the call. On CPU, threads may share one encoder;
    concurrent `encode` calls on a GPU are not safe.
    """

    def __init__(
        self,
        parts: EncoderParts,
        *,
        device: str = "auto",
        precision: Precision = "auto",
        truncate_dim: int | None = None,
        batch_tokens: int | None = None,
    ) -> None:
        """See `load` for the options."""
        self.parts = parts
        self.device = choose_device(device)
        self.precision = choose_precision(precision, self.device)
        self._forward = choose_forward(parts, self.device, self.precision)
        if batch_tokens is None:
            batch_tokens = self._forward.batch_tokens
        self._batches = TokenBatches(batch_tokens, pads=self._forward.pads)
        for head in parts.heads:
            head.to(self.device).eval()
        if truncate_dim is not None and not 0 < truncate_dim <= parts.dim:
            raise ModelError(f"truncate_dim must be between 1 and the model's {parts.dim}, got {truncate_dim}")
        self.dim: int = truncate_dim or parts.dim
        """Length of a vector."""
        self._truncates = self.dim < parts.dim

    @classmethod
    def load(
        cls,
        model: str | os.PathLike[str] = "default",
        device: str = "auto",
        *,
        precision: Precision = "auto",
        max_tokens: int | None = None,
        normalize: bool | None = None,
        truncate_dim: int | None = None,
        batch_tokens: int | None = None,
        revision: str | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        allow_pickle: bool = False,
        allow_code: bool = False,
    ) -> "SentenceEncoder":
        """Loads an encoder.

        Args:
            model: `default` (all-MiniLM-L6-v2), a folder, a URI (gs://, s3://, file://) or a hub name.
            device: `auto` (CUDA, then MPS, then CPU), or torch's name of a device.
            precision: the number format of the computation. `auto` is float16 on CUDA and float32 elsewhere; `int8` is
                a faster and lossy mode for CPU.
            max_tokens: truncates texts here instead of at the model's own limit.
            normalize: adds (True) or removes (False) the scaling to unit length; None keeps the model's own setting.
            truncate_dim: keeps the first dimensions only (Matryoshka); unit vectors are scaled to unit length again.
            batch_tokens: tokens per batch; halved permanently when CUDA runs out of memory.
            revision: branch, tag or commit of a hub model.
            cache_dir: cache for models from a URI; default $SBERT_BEAM_CACHE or ~/.cache/sbert-beam.
            allow_pickle: permits weights in pickle files.
            allow_code: permits Python code in the model folder.
        """
        if max_tokens is not None and max_tokens < 1:
            raise ModelError(f"max_tokens must be at least 1, got {max_tokens}")
        permissions = {"allow_pickle": allow_pickle, "allow_code": allow_code}
        folder = find_model(model, revision=revision, cache_dir=cache_dir, **permissions)
        parts = read_folder(folder, max_tokens=max_tokens, **permissions)
        if normalize is not None:
            heads = [head for head in parts.heads if not isinstance(head, Normalize)]
            parts = dataclasses.replace(parts, heads=(*heads, Normalize()) if normalize else tuple(heads))
        with refuse_damage(folder, "encode a text"):
            encoder = cls(
                parts, device=device, precision=precision, truncate_dim=truncate_dim, batch_tokens=batch_tokens
            )
            # A valid configuration can still describe a model that cannot be computed: encode a text to find out.
            if not np.isfinite(encoder.encode(["a text"], prompt="")).all():
                raise ModelError(f"{folder} gives a vector that is not finite: its weights are damaged")
        return encoder

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the model as a folder that `load` and sentence-transformers read.

        Weights are saved in float32 with all dimensions: int8 is an option of `load`.
        """
        if self.precision in ("float16", "bfloat16"):
            raise ModelError(f"this encoder holds its weights in {self.precision}: load it in float32 to save it")
        if self._truncates:
            raise ModelError("a model folder cannot store truncate_dim: save a model loaded without it")
        check_model_target(Path(folder))
        write_folder(Path(folder), self.parts)

    def __repr__(self) -> str:
        kind = type(getattr(self.parts.body, "model", self.parts.body)).__name__
        return f"SentenceEncoder({kind}, dim={self.dim}, device={self.device}, precision={self.precision})"

    @property
    def max_tokens(self) -> int | None:
        """Maximum number of tokens of a text, special tokens included; None if there is no limit."""
        return self.parts.body.max_tokens

    @property
    def normalizes(self) -> bool:
        """Whether vectors have unit length."""
        return any(isinstance(head, Normalize) for head in self.parts.heads[-1:])

    @functools.cached_property
    def fingerprint(self) -> str:
        """Identifies what this encoder computes; vectors of different fingerprints must not be mixed."""
        return fingerprint(self.parts, precision=self.precision, dim=self.dim)

    @overload
    def encode(
        self,
        texts: Iterable[str],
        *,
        details: Literal[False] = ...,
        prompt: str | None = ...,
        prompt_name: str | None = ...,
        output_precision: OutputPrecision = ...,
        ranges: np.ndarray | None = ...,
        progress: bool = ...,
    ) -> np.ndarray: ...

    @overload
    def encode(
        self,
        texts: Iterable[str],
        *,
        details: Literal[True],
        prompt: str | None = ...,
        prompt_name: str | None = ...,
        output_precision: OutputPrecision = ...,
        ranges: np.ndarray | None = ...,
        progress: bool = ...,
    ) -> Encoded: ...

    def encode(
        self,
        texts: Iterable[str],
        *,
        prompt: str | None = None,
        prompt_name: str | None = None,
        output_precision: OutputPrecision = "float32",
        ranges: np.ndarray | None = None,
        details: bool = False,
        progress: bool = False,
    ) -> np.ndarray | Encoded:
        """Encodes `texts` into vectors (n, dim), in their order; each distinct text is computed once.

        An empty text is encoded like any other; a text without tokens gets the zero vector. A lone surrogate counts as
        U+FFFD. Anything that is not a `str` is a `TextError`, raised before any text is encoded.

        Args:
            texts: any iterable of str, also a column of pyarrow, pandas or numpy.
            prompt: prefix of each text; "" for none, even if the model has a default prompt.
            prompt_name: the name of one of the model's own prompts.
            output_precision: float32, float16, int8, uint8, binary or ubinary (see `quantize`).
            ranges: required for int8 and uint8, (2, dim), from `calibrate`.
            details: returns `Encoded`, with token counts and which texts were truncated.
            progress: shows a progress bar.
        """
        checked = check_texts(texts)
        prefix = self._choose_prompt(prompt, prompt_name)
        distinct, rows = distinct_items(checked)
        tokenizer = self.parts.body.text_tokenizer
        tokenized = tokenizer.tokenize([prefix + text for text in distinct])
        prompt_tokens = tokenizer.count_prompt_tokens(prefix) if prefix else 0
        vectors = quantize(self._embed(tokenized, prompt_tokens, progress), output_precision, ranges)
        if len(distinct) < len(checked):
            vectors = vectors[rows]
        if not details:
            return vectors
        return Encoded(vectors, tokenized.n_tokens[rows], tokenized.truncated[rows])

    def encode_query(self, texts: Iterable[str], *, progress: bool = False) -> np.ndarray:
        """Encodes queries: with the model's prompt `query`, or without a prompt."""
        return self.encode(texts, prompt=query_prompt(self.parts.prompts), progress=progress)

    def encode_document(self, texts: Iterable[str], *, progress: bool = False) -> np.ndarray:
        """Encodes documents: with the model's prompt `document`, `passage` or `corpus`, or without a prompt."""
        return self.encode(texts, prompt=document_prompt(self.parts.prompts), progress=progress)

    @torch.inference_mode()
    def _embed(self, tokenized: TokenizedTexts, prompt_tokens: int, progress: bool) -> np.ndarray:
        output = np.zeros((len(tokenized.n_tokens), self.dim), dtype=np.float32)
        rows = np.flatnonzero(tokenized.n_tokens)  # a text without tokens keeps the zero vector
        n_tokens, starts = tokenized.n_tokens[rows], tokenized.starts[rows]
        with ProgressBar("encode", len(rows), "texts", disable=not progress) as bar:

            def compute(batch: np.ndarray) -> None:
                spans = zip(starts[batch], n_tokens[batch], strict=True)
                ids = [tokenized.ids[start : start + size] for start, size in spans]
                output[rows[batch]] = self._apply_heads(self._forward(ids, prompt_tokens)).cpu().numpy()
                bar.advance(len(batch))

            self._batches.run(n_tokens, compute)
        return output

    def _apply_heads(self, vectors: torch.Tensor) -> torch.Tensor:
        for head in self.parts.heads:
            vectors = head(vectors)
        if self._truncates:
            vectors = vectors[:, : self.dim]
            if self.normalizes:
                vectors = torch.nn.functional.normalize(vectors, dim=-1)
        return vectors

    def _choose_prompt(self, prompt: str | None, prompt_name: str | None) -> str:
        if prompt is not None and prompt_name is not None:
            raise ModelError("give prompt or prompt_name, not both")
        if prompt is not None:
            if not isinstance(prompt, str):
                raise TextError(f"prompt is {type(prompt).__name__}, expected str")
            return prompt
        name = prompt_name or self.parts.default_prompt_name
        if name is None:
            return ""
        if name not in self.parts.prompts:
            names = ", ".join(map(repr, self.parts.prompts)) or "none"
            raise ModelError(f"the model has no prompt {name!r}; it has: {names}")
        return self.parts.prompts[name]
