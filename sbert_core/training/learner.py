"""One optimizer step: from batches of texts to changed weights."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from sbert_core.encoder.model_folder import EncoderParts
from sbert_core.errors import JobError
from sbert_core.training.gradients import GradientAccumulator, GradientOptions
from sbert_core.training.initial_model import freeze_layers
from sbert_core.training.lora import add_lora, merge_lora
from sbert_core.training.plan import TrainPlan
from sbert_core.training.prepared_data import PreparedData, column_prompts
from sbert_core.training.schedule import make_optimizer, make_schedule
from sbert_core.training.step_plan import Batch, OptimizerStep
from sbert_core.training.trained_encoder import TrainedEncoder
from sbert_core.training.world import World

_AUTOCAST_TYPES = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Learner:
    """Encoder, objectives, optimizer and learning-rate schedule: all that changes while a model is trained."""

    def __init__(
        self,
        plan: TrainPlan,
        parts: EncoderParts,
        data_sets: Sequence[PreparedData],
        total_steps: int,
        device: torch.device,
        world: World,
    ) -> None:
        self._parts = parts
        self._world = world
        self._max_norm = plan.clip
        self._default_prompt = parts.prompts.get(parts.default_prompt_name or "", "")
        self._adapted = add_lora(parts, plan.lora_rank) if plan.lora_rank else None
        freeze_layers(parts, plan.freeze)
        self._encoder = TrainedEncoder(parts, device, plan.checkpointing)
        self._objectives = nn.ModuleList([data.objective for data in data_sets]).to(device)
        self._optimizer = make_optimizer([self._encoder, self._objectives], plan.learning_rate, plan.weight_decay)
        self._schedule = make_schedule(
            self._optimizer, plan.schedule, math.ceil(plan.warmup * total_steps), total_steps
        )
        self._scaler = torch.amp.GradScaler(device.type, enabled=plan.precision == "float16")
        options = GradientOptions(
            chunk_rows=plan.chunk_rows,
            attack=plan.adversarial,
            epsilon=plan.epsilon,
            attack_steps=plan.attack_steps,
            rdrop=plan.rdrop,
            autocast=_AUTOCAST_TYPES[plan.precision],
        )
        self._add_gradients = GradientAccumulator(self._encoder, world, options, 1 / plan.accumulate)
        self.learning_rate = 0.0
        """Of the last step."""
        torch.manual_seed(plan.seed + world.process_rank)  # each process draws its own dropout

    def step(self, step: OptimizerStep) -> float:
        """Updates the weights and returns the mean loss of the batches."""
        self._encoder.train()
        loss = float(np.mean([self._backward(batch, step.number) for batch in step.batches]))
        self._world.sum_gradients(self._encoder.parameters())
        self._scaler.unscale_(self._optimizer)
        parameters = [parameter for group in self._optimizer.param_groups for parameter in group["params"]]
        nn.utils.clip_grad_norm_(parameters, self._max_norm)
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self.learning_rate = float(self._schedule.get_last_lr()[0])
        self._schedule.step()
        self._optimizer.zero_grad(set_to_none=True)
        for batch in step.batches:
            batch.data.objective.after_step(self._encoder)
        return loss

    def _backward(self, batch: Batch, step_number: int) -> float:
        data, examples = batch.data, batch.data.examples.take(batch.rows)
        views = data.views(examples, batch.rng)
        self._encoder.prompts = column_prompts(data.spec.prompts or (self._default_prompt,), len(views))
        labels = data.labels(examples, self._encoder.device)
        loss = self._add_gradients(data.objective, views, labels, self._scaler)
        if not math.isfinite(loss):
            raise JobError(
                f"the loss is {loss} in step {step_number}, rows {batch.rows[:5].tolist()} ... of {data.spec.file}, "
                f"the first {examples.texts[0][0][:60]!r}: lower learning_rate, or check these rows"
            )
        return loss

    def trained_parts(self) -> EncoderParts:
        """The encoder with the weights of now; LoRA adapters are merged into a copy."""
        return self._parts if self._adapted is None else merge_lora(self._parts, self._adapted)

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold to continue."""
        return {name: part.state_dict() for name, part in self._stateful().items()}

    def load(self, state: dict[str, Any]) -> None:
        """Restores such a state."""
        for name, part in self._stateful().items():
            part.load_state_dict(state[name])

    def _stateful(self) -> dict[str, Any]:
        return {
            "encoder": self._encoder,
            "objectives": self._objectives,
            "optimizer": self._optimizer,
            "schedule": self._schedule,
            "scaler": self._scaler,
        }
