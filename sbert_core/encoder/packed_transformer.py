"""A transformer forward pass with no padding.

Sentences are concatenated into one row of tokens, so that every projection is one large matrix product over real
tokens only. Attention stays inside a sentence: sentences of equal length form a group and share one call.
The arithmetic is the model's own, in another order; tests compare it with the padded path.
"""

import dataclasses
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.activations import ACT2FN

Linear = Callable[[Tensor], Tensor]
MakeLinear = Callable[[Tensor, Tensor, bool], Linear]
"""(weight, bias, input is a GELU's output) -> the layer: float or int8."""

Group = tuple[int, int]
"""(sentences, their common length)"""


@dataclasses.dataclass(frozen=True)
class LayerParts:
    """The parts of one BERT-like layer, under the same names for every architecture."""

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    attention_out: nn.Linear
    attention_norm: nn.LayerNorm
    up: nn.Linear
    down: nn.Linear
    output_norm: nn.LayerNorm
    weights_dropout: nn.Dropout  # of attention weights; this one and the two below are for training only
    mixed_dropout: nn.Module
    output_dropout: nn.Module


def _read_bert_layers(model: PreTrainedModel) -> Iterator[LayerParts]:
    for layer in model.encoder.layer:
        heads, out = layer.attention.self, layer.attention.output
        yield LayerParts(
            *(heads.query, heads.key, heads.value, out.dense, out.LayerNorm),
            *(layer.intermediate.dense, layer.output.dense, layer.output.LayerNorm),
            *(heads.dropout, out.dropout, layer.output.dropout),
        )


def _read_mpnet_layers(model: PreTrainedModel) -> Iterator[LayerParts]:
    for layer in model.encoder.layer:
        heads = layer.attention.attn
        yield LayerParts(
            *(heads.q, heads.k, heads.v, heads.o, layer.attention.LayerNorm),
            *(layer.intermediate.dense, layer.output.dense, layer.output.LayerNorm),
            *(heads.dropout, layer.attention.dropout, layer.output.dropout),
        )


def _read_distilbert_layers(model: PreTrainedModel) -> Iterator[LayerParts]:
    for layer in model.transformer.layer:
        heads = layer.attention
        yield LayerParts(
            *(heads.q_lin, heads.k_lin, heads.v_lin, heads.out_lin, layer.sa_layer_norm),
            *(layer.ffn.lin1, layer.ffn.lin2, layer.output_layer_norm),
            *(heads.dropout, nn.Identity(), layer.ffn.dropout),
        )


# By exact class: a subclass may compute something else.
LAYER_READERS: dict[str, Callable[[PreTrainedModel], Iterator[LayerParts]]] = {
    "BertModel": _read_bert_layers,
    "RobertaModel": _read_bert_layers,
    "XLMRobertaModel": _read_bert_layers,
    "CamembertModel": _read_bert_layers,
    "ElectraModel": _read_bert_layers,
    "DistilBertModel": _read_distilbert_layers,
    "MPNetModel": _read_mpnet_layers,
}


def layers_of(model: PreTrainedModel) -> list[LayerParts]:
    """Returns the layers of a model that `PackedTransformer.supports`."""
    return list(LAYER_READERS[type(model).__name__](model))


def activation_of(model: PreTrainedModel) -> str:
    """Returns the name of the model's activation."""
    return model.config.activation if model.config.model_type == "distilbert" else model.config.hidden_act


def position_bias(model: PreTrainedModel, tokens: Tensor, length: int) -> Tensor | None:
    """Returns MPNet's learned bias on the distance of two tokens: (1, heads, length, length)."""
    if type(model).__name__ != "MPNetModel":
        return None
    return model.encoder.compute_position_bias(tokens.new_empty(1, length))


def float_linear(weight: Tensor, bias: Tensor, after_gelu: bool) -> Linear:
    """Makes a linear layer in the precision of its weights."""
    return lambda tokens: F.linear(tokens, weight, bias)


class _Layer:
    """One transformer layer over packed tokens."""

    def __init__(self, parts: LayerParts, heads: int, activation: str, make_linear: MakeLinear) -> None:
        projections = (parts.query, parts.key, parts.value)
        self.heads = heads
        # In place where torch can: a fresh buffer of this size costs more than the arithmetic.
        self.activation = torch.ops.aten.gelu_ if activation == "gelu" else ACT2FN[activation]
        self.qkv = make_linear(
            torch.cat([p.weight.detach() for p in projections]),
            torch.cat([p.bias.detach() for p in projections]),
            False,
        )
        self.attention_out, self.up, self.down = (
            make_linear(part.weight.detach(), part.bias.detach(), after_gelu)
            for part, after_gelu in (
                (parts.attention_out, False),
                (parts.up, False),
                (parts.down, activation == "gelu"),
            )
        )
        self.attention_norm, self.output_norm = parts.attention_norm, parts.output_norm

    def __call__(self, tokens: Tensor, groups: list[Group], biases: list[Tensor | None]) -> Tensor:
        mixed = self.attention_out(self._attend(self.qkv(tokens), groups, biases))
        tokens = self.attention_norm(mixed.add_(tokens))
        widened = self.activation(self.up(tokens))
        return self.output_norm(self.down(widened).add_(tokens))

    def _attend(self, qkv: Tensor, groups: list[Group], biases: list[Tensor | None]) -> Tensor:
        total, width = qkv.shape[0], qkv.shape[1] // 3
        mixed = qkv.new_empty(total, width)
        start = 0
        for (rows, length), bias in zip(groups, biases, strict=True):
            stop = start + rows * length
            shaped = qkv[start:stop].view(rows, length, 3, self.heads, width // self.heads)
            query, key, value = shaped.permute(2, 0, 3, 1, 4)  # each (rows, heads, length, width / heads)
            attended = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
            mixed[start:stop].view(rows, length, self.heads, -1).copy_(attended.transpose(1, 2))
            start = stop
        return mixed


class PackedTransformer:
    """Runs a BERT-like encoder over concatenated sentences.

    It copies some of the model's weights: create a new object after the model was trained.
    """

    def __init__(self, model: PreTrainedModel, make_linear: MakeLinear = float_linear) -> None:
        heads, activation = model.config.num_attention_heads, activation_of(model)
        self._model = model
        self._layers = [_Layer(parts, heads, activation, make_linear) for parts in layers_of(model)]

    @staticmethod
    def supports(model: PreTrainedModel) -> bool:
        """Whether this architecture is one of those that tests compare with the padded path."""
        config = model.config
        decoder = getattr(config, "is_decoder", False) or getattr(config, "add_cross_attention", False)
        return type(model).__name__ in LAYER_READERS and not decoder

    def __call__(self, ids: Tensor, groups: list[Group]) -> list[Tensor]:
        """Maps token ids (total,) to the token vectors of each group: (sentences, length, dim)."""
        sizes = [rows * length for rows, length in groups]
        embedded = [
            self._model.embeddings(part.view(group)).flatten(0, 1)
            for part, group in zip(ids.split(sizes), groups, strict=True)
        ]
        tokens = torch.cat(embedded)  # (total, dim)
        if hasattr(self._model, "embeddings_project"):  # ELECTRA with narrow embeddings
            tokens = self._model.embeddings_project(tokens)
        biases = [position_bias(self._model, tokens, length) for _, length in groups]
        for layer in self._layers:
            tokens = layer(tokens, groups, biases)
        return [part.view(*group, -1) for part, group in zip(tokens.split(sizes), groups, strict=True)]
