"""The training run: batches in, a model folder out."""

import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from sbert_core.data.examples import Examples
from sbert_core.data.tables import digest_files
from sbert_core.encoder.model_folder import EncoderParts, read_folder
from sbert_core.encoder.model_source import find_model
from sbert_core.encoder.sentence_encoder import SentenceEncoder, choose_device
from sbert_core.errors import DataError, JobError, ModelError
from sbert_core.progress import ProgressBar
from sbert_core.training.batches import mixed_steps
from sbert_core.training.card import write_card
from sbert_core.training.checkpoint import RunFolder
from sbert_core.training.dev import METRICS, read_dev, score_dev
from sbert_core.training.lora import add_lora, merge_lora
from sbert_core.training.model import TrainedEncoder
from sbert_core.training.plan import TrainPlan
from sbert_core.training.schedule import learning_rate_factor, make_optimizer
from sbert_core.training.shape import freeze_layers, shape_parts
from sbert_core.training.sources import PreparedSource, column_prompts, prepare
from sbert_core.training.step import Step, StepOptions
from sbert_core.training.world import World

_LOG_EVERY = 10  # steps
_IN_NO_BATCH = "in no batch, since their texts are in most batches: try a smaller batch_size or more epochs"
_NOT_PART_OF_A_RUN = ("output", "device", "checkpoint_every", "tensorboard")


def train(plan: TrainPlan, progress: bool = False) -> dict[str, Any]:
    """Trains an encoder as planned, writes it to `plan.output` and returns the figures of the run.

    The same plan gives the same weights. A run that was stopped goes on from its last checkpoint; one that has ended
    is not done again. With `torchrun` or `accelerate launch` several processes share each batch.
    """
    return _Run(plan, progress).run()


@dataclasses.dataclass(frozen=True)
class _Turn:
    """One step of the optimizer: its batches, each of one data set."""

    epoch: int
    batches: list[tuple[PreparedSource, np.ndarray, np.random.Generator]]
    ends_epoch: bool


class _Run:
    """All that a run holds while it lasts."""

    def __init__(self, plan: TrainPlan, progress: bool) -> None:
        self.plan = plan
        self.device = choose_device(plan.device)
        if plan.precision == "float16" and self.device.type != "cuda":
            raise ModelError(f"precision: float16 is for CUDA, not {self.device}: use bfloat16 or float32")
        self.world = World(self.device)
        self.progress = progress and self.world.leads
        folder = find_model(plan.model)
        self.folder = RunFolder(plan.output, _digest(plan, str(folder)), self.world, plan.tensorboard)
        torch.manual_seed(plan.seed)
        self.parts = shape_parts(read_folder(folder, max_tokens=plan.max_tokens, decoder=plan.decoder), plan)

    def run(self) -> dict[str, Any]:
        before = self.folder.finished()
        if before is not None:
            return {**before, "kept": True}
        start = time.perf_counter()
        plan = self.plan
        raw = SentenceEncoder(self.parts, device=plan.device, precision="float32")
        dev = read_dev(plan.dev, plan.seed) if plan.dev else None
        sources = [prepare(source, raw, plan.batch_size, plan.seed, self.progress) for source in plan.data]
        turns, unseen = _turns(plan, sources)
        left_out = _left_out(sources, unseen)
        learning = _Learning(self, sources)
        best: dict[str, Any] = {"step": 0, "score": -math.inf, "before": None}
        state = self.folder.load(self.device)
        if state is not None:
            learning.load(state)
            best = state["best"]
        elif dev is not None:
            best["before"] = self._score(dev)
        self.folder.begin()  # what is refused until here leaves nothing behind
        if state is None and dev is not None:
            self.folder.log(step=0, dev=best["before"])
        done, loss = (state["step"], state["loss"]) if state else (0, math.nan)
        with ProgressBar("train", len(turns), "steps", done=done, disable=not self.progress) as bar:
            for step, turn in enumerate(turns[done:], done + 1):
                loss = learning.step(step, len(turns), turn)
                bar.advance(status=f"loss {loss:.4f}")
                if step % _LOG_EVERY == 0 or step == len(turns):
                    self.folder.log(step=step, epoch=turn.epoch, loss=loss, learning_rate=learning.rate)
                due = turn.ends_epoch if not plan.evaluate_every else step % plan.evaluate_every == 0
                if dev is not None and (due or step == len(turns)):
                    score = self._score(dev, learning.adapted)
                    self.folder.log(step=step, dev=score)
                    if score > best["score"]:
                        best = {**best, "step": step, "score": score}
                        self.folder.keep_best(self._plain(learning.adapted), step)
                if plan.checkpoint_every and step % plan.checkpoint_every == 0 and step < len(turns):
                    self.folder.save({"step": step, "loss": loss, "best": best, **learning.state()})
        result = {
            "model": plan.model,
            "steps": len(turns),
            "rows": sum(len(source.examples) for source in sources),
            "left_out": left_out,
            "dim": raw.dim,
            "loss": loss,
            "seconds": round(time.perf_counter() - start, 1),
        }
        if plan.dev is not None:
            result["dev"] = {
                "metric": METRICS[plan.dev.task],
                "before": best["before"],
                "best": best["score"],
                "best_step": best["step"],
            }
        card = write_card(plan, [len(source.examples) for source in sources], result)
        told = {**result, "plan": plan.to_dict()}
        self.folder.finish(self._plain(learning.adapted), told, card, best["step"] if plan.dev else None)
        return {**result, "kept": False}

    def _plain(self, adapted: nn.Module | None) -> EncoderParts:
        return self.parts if adapted is None else merge_lora(self.parts, adapted)

    def _score(self, dev: Examples, adapted: nn.Module | None = None) -> float:
        assert self.plan.dev is not None  # there is a dev set
        encoder = SentenceEncoder(self._plain(adapted), device=str(self.device), precision="float32")
        return score_dev(encoder, self.plan.dev.task, dev, self.plan.dev.prompts)


class _Learning:
    """Encoder, objectives and optimizer, and what a step does to them."""

    def __init__(self, run: _Run, sources: list[PreparedSource]) -> None:
        plan = run.plan
        self.plan, self.world = plan, run.world
        self.default_prompt = run.parts.prompts.get(run.parts.default_prompt_name or "", "")
        self.adapted = add_lora(run.parts, plan.lora_rank) if plan.lora_rank else None
        freeze_layers(run.parts, plan.freeze)
        self.encoder = TrainedEncoder(run.parts, run.device, plan.checkpointing)
        self.objectives = nn.ModuleList([source.objective for source in sources]).to(run.device)
        self.optimizer = make_optimizer([self.encoder, self.objectives], plan.learning_rate, plan.weight_decay)
        half = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}[plan.precision]
        self.scaler = torch.amp.GradScaler(run.device.type) if plan.precision == "float16" else None
        options = StepOptions(
            chunk_rows=plan.chunk_rows,
            attack=plan.adversarial,
            epsilon=plan.epsilon,
            attack_steps=plan.attack_steps,
            rdrop=plan.rdrop,
            autocast=half,
        )
        self.backward = Step(self.encoder, self.world, options, 1 / plan.accumulate)
        self.rate = 0.0
        torch.manual_seed(plan.seed + run.world.rank)  # dropout of its own in every process

    def step(self, number: int, total: int, turn: _Turn) -> float:
        """Learns from one turn, and returns its mean loss."""
        self.encoder.train()
        losses = []
        for source, rows, rng in turn.batches:
            batch = source.examples.take(rows)
            views = source.views(batch, rng)
            self.encoder.prompts = column_prompts(source.source.prompts or (self.default_prompt,), len(views))
            loss = self.backward(source.objective, views, source.labels(batch, self.encoder.device), self.scaler)
            if not math.isfinite(loss):
                raise JobError(
                    f"the loss is {loss} in step {number}, of rows {rows[:5].tolist()} ... of {source.source.file}, "
                    f"the first {batch.texts[0][0][:60]!r}: lower learning_rate, or look at these rows"
                )
            losses.append(loss)
        self.world.sum_gradients(self.encoder.parameters())
        if self.scaler:
            self.scaler.unscale_(self.optimizer)
        learned = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        nn.utils.clip_grad_norm_(learned, self.plan.clip)
        warmup = math.ceil(self.plan.warmup * total)
        self.rate = self.plan.learning_rate * learning_rate_factor(number - 1, total, warmup, self.plan.schedule)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate
        if self.scaler:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        for source, _, _ in turn.batches:
            source.objective.after_step(self.encoder)
        return float(np.mean(losses))

    def state(self) -> dict[str, Any]:
        """All that changes while learning."""
        scaler = {"scaler": self.scaler.state_dict()} if self.scaler else {}
        return {
            "encoder": self.encoder.state_dict(),
            "objectives": self.objectives.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            **scaler,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Goes back to such a state."""
        self.encoder.load_state_dict(state["encoder"])
        self.objectives.load_state_dict(state["objectives"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scaler:
            self.scaler.load_state_dict(state["scaler"])


def _turns(plan: TrainPlan, sources: list[PreparedSource]) -> tuple[list[_Turn], list[int]]:
    """Every step of the run, and how many rows of each data set are in none of the epochs.

    A pure function of the plan and the data, so that a resumed run takes the same steps.
    """
    turns: list[_Turn] = []
    seen = [np.zeros(len(source.examples), bool) for source in sources]
    numbers = {id(source): number for number, source in enumerate(sources)}
    for epoch in range(plan.epochs):
        batches = list(_epoch_batches(plan, sources, epoch))
        for source, rows, _ in batches:
            seen[numbers[id(source)]][rows] = True
        groups = list(_grouped(batches, plan.accumulate))
        turns += [_Turn(epoch, group, number == len(groups) - 1) for number, group in enumerate(groups)]
        if len(turns) >= (plan.max_steps or math.inf):
            break
    if not turns:
        raise DataError("no batch could be made of the data: use a smaller batch_size")
    return turns[: plan.max_steps], [int((~rows).sum()) for rows in seen]


def _left_out(sources: list[PreparedSource], unseen: list[int]) -> dict[str, int]:
    """Rows of the data that are not learned from, by data set and reason."""
    told: dict[str, int] = {}
    for source, rows in zip(sources, unseen, strict=True):
        reasons = {**source.examples.left_out, **({_IN_NO_BATCH: rows} if rows else {})}
        for reason, count in reasons.items():
            name = f"{source.source.file}: {reason}"
            told[name] = told.get(name, 0) + count
    return told


def _epoch_batches(
    plan: TrainPlan, sources: list[PreparedSource], epoch: int
) -> Iterator[tuple[PreparedSource, np.ndarray, np.random.Generator]]:
    cut = [source.batches(plan.seed, epoch) for source in sources]
    waiting = [iter(batches) for batches in cut]
    for number, which in enumerate(mixed_steps([len(batches) for batches in cut], plan.mixing, plan.seed, epoch)):
        yield sources[which], next(waiting[which]), np.random.default_rng((plan.seed, epoch, number))


def _grouped(batches: list[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(batches), size):
        yield batches[start : start + size]


def _digest(plan: TrainPlan, folder: str) -> str:
    """Stands for all that decides the result: the plan, the data and the model."""
    decides = {name: value for name, value in plan.to_dict().items() if name not in _NOT_PART_OF_A_RUN}
    files = [digest_files(source.file) for source in plan.data]
    dev = digest_files(plan.dev.file) if plan.dev else None
    content = [decides, files, dev, digest_files(f"{folder}/*.safetensors")]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
