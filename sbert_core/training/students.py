"""Student models: smaller encoders made from larger ones, and training labels from teachers."""

import copy
import dataclasses
import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from sbert_core.data.examples import Examples
from sbert_core.encoder.cross_encoder import CrossEncoder
from sbert_core.encoder.device import Precision
from sbert_core.encoder.heads import Dense
from sbert_core.encoder.model_folder import EncoderParts
from sbert_core.encoder.packed_transformer import LAYER_READERS
from sbert_core.encoder.sentence_encoder import SentenceEncoder
from sbert_core.encoder.transformer import Transformer
from sbert_core.errors import DataError, ModelError, TextError

# The attribute path of the layers by architecture: all that run packed, and T5's encoders.
_LAYERS = dict.fromkeys(LAYER_READERS, "encoder.layer") | {"DistilBertModel": "transformer.layer"}
_LAYERS |= dict.fromkeys(("T5EncoderModel", "MT5EncoderModel", "UMT5EncoderModel"), "encoder.block")


def layers_of(model: PreTrainedModel) -> nn.ModuleList:
    """The layers of a transformer, first to last."""
    name = type(model).__name__
    if name not in _LAYERS:
        raise ModelError(f"the layers of a {name} are not known: use one of {', '.join(_LAYERS)}")
    layers: nn.ModuleList = model.get_submodule(_LAYERS[name])
    return layers


def drop_layers(parts: EncoderParts, keep: Sequence[int] | int) -> EncoderParts:
    """A copy of an encoder with some of its layers: a student to be trained.

    `keep` is the list of layer numbers, from 0, or their count: then they are evenly spaced and include the first and
    the last (6 of 12 are 0, 2, 4, 7, 9, 11, as in DistilBERT).
    """
    body = parts.body
    if not isinstance(body, Transformer) or type(body.model).__name__ not in _LAYERS:
        kind = type(getattr(body, "model", body)).__name__
        raise ModelError(f"layers of a {kind} cannot be dropped: use one of {', '.join(_LAYERS)}")
    path = _LAYERS[type(body.model).__name__]
    kept = _choose_layers(keep, len(layers_of(body.model)))
    student = copy.deepcopy(parts)
    model: Any = student.body.model
    home, _, name = path.rpartition(".")
    layers = getattr(model.get_submodule(home), name)
    chosen = nn.ModuleList(layers[number] for number in kept)
    if name == "block":
        _move_position_bias(layers[0].layer[0].SelfAttention, layers[kept[0]].layer[0].SelfAttention)
    setattr(model.get_submodule(home), name, chosen)
    for module in model.modules():  # T5's encoder has a configuration of its own
        if hasattr(module, "config"):
            module.config.num_hidden_layers = len(kept)  # DistilBERT and T5 map this name to their own
    return student


def _move_position_bias(first: Any, attention: Any) -> None:
    """Moves T5's relative position bias, which only its first layer holds, to the new first layer."""
    if not attention.has_relative_attention_bias:
        attention.relative_attention_bias = first.relative_attention_bias
        attention.has_relative_attention_bias = True


def _choose_layers(keep: Sequence[int] | int, count: int) -> list[int]:
    if isinstance(keep, int):
        if not 1 <= keep <= count:
            raise ModelError(f"keep_layers is {keep}, but the encoder has {count} layers: use 1 to {count}")
        # Halves are rounded up: of 6 layers, 0, 3, 5 start better than 0, 2, 5 (84.2 vs. 82.0 on STS-B dev, untrained).
        return [int(place + 0.5) for place in np.linspace(0, count - 1, keep)]
    kept = list(keep)
    if not kept or kept != sorted(set(kept)) or not 0 <= kept[0] <= kept[-1] < count:
        raise ModelError(f"the layers to keep are {kept}: use numbers from 0 to {count - 1} in ascending order")
    return kept


def reduce_dimensions(encoder: SentenceEncoder, texts: Sequence[str], dim: int) -> SentenceEncoder:
    """The same encoder with vectors of `dim` dimensions: the principal components of the vectors of `texts`.

    A linear layer without bias is added at the end, or before a final normalisation. `texts` should be thousands of
    texts like those to be encoded later. The given encoder is not changed; its `truncate_dim` has no effect.
    """
    parts = copy.deepcopy(encoder.parts)
    device, precision = str(encoder.device), cast(Precision, encoder.precision)
    full = SentenceEncoder(parts, device=device, precision=precision)
    if not 1 <= dim <= full.dim:
        raise ModelError(f"dim must be between 1 and the encoder's {full.dim}, got {dim}")
    if len(set(texts)) < dim:
        raise DataError(f"{dim} principal components need at least as many different texts, got {len(set(texts))}")
    layer = Dense(full.dim, dim, bias=False, activation="Identity")
    with torch.no_grad():
        layer.linear.weight.copy_(torch.from_numpy(_principal_components(full.encode(texts), dim)))
    heads = list(parts.heads)
    heads.insert(len(heads) - encoder.normalizes, layer)
    return SentenceEncoder(dataclasses.replace(parts, heads=tuple(heads)), device=device, precision=precision)


def _principal_components(vectors: np.ndarray, dim: int) -> np.ndarray:
    """The principal components (dim, full) of the rows, each with its largest entry above 0."""
    centred = vectors - vectors.mean(axis=0, dtype=np.float64)
    _, directions = np.linalg.eigh(centred.T @ centred)
    components = directions[:, ::-1][:, :dim].T
    largest = np.abs(components).argmax(axis=1)
    signs = np.sign(components[np.arange(dim), largest])
    return (components * signs[:, None]).astype(np.float32)


def teacher_vectors(
    encoder: SentenceEncoder, texts: Sequence[str], cache: str | os.PathLike[str] | None = None, progress: bool = False
) -> np.ndarray:
    """The vectors (n, dim) of `texts` by the teacher, as labels for a student.

    The folder `cache` keeps them for the next call, in a file named by the hash of the teacher and the texts.
    """
    if cache is None:
        return encoder.encode(texts, progress=progress)
    path = Path(cache) / f"{_key(encoder, texts)}.npy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        vectors = encoder.encode(texts, progress=progress)
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            np.save(f"{scratch}/{path.name}", vectors)
            Path(scratch, path.name).replace(path)  # atomic
        return vectors
    try:
        found = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} is not readable: {error}; delete it") from error
    if found.shape != (len(texts), encoder.dim) or found.dtype != np.float32:
        raise DataError(
            f"{path} holds {found.dtype} {found.shape}, expected float32 {(len(texts), encoder.dim)}: delete it"
        )
    return found


def _key(encoder: SentenceEncoder, texts: Sequence[str]) -> str:
    digest = hashlib.sha256(encoder.fingerprint.encode())
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            raise TextError(f"texts[{position}] is {type(text).__name__}, expected str")
        written = text.encode("utf-8", "surrogatepass")
        digest.update(len(written).to_bytes(8, "big"))
        digest.update(written)
    return digest.hexdigest()


def distillation_examples(
    encoder: SentenceEncoder,
    texts: Sequence[str] | Examples,
    cache: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> Examples:
    """Texts with the teacher's vectors as labels.

    For examples with several columns, such as translations, the label is the vector of the first: a student is trained
    to map all columns to it. Existing labels are not used.
    """
    examples = texts if isinstance(texts, Examples) else Examples((list(texts),))
    labels = teacher_vectors(encoder, examples.texts[0], cache, progress)
    return dataclasses.replace(examples, labels=labels, classes=())


def margin_examples(cross_encoder: CrossEncoder, triplets: Examples) -> Examples:
    """Triplets (query, positive, negative) with margins as labels: logit(query, positive) - logit(query, negative)."""
    if len(triplets.texts) != 3:
        raise DataError(
            f"{triplets.name} has {len(triplets.texts)} text columns: expected 3, query, positive and negative"
        )
    if len(cross_encoder.labels) != 1:
        raise ModelError(f"the cross-encoder has {len(cross_encoder.labels)} labels: margins need a single score")
    queries, positives, negatives = triplets.texts
    pairs = [*zip(queries, positives, strict=True), *zip(queries, negatives, strict=True)]
    logits = cross_encoder.predict(pairs, logits=True)
    labels = logits[: len(triplets)] - logits[len(triplets) :]
    return dataclasses.replace(triplets, labels=labels, classes=())
