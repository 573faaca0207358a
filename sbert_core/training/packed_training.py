"""A forward pass of BERT-like models for training that computes almost nothing for padding.

Operations on single tokens (projections, feed-forward, normalisation: nearly all of the arithmetic) run on real tokens
only, concatenated. Sentences are padded only for attention. The modules of the model are called as they are, so that
dropout, LoRA and autocast work as in the model itself.
"""

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.activations import ACT2FN

from sbert_core.encoder.packed_transformer import LayerParts, activation_of, layers_of, position_bias


@dataclasses.dataclass(frozen=True)
class _Layout:
    """The positions of real tokens in a padded batch."""

    rows: int
    length: int
    places: Tensor | None  # (total,) of rows * length; None where nothing is padded
    mask: Tensor | None  # (rows, heads or 1, length or 1, length), True or a bias to add

    def pad(self, tokens: Tensor) -> Tensor:
        """Maps (total, dim) to (rows, length, dim)."""
        if self.places is not None:
            padded = tokens.new_zeros(self.rows * self.length, tokens.shape[1])
            tokens = padded.index_copy(0, self.places, tokens)
        return tokens.view(self.rows, self.length, -1)

    def pack(self, padded: Tensor) -> Tensor:
        """Maps (rows, length, dim) to (total, dim)."""
        flat = padded.reshape(self.rows * self.length, -1)
        return flat if self.places is None else flat.index_select(0, self.places)


class PackedTraining:
    """Runs a model that `PackedTransformer.supports`, with gradients; the model's training mode applies."""

    def __init__(self, model: PreTrainedModel, checkpointing: bool = False) -> None:
        """`checkpointing` keeps only the input of each layer and recomputes the rest in the backward pass."""
        self._model = model
        self._blocks = layers_of(model)
        self._activation = ACT2FN[activation_of(model)]
        self._heads = int(model.config.num_attention_heads)
        self._checkpointing = checkpointing

    def __call__(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Maps token ids (n, length) and their mask to token vectors (n, length, dim), zero on padding."""
        rows, length = ids.shape
        places, allowed = None, None
        if not mask.all():
            places = mask.flatten().nonzero()[:, 0]
            allowed = mask.bool()[:, None, None, :]
        embedded = self._model.embeddings(ids)
        if hasattr(self._model, "embeddings_project"):  # ELECTRA with narrow embeddings
            embedded = self._model.embeddings_project(embedded)
        bias = position_bias(self._model, embedded, length)
        if bias is not None and allowed is not None:
            bias = bias.masked_fill(~allowed, float("-inf"))
        layout = _Layout(rows, length, places, allowed if bias is None else bias)
        tokens = layout.pack(embedded)
        for block in self._blocks:
            if self._checkpointing and torch.is_grad_enabled():
                tokens = checkpoint(self._layer, block, tokens, layout, use_reentrant=False)
            else:
                tokens = self._layer(block, tokens, layout)
        return layout.pad(tokens)

    def _layer(self, block: LayerParts, tokens: Tensor, layout: _Layout) -> Tensor:
        shape = (layout.rows, layout.length, self._heads, -1)
        query, key, value = (
            layout.pad(project(tokens)).view(shape).transpose(1, 2) for project in (block.query, block.key, block.value)
        )
        dropped = block.weights_dropout.p if block.weights_dropout.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=layout.mask, dropout_p=dropped)
        mixed = block.attention_out(layout.pack(mixed.transpose(1, 2).flatten(2)))
        tokens = block.attention_norm(block.mixed_dropout(mixed) + tokens)
        widened = self._activation(block.up(tokens))
        return block.output_norm(block.output_dropout(block.down(widened)) + tokens)
