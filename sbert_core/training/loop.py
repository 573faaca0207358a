"""The training run: a plan in, a model folder out."""

import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from sbert_core.data.examples import Examples
from sbert_core.data.tables import digest_files
from sbert_core.encoder.device import choose_device
from sbert_core.encoder.model_folder import read_folder
from sbert_core.encoder.model_source import find_model
from sbert_core.encoder.sentence_encoder import SentenceEncoder
from sbert_core.errors import ModelError
from sbert_core.progress import ProgressBar
from sbert_core.training.card import write_card
from sbert_core.training.checkpoint import RunFolder
from sbert_core.training.dev import METRICS, read_dev, score_dev
from sbert_core.training.initial_model import shape_parts
from sbert_core.training.learner import Learner
from sbert_core.training.plan import DevSpec, TrainPlan
from sbert_core.training.prepared_data import prepare
from sbert_core.training.step_plan import OptimizerStep, plan_steps
from sbert_core.training.world import World

LOG_EVERY_STEPS = 10
_NOT_PART_OF_A_RUN = ("output", "device", "checkpoint_every", "tensorboard")

OnStep = Callable[[OptimizerStep, float], None]
"""Called after each step, its checkpoint included, with the step and its loss."""
ScoreDev = Callable[[SentenceEncoder, DevSpec, Examples], float]


def train(
    plan: TrainPlan, progress: bool = False, *, on_step: OnStep | None = None, score: ScoreDev = score_dev
) -> dict[str, Any]:
    """Trains an encoder, writes it to `plan.output` and returns the figures of the run.

    The same plan gives the same weights. A stopped run continues from its last checkpoint; a finished run is not
    repeated. With `torchrun` or `accelerate launch` several processes share each batch.

    Args:
        plan: the model, the data and the settings.
        progress: shows a progress bar.
        on_step: called after each step.
        score: scores a model on the dev set; the higher the better.
    """
    device = choose_device(plan.device)
    if plan.precision == "float16" and device.type != "cuda":
        raise ModelError(f"precision is float16, which needs CUDA, not {device}: use bfloat16 or float32")
    world = World(device)
    model_folder = find_model(plan.model)
    folder = RunFolder(plan.output, _digest(plan, model_folder), world, plan.tensorboard)
    finished = folder.finished()
    if finished is not None:
        return {**finished, "kept": True}
    run = _Run(plan, model_folder, folder, device, world, progress and world.is_main)
    return {**run.run(on_step, score), "kept": False}


@dataclasses.dataclass
class _Progress:
    """How far a run has come."""

    step: int = 0
    loss: float = math.nan
    score_before: float | None = None  # on the dev set
    best_score: float = -math.inf
    best_step: int = 0


class _Run:
    """One run: takes the steps of a plan; logs, scores and saves on the way."""

    def __init__(
        self, plan: TrainPlan, model_folder: Path, folder: RunFolder, device: torch.device, world: World, progress: bool
    ) -> None:
        """Reads model and data, and checks all that can be checked; nothing is written."""
        self._start_time = time.perf_counter()
        self._plan, self._folder, self._device, self._shows_progress = plan, folder, device, progress
        torch.manual_seed(plan.seed)
        parts = shape_parts(read_folder(model_folder, max_tokens=plan.max_tokens, decoder=plan.decoder), plan)
        encoder = SentenceEncoder(parts, device=plan.device, precision="float32")
        self._dim = encoder.dim
        self._dev_examples = read_dev(plan.dev, plan.seed) if plan.dev else None
        data_sets = [prepare(spec, encoder, plan.batch_size, plan.seed, progress) for spec in plan.data]
        self._n_rows = [len(data.examples) for data in data_sets]
        step_plan = plan_steps(plan, data_sets)
        self._steps, self._left_out = step_plan.steps, step_plan.left_out
        self._learner = Learner(plan, parts, data_sets, len(self._steps), device, world)
        self._progress = _Progress()

    def run(self, on_step: OnStep | None, score: ScoreDev) -> dict[str, Any]:
        """Takes all steps, or those after the last checkpoint, and writes the model."""
        self._start_or_resume(score)
        done, total = self._progress.step, len(self._steps)
        with ProgressBar("train", total, "steps", done=done, disable=not self._shows_progress) as bar:
            for step in self._steps[done:]:
                loss = self._learner.step(step)
                self._progress.step, self._progress.loss = step.number, loss
                self._log_score_and_save(step, score)
                bar.advance(status=f"loss {loss:.4f}")
                if on_step is not None:
                    on_step(step, loss)
        return self._finish()

    def _start_or_resume(self, score: ScoreDev) -> None:
        state = self._folder.load(self._device)
        if state is not None:
            self._learner.load(state)
            self._progress = _Progress(**state["progress"])
        elif self._plan.dev is not None:
            self._progress.score_before = self._score(score)
        self._folder.begin()  # an error before this line leaves nothing behind
        if state is None and self._plan.dev is not None:
            self._folder.log(step=0, dev=self._progress.score_before)

    def _log_score_and_save(self, step: OptimizerStep, score: ScoreDev) -> None:
        """Does after a step what is due then."""
        plan, number, is_last = self._plan, step.number, step.number == len(self._steps)
        if is_last or number % LOG_EVERY_STEPS == 0:
            figures = {"loss": self._progress.loss, "learning_rate": self._learner.learning_rate}
            self._folder.log(step=number, epoch=step.epoch, **figures)
        is_score_due = number % plan.evaluate_every == 0 if plan.evaluate_every else step.ends_epoch
        if plan.dev is not None and (is_last or is_score_due):
            self._keep_if_best(number, self._score(score))
        if plan.checkpoint_every and number % plan.checkpoint_every == 0 and not is_last:
            self._folder.save({"progress": dataclasses.asdict(self._progress), **self._learner.state()})

    def _keep_if_best(self, step_number: int, dev_score: float) -> None:
        self._folder.log(step=step_number, dev=dev_score)
        if dev_score > self._progress.best_score:
            self._progress.best_score, self._progress.best_step = dev_score, step_number
            self._folder.keep_best(self._learner.trained_parts(), step_number)

    def _score(self, score: ScoreDev) -> float:
        assert self._plan.dev is not None
        assert self._dev_examples is not None
        encoder = SentenceEncoder(self._learner.trained_parts(), device=str(self._device), precision="float32")
        return score(encoder, self._plan.dev, self._dev_examples)

    def _finish(self) -> dict[str, Any]:
        plan, progress = self._plan, self._progress
        result = {
            "model": plan.model,
            "steps": len(self._steps),
            "rows": sum(self._n_rows),
            "left_out": self._left_out,
            "dim": self._dim,
            "loss": progress.loss,
            "seconds": round(time.perf_counter() - self._start_time, 1),
        }
        if plan.dev is not None:
            result["dev"] = {
                "metric": METRICS[plan.dev.task],
                "before": progress.score_before,
                "best": progress.best_score,
                "best_step": progress.best_step,
            }
        card = write_card(plan, self._n_rows, result)
        best_step = progress.best_step if plan.dev else None
        self._folder.finish(self._learner.trained_parts(), {**result, "plan": plan.to_dict()}, card, best_step)
        return result


def _digest(plan: TrainPlan, model_folder: Path) -> str:
    """The hash of all that decides the result: the plan, the data and the model."""
    settings = {name: value for name, value in plan.to_dict().items() if name not in _NOT_PART_OF_A_RUN}
    data = [digest_files(spec.file) for spec in plan.data]
    dev = digest_files(plan.dev.file) if plan.dev else None
    content = [settings, data, dev, digest_files(f"{model_folder}/*.safetensors")]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
