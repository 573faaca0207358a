"""A transformer forward pass with no padding.

Sentences lie end to end in one row of tokens, so that every projection is one large matrix product over real
tokens only. Attention stays inside a sentence: sentences of equal length form a group and share one call.
The arithmetic is the model's own, in another order; it is checked against the padded path in the tests.
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
class Block:
    """The parts of one BERT-like layer, whatever its architecture calls them."""

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    attention_out: nn.Linear
    attention_norm: nn.LayerNorm
    up: nn.Linear
    down: nn.Linear
    output_norm: nn.LayerNorm
    weights_dropout: nn.Dropout  # of attention weights; used in training only, as the two below
    mixed_dropout: nn.Module
    output_dropout: nn.Module


def _bert_blocks(model: PreTrainedModel) -> Iterator[Block]:
    for layer in model.encoder.layer:
        heads, out = layer.attention.self, layer.attention.output
        yield Block(
            *(heads.query, heads.key, heads.value, out.dense, out.LayerNorm),
            *(layer.intermediate.dense, layer.output.dense, layer.output.LayerNorm),
            *(heads.dropout, out.dropout, layer.output.dropout),
        )


def _mpnet_blocks(model: PreTrainedModel) -> Iterator[Block]:
    for layer in model.encoder.layer:
        heads = layer.attention.attn
        yield Block(
            *(heads.q, heads.k, heads.v, heads.o, layer.attention.LayerNorm),
            *(layer.intermediate.dense, layer.output.dense, layer.output.LayerNorm),
            *(heads.dropout, layer.attention.dropout, layer.output.dropout),
        )


def _distilbert_blocks(model: PreTrainedModel) -> Iterator[Block]:
    for layer in model.transformer.layer:
        heads = layer.attention
        yield Block(
            *(heads.q_lin, heads.k_lin, heads.v_lin, heads.out_lin, layer.sa_layer_norm),
            *(layer.ffn.lin1, layer.ffn.lin2, layer.output_layer_norm),
            *(heads.dropout, nn.Identity(), layer.ffn.dropout),
        )


# By exact class: a subclass may compute something else.
BLOCKS: dict[str, Callable[[PreTrainedModel], Iterator[Block]]] = {
    "BertModel": _bert_blocks,
    "RobertaModel": _bert_blocks,
    "XLMRobertaModel": _bert_blocks,
    "CamembertModel": _bert_blocks,
    "ElectraModel": _bert_blocks,
    "DistilBertModel": _distilbert_blocks,
    "MPNetModel": _mpnet_blocks,
}


def blocks_of(model: PreTrainedModel) -> list[Block]:
    """The layers of a model that `PackedTransformer.supports`."""
    return list(BLOCKS[type(model).__name__](model))


def activation_of(model: PreTrainedModel) -> str:
    """The name of its activation."""
    return model.config.activation if model.config.model_type == "distilbert" else model.config.hidden_act


def position_bias(model: PreTrainedModel, tokens: Tensor, length: int) -> Tensor | None:
    """MPNet's learned bias on the distance of two tokens: (1, heads, length, length)."""
    if type(model).__name__ != "MPNetModel":
        return None
    return model.encoder.compute_position_bias(tokens.new_empty(1, length))


def float_linear(weight: Tensor, bias: Tensor, after_gelu: bool) -> Linear:
    """A linear layer as torch computes it."""
    return lambda tokens: F.linear(tokens, weight, bias)


class _Layer:
    """One transformer layer over packed tokens."""

    def __init__(self, block: Block, heads: int, activation: str, make_linear: MakeLinear) -> None:
        projections = (block.query, block.key, block.value)
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
                (block.attention_out, False),
                (block.up, False),
                (block.down, activation == "gelu"),
            )
        )
        self.attention_norm, self.output_norm = block.attention_norm, block.output_norm

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
    """Runs a BERT-like encoder over sentences laid end to end.

    It works on the model's weights as they are now: make a new one after training.
    """

    def __init__(self, model: PreTrainedModel, make_linear: MakeLinear = float_linear) -> None:
        heads, activation = model.config.num_attention_heads, activation_of(model)
        self._model = model
        self._layers = [_Layer(block, heads, activation, make_linear) for block in blocks_of(model)]

    @staticmethod
    def supports(model: PreTrainedModel) -> bool:
        """Whether this architecture is one of those checked against the padded path."""
        config = model.config
        decoder = getattr(config, "is_decoder", False) or getattr(config, "add_cross_attention", False)
        return type(model).__name__ in BLOCKS and not decoder

    def __call__(self, ids: Tensor, groups: list[Group]) -> list[Tensor]:
        """Maps token ids (total,) to the token vectors of each group: (sentences, length, dim)."""
        sizes = [rows * length for rows, length in groups]
        parts = [
            self._model.embeddings(part.view(group)).flatten(0, 1)
            for part, group in zip(ids.split(sizes), groups, strict=True)
        ]
        tokens = torch.cat(parts)  # (total, dim)
        if hasattr(self._model, "embeddings_project"):  # ELECTRA with narrow embeddings
            tokens = self._model.embeddings_project(tokens)
        biases = [position_bias(self._model, tokens, length) for _, length in groups]
        for layer in self._layers:
            tokens = layer(tokens, groups, biases)
        return [part.view(*group, -1) for part, group in zip(tokens.split(sizes), groups, strict=True)]
