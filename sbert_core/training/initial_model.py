"""The encoder that training starts from: its pooling, prompts, layers and frozen parts as planned."""

import dataclasses

from sbert_core.encoder.heads import Dense, Normalize
from sbert_core.encoder.model_folder import EncoderParts
from sbert_core.encoder.pooling import Pooling
from sbert_core.encoder.prompts import DOCUMENT, prompts_of_columns
from sbert_core.encoder.transformer import Transformer
from sbert_core.errors import ModelError
from sbert_core.training.plan import TrainPlan
from sbert_core.training.students import drop_layers, layers_of


def shape_parts(parts: EncoderParts, plan: TrainPlan) -> EncoderParts:
    """The encoder with the changes that the plan asks for, before training."""
    if plan.keep_layers is not None:
        parts = drop_layers(parts, plan.keep_layers)
    if plan.pooling is not None:
        if parts.pooling is None:
            raise ModelError(
                "pooling is for transformers, and a static encoder always uses the mean: leave pooling out"
            )
        if any(isinstance(head, Dense) for head in parts.heads):
            raise ModelError("the model has a dense layer that was trained with its own pooling: leave pooling out")
        modes = [mode.strip() for mode in plan.pooling.split(",")]
        parts = dataclasses.replace(parts, pooling=Pooling(parts.body.dim, modes, parts.pooling.include_prompt))
    heads = [head for head in parts.heads if not isinstance(head, Normalize)]
    normalizes = len(heads) < len(parts.heads) if plan.normalize is None else plan.normalize
    if plan.dense is not None:
        sized = [parts.body, *([parts.pooling] if parts.pooling else []), *heads]
        heads.append(Dense(sized[-1].dim, plan.dense))
    parts = dataclasses.replace(parts, heads=(*heads, Normalize()) if normalizes else tuple(heads))
    return _name_prompts(parts, plan)


def _name_prompts(parts: EncoderParts, plan: TrainPlan) -> EncoderParts:
    """Adds the prompts of the plan to those of the model; that for documents becomes the default, for corpora."""
    prompts = prompts_of_columns([spec.prompts for spec in plan.data]) if plan.prompts is None else plan.prompts
    default = parts.default_prompt_name
    if DOCUMENT in prompts:
        default = DOCUMENT if prompts[DOCUMENT] else None
    return dataclasses.replace(parts, prompts={**parts.prompts, **prompts}, default_prompt_name=default)


def freeze_layers(parts: EncoderParts, count: int) -> None:
    """Freezes the token embeddings and the first `count` layers; 0 freezes nothing."""
    if not count:
        return
    if not isinstance(parts.body, Transformer):
        raise ModelError("freeze is for transformers, and a static encoder has no layers: leave freeze out")
    layers = layers_of(parts.body.model)
    if count > len(layers):
        raise ModelError(f"freeze is {count}, but the model has {len(layers)} layers")
    embeddings = getattr(parts.body.model, "embeddings", parts.body.model.get_input_embeddings())
    for module in (embeddings, *layers[:count]):
        module.requires_grad_(False)
