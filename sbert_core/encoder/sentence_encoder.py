"""The sentence encoder: texts in, vectors out."""

import dataclasses
import functools
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, get_args, overload

import numpy as np
import torch

from sbert_core.encoder.fingerprint import fingerprint
from sbert_core.encoder.forward import Forward, PackedForward, PaddedForward, StaticForward, batch_end
from sbert_core.encoder.heads import Normalize
from sbert_core.encoder.int8 import int8_linear
from sbert_core.encoder.model_folder import EncoderParts, read_folder, write_folder
from sbert_core.encoder.model_source import find_model
from sbert_core.encoder.packed_transformer import PackedTransformer, float_linear
from sbert_core.encoder.prompts import document_prompt, query_prompt
from sbert_core.encoder.quantization import OutputPrecision, quantize
from sbert_core.encoder.safety import refuse_damage
from sbert_core.encoder.static_embedding import StaticEmbedding
from sbert_core.encoder.tokenization import TokenizedTexts
from sbert_core.errors import ModelError, TextError
from sbert_core.progress import ProgressBar

Precision = Literal["auto", "float32", "float16", "bfloat16", "int8"]


@dataclasses.dataclass(frozen=True)
class Encoded:
    """Vectors of texts, with what the encoder saw of each."""

    embeddings: np.ndarray  # (n, dim)
    n_tokens: np.ndarray  # (n,) int64: tokens the model saw, special tokens and prompt included
    truncated: np.ndarray  # (n,) bool: the text was longer than that


class SentenceEncoder:
    """A Sentence-BERT encoder: transformer (or static table), pooling, dense layers, normalisation.

    The same text gives the same vector whatever else is encoded with it. Not safe for concurrent `encode`
    calls on a GPU; on CPU threads may share one encoder.
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
        self.precision = _choose_precision(precision, self.device)
        self._forward = self._choose_forward()
        self._batch_tokens = batch_tokens or self._forward.batch_tokens
        if batch_tokens is not None and batch_tokens < 1:
            raise ModelError(f"batch_tokens must be at least 1, got {batch_tokens}")
        for head in parts.heads:
            head.to(self.device).eval()
        sized = [parts.body, *([parts.pooling] if parts.pooling else []), *parts.heads]
        full_dim = next(module.dim for module in reversed(sized) if not isinstance(module, Normalize))
        if truncate_dim is not None and not 0 < truncate_dim <= full_dim:
            raise ModelError(f"truncate_dim must be between 1 and the model's {full_dim}, got {truncate_dim}")
        self.dim: int = truncate_dim or full_dim
        """Length of a vector."""
        self._truncates = self.dim < full_dim

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
            device: `auto` takes CUDA, then MPS, then CPU; or torch's name of a device.
            precision: what to compute in. `auto` is float16 on CUDA and float32 elsewhere; `int8` is a faster
                and lossy mode for CPU.
            max_tokens: cuts texts here instead of at the model's own limit.
            normalize: adds (True) or leaves out (False) the scaling to unit length; None does as the model says.
            truncate_dim: keeps the first dimensions only (Matryoshka); unit vectors are scaled to unit length again.
            batch_tokens: tokens per batch; halved for good when CUDA runs out of memory.
            revision: branch, tag or commit of a hub model.
            cache_dir: where models behind a URI are kept; default $SBERT_BEAM_CACHE or ~/.cache/sbert-beam.
            allow_pickle: reads weights from pickle files.
            allow_code: runs Python code that the model brings.
        """
        if max_tokens is not None and max_tokens < 1:
            raise ModelError(f"max_tokens must be at least 1, got {max_tokens}")
        allowed = {"allow_pickle": allow_pickle, "allow_code": allow_code}
        folder = find_model(model, revision=revision, cache_dir=cache_dir, **allowed)
        parts = read_folder(folder, max_tokens=max_tokens, **allowed)
        if normalize is not None:
            heads = [head for head in parts.heads if not isinstance(head, Normalize)]
            parts = dataclasses.replace(parts, heads=(*heads, Normalize()) if normalize else tuple(heads))
        with refuse_damage(folder, "encode a text"):
            encoder = cls(
                parts, device=device, precision=precision, truncate_dim=truncate_dim, batch_tokens=batch_tokens
            )
            encoder._check_works(folder)
        return encoder

    def _check_works(self, folder: Path) -> None:
        """Tries a text: a configuration may be well-formed and yet nothing that can be computed with."""
        if not np.isfinite(self.encode(["a text"], prompt="")).all():
            raise ModelError(f"{folder} gives a vector that is not finite: its weights are damaged")

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the model as a folder that `load` and sentence-transformers read.

        Weights are saved in float32 and in full: int8 is a way to load them.
        """
        if self.precision in ("float16", "bfloat16"):
            raise ModelError(f"this encoder holds its weights in {self.precision}: load it in float32 to save it")
        if self._truncates:
            raise ModelError(
                "a model folder cannot say truncate_dim: load without it to save, and give it when loading"
            )
        target = Path(folder)
        names = {path.name for path in target.iterdir()} if target.is_dir() else {"a file"}
        if target.exists() and names and not names & {"modules.json", "config.json"}:
            raise ModelError(f"{target} is there already and is not a model folder: choose another")
        write_folder(target, self.parts)

    def __repr__(self) -> str:
        kind = type(getattr(self.parts.body, "model", self.parts.body)).__name__
        return f"SentenceEncoder({kind}, dim={self.dim}, device={self.device}, precision={self.precision})"

    @property
    def max_tokens(self) -> int | None:
        """Tokens of a text the model sees, special tokens included; None if there is no limit."""
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

        An empty text is encoded like any other; one without a single token gets the zero vector. A lone surrogate
        counts as U+FFFD. Anything that is not a `str` is a `TextError`, raised before work begins.

        Args:
            texts: any iterable of str; a column of pyarrow, pandas or numpy too.
            prompt: put before each text; "" for none, even if the model has a default prompt.
            prompt_name: the name of one of the model's own prompts.
            output_precision: float32, float16, int8, uint8, binary or ubinary (see `quantize`).
            ranges: what int8 and uint8 need, (2, dim), from `calibrate`.
            details: returns `Encoded`, with token counts and which texts were truncated.
            progress: shows a progress bar.
        """
        checked = _check_texts(texts)
        prefix = self._choose_prompt(prompt, prompt_name)
        positions: dict[str, int] = {}
        rows = np.fromiter((positions.setdefault(text, len(positions)) for text in checked), np.int64, len(checked))
        tokenizer = self.parts.body.text_tokenizer
        tokenized = tokenizer.tokenize([prefix + text for text in positions])
        prompt_tokens = tokenizer.count_prompt_tokens(prefix) if prefix else 0
        vectors = quantize(self._embed(tokenized, prompt_tokens, progress), output_precision, ranges)
        if len(positions) < len(checked):
            vectors = vectors[rows]
        if not details:
            return vectors
        return Encoded(vectors, tokenized.n_tokens[rows], tokenized.truncated[rows])

    def encode_query(self, texts: Iterable[str], *, progress: bool = False) -> np.ndarray:
        """Encodes texts that search: with the model's prompt `query`, or without any."""
        return self.encode(texts, prompt=query_prompt(self.parts.prompts), progress=progress)

    def encode_document(self, texts: Iterable[str], *, progress: bool = False) -> np.ndarray:
        """Encodes texts that are searched: with the model's prompt `document`, `passage` or `corpus`, or without."""
        return self.encode(texts, prompt=document_prompt(self.parts.prompts), progress=progress)

    @torch.inference_mode()
    def _embed(self, tokenized: TokenizedTexts, prompt_tokens: int, progress: bool) -> np.ndarray:
        output = np.zeros((len(tokenized.n_tokens), self.dim), dtype=np.float32)
        order = np.argsort(-tokenized.n_tokens, kind="stable")
        order = order[: np.count_nonzero(tokenized.n_tokens)]  # a text without tokens keeps the zero vector
        n_tokens, starts = tokenized.n_tokens[order], tokenized.starts[order]
        start = 0
        with ProgressBar("encode", len(order), "texts", disable=not progress) as bar:
            while start < len(order):
                stop = batch_end(n_tokens, start, self._batch_tokens, self._forward.pads)
                spans = zip(starts[start:stop], n_tokens[start:stop], strict=True)
                try:
                    vectors = self._finish(
                        self._forward([tokenized.ids[at : at + size] for at, size in spans], prompt_tokens)
                    )
                except torch.OutOfMemoryError:
                    if stop - start == 1:
                        raise
                    self._batch_tokens = max(1, int(n_tokens[start]) * (stop - start) // 2)
                    torch.cuda.empty_cache()
                    continue
                output[order[start:stop]] = vectors.cpu().numpy()
                bar.advance(stop - start)
                start = stop
        return output

    def _finish(self, vectors: torch.Tensor) -> torch.Tensor:
        for head in self.parts.heads:
            vectors = head(vectors)
        if self._truncates:
            vectors = vectors[:, : self.dim]
            if self.normalizes:
                vectors = torch.nn.functional.normalize(vectors, dim=-1)
        return vectors

    def _choose_forward(self) -> Forward:
        body, pooling = self.parts.body, self.parts.pooling
        body.eval()
        if isinstance(body, StaticEmbedding):
            return StaticForward(body.to(self.device), self.device)
        assert pooling is not None  # read_folder sees to it
        if (
            self.device.type == "cpu"
            and self.precision in ("float32", "int8")
            and PackedTransformer.supports(body.model)
        ):
            return PackedForward(body, pooling, int8_linear if self.precision == "int8" else float_linear)
        if self.precision == "int8":
            raise ModelError(
                f"precision='int8' is for BERT-like models on CPU, not {type(body.model).__name__} on {self.device}"
            )
        body.to(device=self.device, dtype=getattr(torch, self.precision))
        return PaddedForward(body, pooling, self.device)

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
            known = ", ".join(map(repr, self.parts.prompts)) or "none"
            raise ModelError(f"the model has no prompt {name!r}; it has: {known}")
        return self.parts.prompts[name]


def choose_device(device: str) -> torch.device:
    """Turns `auto` into the best device at hand: CUDA, then MPS, then CPU."""
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ModelError(f"device {device!r} is not known: use auto, cpu, cuda, cuda:0, mps ...") from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ModelError(f"device {device!r} was asked for, but torch finds no GPU here: use auto or cpu")
    return chosen


def _choose_precision(precision: Precision, device: torch.device) -> str:
    if precision not in get_args(Precision):
        raise ModelError(f"precision {precision!r} is not known: use {', '.join(get_args(Precision))}")
    if precision == "auto":
        return "float16" if device.type == "cuda" else "float32"
    return precision


def _check_texts(texts: Iterable[str]) -> list[str]:
    if isinstance(texts, str | bytes | dict | set) or not isinstance(texts, Iterable):
        raise TextError(f"texts is a {type(texts).__name__}: pass a list of str")
    checked: list[str] = texts.to_pylist() if hasattr(texts, "to_pylist") else list(texts)
    for position, text in enumerate(checked):
        if not isinstance(text, str):
            raise TextError(f"texts[{position}] is {type(text).__name__}, expected str")
    return checked
