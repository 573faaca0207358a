"""The sentence encoder for Beam's own `RunInference` and `MLTransform`."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

import apache_beam as beam
import numpy as np
import torch
from apache_beam.ml.inference.base import ModelHandler, PredictionResult, RunInference
from apache_beam.ml.transforms.base import EmbeddingsManager, _TextEmbeddingHandler

from sbert_core.encoder.device import Precision
from sbert_core.encoder.sentence_encoder import SentenceEncoder
from sbert_core.errors import ModelError
from transforms.encode.encode_sentences import NOT_FINITE, ONE_AT_A_TIME, Encoder, find_not_finite


class SentenceEncoderHandler(ModelHandler[str, PredictionResult, Encoder]):
    """Lets `RunInference` encode a collection of `str`, in batch or streaming.

    Output is a `PredictionResult` for each text: `inference` is its vector, float32 (dim,). Order and timestamps are
    not kept: use Beam's `KeyedModelHandler` to match vectors with texts, and its `with_preprocess_fn` to select the
    text of a row. The encoder is loaded once per process. An element that is not a `str` is a `TextError`, a vector
    that is not finite a `ModelError`; with `RunInference.with_exception_handling` its whole batch goes to the failed
    output.

    Args:
        model: see `SentenceEncoder.load`. Beam's automatic model refresh can replace it.
        load_options: more arguments of `SentenceEncoder.load`: device, precision, max_tokens ...
        prompt: a text put before each text.
        prompt_name: the name of one of the model's own prompts. `RunInference`'s `inference_args` override both.
        threads: torch's threads in each process; None does not change them.
        min_batch_size: minimum texts per batch; the last batch of a bundle may be smaller.
        max_batch_size: maximum texts per batch.
        max_batch_duration_secs: maximum time to collect a batch across bundles; for streaming.
        load: replaces `SentenceEncoder.load` in tests.
    """

    def __init__(
        self,
        *,
        model: str = "default",
        load_options: Mapping[str, Any] | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        threads: int | None = None,
        min_batch_size: int = 32,
        max_batch_size: int = 1024,
        max_batch_duration_secs: int | None = None,
        load: Callable[..., Any] | None = None,
    ) -> None:
        self._load_options = dict(load_options or {})
        self._prompts = {"prompt": prompt, "prompt_name": prompt_name}
        check_loading(model, self._load_options, load)
        check_prompts(self._prompts)
        sizes = {"min_batch_size": min_batch_size, "max_batch_size": max_batch_size}
        if not 1 <= min_batch_size <= max_batch_size or (threads is not None and threads < 1):
            raise ModelError(f"expected 1 <= min <= max and threads of at least 1, got {sizes} and threads {threads}")
        super().__init__(**sizes, max_batch_duration_secs=max_batch_duration_secs)
        self._model = model
        self._threads = threads
        self._load = load  # None rather than SentenceEncoder.load: the JSON of MLTransform loses bound methods

    def load_model(self) -> Any:
        """Loads the encoder; called by RunInference, once per process."""
        if self._threads:
            torch.set_num_threads(self._threads)
        return (self._load or SentenceEncoder.load)(self._model, **self._load_options)

    def run_inference(self, batch: Sequence[str], model: Encoder, inference_args: dict[str, Any] | None = None) -> Any:
        """Encodes a batch; `inference_args` may hold `prompt` or `prompt_name`."""
        vectors = self._encode(batch, model, inference_args)
        return [PredictionResult(text, vector, self._model) for text, vector in zip(batch, vectors, strict=True)]

    def _encode(self, batch: Sequence[str], model: Encoder, inference_args: dict[str, Any] | None) -> np.ndarray:
        prompts = {"prompt": None, "prompt_name": None, **inference_args} if inference_args else self._prompts
        with ONE_AT_A_TIME:
            vectors = model.encode(list(batch), details=True, **prompts).embeddings  # (n, dim)
        if failures := find_not_finite(vectors):
            raise ModelError(f"texts[{min(failures)}]: {NOT_FINITE} ({len(failures)} of the {len(vectors)} of a batch)")
        return vectors

    def validate_inference_args(self, inference_args: dict[str, Any] | None) -> None:
        """Raises a ModelError for arguments other than the prompts, before the pipeline runs."""
        check_prompts(inference_args or {})

    def update_model_path(self, model_path: str | None = None) -> None:
        """Sets the model that Beam's automatic model refresh found."""
        self._model = model_path or self._model

    def get_num_bytes(self, batch: Sequence[str]) -> int:
        """The size of the texts in UTF-8."""
        return sum(len(text.encode("utf-8", "surrogatepass")) for text in batch)

    def get_metrics_namespace(self) -> str:
        """The namespace of the counters of RunInference."""
        return "BeamML_SentenceEncoder"

    def __repr__(self) -> str:
        return f"SentenceEncoderHandler(model={self._model!r})"


class _VectorsHandler(SentenceEncoderHandler):
    """Returns vectors without the texts, for the columns of MLTransform."""

    def run_inference(self, batch: Sequence[str], model: Encoder, inference_args: dict[str, Any] | None = None) -> Any:
        return self._encode(batch, model, inference_args)


class SentenceEmbeddings(EmbeddingsManager):
    """Lets `MLTransform` encode text columns of dictionaries or rows.

    MLTransform replaces the text by the vector, a list of float, and changes its input: copy a column first to keep its
    text. It checks only in the first row of a batch that a column is text; our encoder checks the others.
    Arguments are `columns`, the columns to encode, and those of `SentenceEncoderHandler`.
    """

    def __init__(self, *, columns: Sequence[str], **handler_options: Any) -> None:
        if isinstance(columns, str) or not columns or not all(isinstance(name, str) for name in columns):
            raise ModelError(f"columns must be a list of column names, got {columns!r}")
        super().__init__(columns=list(columns))
        self._handler = _VectorsHandler(**handler_options)

    def get_model_handler(self) -> ModelHandler:
        """The handler that encodes the texts of a batch."""
        return self._handler

    def get_ptransform_for_processing(self, **kwargs: Any) -> beam.PTransform:
        """The transform that MLTransform applies; wrapped like Beam's own text embeddings."""
        return RunInference(model_handler=_TextEmbeddingHandler(self))


def check_loading(model: str, load_options: Mapping[str, Any], load: Callable[..., Any] | None = None) -> None:
    """Raises a ModelError for a model or load options of the wrong form; loads nothing."""
    if not isinstance(model, str) or not model:
        raise ModelError(f"model must be 'default', a folder, a URI or a hub name, got {model!r}")
    try:
        inspect.signature(load or SentenceEncoder.load).bind(model, **load_options)
    except TypeError as error:  # also if `load` is not callable
        raise ModelError(f"load_options {dict(load_options)} do not fit load: {error}") from error
    if (precision := load_options.get("precision", "auto")) not in get_args(Precision):
        raise ModelError(f"precision {precision!r} is not known: use {', '.join(get_args(Precision))}")


def check_prompts(prompts: Mapping[str, Any]) -> None:
    """Raises a ModelError for anything but a prompt or the name of one."""
    if unknown := prompts.keys() - {"prompt", "prompt_name"}:
        raise ModelError(f"inference_args may hold prompt or prompt_name, not {', '.join(sorted(unknown))}")
    if None not in (prompts.get("prompt"), prompts.get("prompt_name")):
        raise ModelError("give prompt or prompt_name, not both")
