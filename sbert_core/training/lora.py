"""Low-rank adaptation (LoRA) of a transformer by the peft library, which is optional."""

import copy
import dataclasses

from torch import nn

from sbert_core.encoder.model_folder import EncoderParts
from sbert_core.encoder.transformer import Transformer
from sbert_core.errors import ModelError


def add_lora(parts: EncoderParts, rank: int) -> nn.Module:
    """Freezes the body and adds matrices of `rank` to all its linear layers, in place; returns peft's model of it."""
    try:
        import peft
    except ImportError as error:
        raise ModelError("lora_rank needs peft: run `pip install 'sbert-beam[train]'`") from error
    if not isinstance(parts.body, Transformer):
        raise ModelError("lora_rank is for transformers, and a static encoder has no layers: leave lora_rank out")
    config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear")
    return peft.get_peft_model(parts.body.model, config)


def merge_lora(parts: EncoderParts, adapted: nn.Module) -> EncoderParts:
    """A copy of the encoder with the trained matrices merged into its weights."""
    merged = copy.deepcopy(adapted).merge_and_unload()  # type: ignore[operator]
    body = parts.body
    assert isinstance(body, Transformer)  # checked by `add_lora`
    plain = Transformer(merged, body.tokenizer, body.max_tokens, body.lower_case, body.decoder)
    return dataclasses.replace(parts, body=plain)
