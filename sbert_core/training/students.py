"""Smaller encoders made of larger ones, and what they learn from their teachers."""

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
from sbert_core.encoder.heads import Dense
from sbert_core.encoder.model_folder import EncoderParts
from sbert_core.encoder.packed_transformer import BLOCKS
from sbert_core.encoder.sentence_encoder import Precision, SentenceEncoder
from sbert_core.encoder.transformer import Transformer
from sbert_core.errors import DataError, ModelError, TextError

# Where an architecture keeps its layers; all of those that run packed, and T5's encoders.
_LAYERS = dict.fromkeys(BLOCKS, "encoder.layer") | {"DistilBertModel": "transformer.layer"}
_LAYERS |= dict.fromkeys(("T5EncoderModel", "MT5EncoderModel", "UMT5EncoderModel"), "encoder.block")


def layers_of(model: PreTrainedModel) -> nn.ModuleList:
    """The layers of a transformer, first to last."""
    name = type(model).__name__
    if name not in _LAYERS:
        raise ModelError(f"where a {name} keeps its layers is not known: use one of {', '.join(_LAYERS)}")
    layers: nn.ModuleList = model.get_submodule(_LAYERS[name])
    return layers


def drop_layers(parts: EncoderParts, keep: Sequence[int] | int) -> EncoderParts:
    """An encoder with some of the layers of another, which it shares nothing with: a student to be trained.

    `keep` is the numbers of the layers, from 0, or how many: then they are evenly spaced, the first and the last among
    them (6 of 12 are 0, 2, 4, 7, 9, 11, as DistilBERT's).
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
        _keep_distances(layers[0].layer[0].SelfAttention, layers[kept[0]].layer[0].SelfAttention)
    setattr(model.get_submodule(home), name, chosen)
    for module in model.modules():  # T5's encoder has a configuration of its own
        if hasattr(module, "config"):
            module.config.num_hidden_layers = len(kept)  # DistilBERT and T5 call it otherwise, and map this name
    return student


def _keep_distances(first: Any, attention: Any) -> None:
    """Hands over T5's table of distances, which its first layer has for all of them."""
    if not attention.has_relative_attention_bias:
        attention.relative_attention_bias = first.relative_attention_bias
        attention.has_relative_attention_bias = True


def _choose_layers(keep: Sequence[int] | int, count: int) -> list[int]:
    if isinstance(keep, int):
        if not 1 <= keep <= count:
            raise ModelError(f"{keep} layers cannot be kept of the {count} that the encoder has")
        # Halves go up: of 6 layers 0, 3, 5 are a better start than 0, 2, 5 (84.2 against 82.0 on STS-B dev, untrained).
        return [int(place + 0.5) for place in np.linspace(0, count - 1, keep)]
    kept = list(keep)
    if not kept or kept != sorted(set(kept)) or not 0 <= kept[0] <= kept[-1] < count:
        raise ModelError(f"the layers to keep are {kept}: expected numbers from 0 to {count - 1} in rising order")
    return kept


def reduce_dimensions(encoder: SentenceEncoder, texts: Sequence[str], dim: int) -> SentenceEncoder:
    """The same encoder with vectors of `dim` dimensions: the principal components of the vectors of `texts`.

    A linear layer without bias is put last, or before a last normalisation. `texts` should be like those to come, and
    many: some thousands. The given encoder stays as it is; a `truncate_dim` of it has no effect.
    """
    parts = copy.deepcopy(encoder.parts)
    device, precision = str(encoder.device), cast(Precision, encoder.precision)
    full = SentenceEncoder(parts, device=device, precision=precision)
    if not 1 <= dim <= full.dim:
        raise ModelError(f"dim must be between 1 and the encoder's {full.dim}, got {dim}")
    if len(set(texts)) < dim:
        raise DataError(f"{dim} principal components need as many different texts or more, got {len(set(texts))}")
    layer = Dense(full.dim, dim, bias=False, activation="Identity")
    with torch.no_grad():
        layer.linear.weight.copy_(torch.from_numpy(_principal_components(full.encode(texts), dim)))
    heads = list(parts.heads)
    heads.insert(len(heads) - encoder.normalizes, layer)
    return SentenceEncoder(dataclasses.replace(parts, heads=tuple(heads)), device=device, precision=precision)


def _principal_components(vectors: np.ndarray, dim: int) -> np.ndarray:
    """The directions (dim, full) in which the rows vary most, each with its greatest entry above 0."""
    centred = vectors - vectors.mean(axis=0, dtype=np.float64)
    _, directions = np.linalg.eigh(centred.T @ centred)
    components = directions[:, ::-1][:, :dim].T
    greatest = np.abs(components).argmax(axis=1)
    signs = np.sign(components[np.arange(dim), greatest])
    return (components * signs[:, None]).astype(np.float32)


def teacher_vectors(
    encoder: SentenceEncoder, texts: Sequence[str], cache: str | os.PathLike[str] | None = None, progress: bool = False
) -> np.ndarray:
    """The teacher's vectors (n, dim) of `texts`, for a student to learn.

    In the folder `cache` they are kept for the next time, named for what the teacher computes and for the texts.
    """
    if cache is None:
        return encoder.encode(texts, progress=progress)
    path = Path(cache) / f"{_key(encoder, texts)}.npy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        vectors = encoder.encode(texts, progress=progress)
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            np.save(f"{scratch}/{path.name}", vectors)
            Path(scratch, path.name).replace(path)  # whole or not at all
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

    Of examples with several columns, as translations, the label is the vector of the first: a student learns to put
    all columns there. Their own labels are not used.
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
