"""Trains a cross-encoder: both texts of a pair in, a score or a class out."""

import math
import os
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import scipy.stats
import sklearn.metrics
import torch
import torch.nn.functional as F
from torch import Tensor

from sbert_core.data.examples import Examples
from sbert_core.encoder.cross_encoder import CrossEncoder
from sbert_core.encoder.cross_encoder_folder import check_target
from sbert_core.errors import DataError
from sbert_core.progress import ProgressBar
from sbert_core.training.batches import by_length
from sbert_core.training.schedule import learning_rate_factor, make_optimizer

Kind = Literal["score", "class", "binary"]

_METRICS = {"score": "spearman", "class": "accuracy", "binary": "average_precision"}
_MAX_NORM = 1.0


def train_cross_encoder(
    model: str | os.PathLike[str],
    examples: Examples,
    output: str | os.PathLike[str],
    *,
    kind: Kind = "score",
    epochs: int = 1,
    batch_size: int = 16,
    learning_rate: float = 2e-5,
    warmup: float = 0.1,
    max_tokens: int | None = None,
    seed: int = 0,
    dev: Examples | None = None,
    device: str = "auto",
    progress: bool = True,
) -> dict[str, Any]:
    """Trains a cross-encoder on labelled pairs and writes it to the folder `output`.

    With z the logits of a pair and y its label, the loss is the mean over a batch of

        score, binary:  -y log sigmoid(z) - (1 - y) log(1 - sigmoid(z))      one logit, y in [0, 1]
        class:          -log softmax(z)_y                                    one logit per class

    The gradient is clipped to norm 1. With `dev` the epoch is kept that is best by Spearman's correlation (score),
    accuracy (class) or average precision (binary); else the last. The same seed gives the same weights.

    Args:
        model: an encoder, from which all but the head is taken: `default`, a folder, a URI or a hub name.
        examples: two text columns and a label.
        output: replaced as a whole, at the end, if it is a model already.
        kind: what labels are.
        epochs: how often each pair is seen.
        batch_size: pairs per step; those of a batch are of like length.
        learning_rate: the highest, falling to 0 in a straight line.
        warmup: the share of steps over which it rises to that.
        max_tokens: cuts a pair here, both texts and special tokens counted, instead of at the model's own limit.
        seed: of the head, of the order and of dropout.
        dev: pairs to choose the best epoch by.
        device: `auto` takes CUDA, then MPS, then CPU; or torch's name of a device.
        progress: shows a progress bar.

    Returns:
        What was done: `steps`, `metric` (the name of the dev metric), `best` (its best value, None without `dev`) and
        `epochs`, for each its mean `loss` and, with `dev`, the metric.
    """
    if seed < 0:
        raise DataError(f"seed must not be negative, got {seed}")
    if epochs < 1:
        raise DataError(f"epochs must be at least 1, got {epochs}")
    if not 0 <= warmup <= 1:
        raise DataError(f"warmup is a share of all steps, between 0 and 1, got {warmup}")
    check_target(Path(output))
    labels = _check(examples, kind)
    names = _class_names(examples, labels) if kind == "class" else ("LABEL_0",)
    checked_dev = None if dev is None else (_pairs(dev), _align(dev, _check(dev, kind), names, kind))
    with torch.random.fork_rng(range(torch.cuda.device_count())):  # the caller's random numbers stay their own
        torch.manual_seed(seed)
        encoder = CrossEncoder.begin(model, names, device, max_tokens)
        run = _Run(encoder, examples, labels, kind, learning_rate)
        plan = run.plan(epochs, batch_size, seed)
        done = run.learn(plan, warmup, checked_dev, progress)
    encoder.save(output)
    return done


class _Run:
    """One run over one set of pairs."""

    def __init__(
        self,
        encoder: CrossEncoder,
        examples: Examples,
        labels: np.ndarray,
        kind: Kind,
        learning_rate: float,
    ) -> None:
        self.encoder, self.pairs, self.name, self.kind = encoder, _pairs(examples), examples.name, kind
        self.labels = torch.from_numpy(labels).to(encoder.device)  # (n,)
        self.learning_rate = learning_rate
        self.optimizer = make_optimizer(encoder.model, learning_rate)
        self.step = 0

    def plan(self, epochs: int, batch_size: int, seed: int) -> list[list[np.ndarray]]:
        """The rows of each batch of each epoch."""
        lengths = self.encoder.count_tokens(self.pairs)
        return [by_length(lengths, batch_size, seed, epoch) for epoch in range(epochs)]

    def learn(
        self,
        plan: list[list[np.ndarray]],
        warmup: float,
        dev: tuple[list[tuple[str, str]], np.ndarray] | None,
        progress: bool,
    ) -> dict[str, Any]:
        total = sum(map(len, plan))
        metric = _METRICS[self.kind]
        best: float | None = None
        kept: dict[str, Tensor] = {}
        reports = []
        with ProgressBar("cross-encoder", total, "steps", disable=not progress) as bar:
            for batches in plan:
                report = {"loss": self._epoch(batches, total, math.ceil(warmup * total), bar)}
                if dev is not None:
                    report[metric] = _measure(self.encoder.predict(dev[0]), dev[1], self.kind)
                    if best is None or report[metric] > best:
                        best = report[metric]
                        kept = {name: weight.cpu().clone() for name, weight in self.encoder.model.state_dict().items()}
                reports.append(report)
        if kept:
            self.encoder.model.load_state_dict(kept)
        return {"steps": total, "metric": metric, "best": best, "epochs": reports}

    def _epoch(self, batches: list[np.ndarray], total: int, warmup_steps: int, bar: ProgressBar) -> float:
        self.encoder.model.train()
        losses = []
        for rows in batches:
            for group in self.optimizer.param_groups:
                group["lr"] = self.learning_rate * learning_rate_factor(self.step, total, warmup_steps)
            loss = self._loss(rows)
            value = loss.item()
            if not math.isfinite(value):
                raise DataError(
                    f"{self.name}: the loss is {value} in step {self.step} with rows {_listed(rows)} (counted from 0): "
                    "look at these rows, or try a lower learning_rate"
                )
            self.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.encoder.model.parameters(), _MAX_NORM)
            self.optimizer.step()
            self.step += 1
            losses.append(value * len(rows))
            bar.advance(status=f"loss {value:.4f}")
        self.encoder.model.eval()
        return sum(losses) / len(self.pairs)

    def _loss(self, rows: np.ndarray) -> Tensor:
        logits = self.encoder.logits([self.pairs[row] for row in rows])  # (n, labels)
        labels = self.labels[torch.from_numpy(rows).to(self.labels.device)]
        if self.kind == "class":
            return F.cross_entropy(logits, labels)
        return F.binary_cross_entropy_with_logits(logits[:, 0], labels)


def _check(examples: Examples, kind: Kind) -> np.ndarray:
    """The labels as the loss wants them, if these examples are what a cross-encoder of this kind learns from."""
    if kind not in get_args(Kind):
        raise DataError(f"a cross-encoder does not learn {kind!r}: use {', '.join(get_args(Kind))}")
    where, labels = examples.name, examples.labels
    if len(examples.texts) != 2:
        raise DataError(f"{where} has {len(examples.texts)} text columns: a cross-encoder learns from 2 and a label")
    if not len(examples):
        raise DataError(f"{where} has no rows")
    if labels is None or labels.ndim != 1:
        raise DataError(f"{where} has {'no' if labels is None else 'vectors as'} labels: expected one {kind} per pair")
    if kind == "class":
        if not np.issubdtype(labels.dtype, np.integer):
            raise DataError(f"{where}: labels are {labels.dtype}, expected whole numbers of classes")
        good = (labels >= 0) & (labels < (len(examples.classes) or np.inf))
        _refuse_first(
            examples, good, f"a class from 0 to {len(examples.classes) - 1}" if examples.classes else "a class"
        )
        return labels.astype(np.int64)
    if kind == "binary":
        _refuse_first(examples, (labels == 0) | (labels == 1), "0 or 1")
    _refuse_first(examples, (labels >= 0) & (labels <= 1), "a score from 0 to 1: scale the labels to that")
    return labels.astype(np.float32)


def _refuse_first(examples: Examples, good: np.ndarray, expected: str) -> None:
    if not good.all():
        row = int(np.argmin(good))
        assert examples.labels is not None  # _check has seen to it
        raise DataError(f"{examples.name}: the label of row {row} is {examples.labels[row]}, expected {expected}")


def _class_names(examples: Examples, labels: np.ndarray) -> tuple[str, ...]:
    names = examples.classes or tuple(f"LABEL_{number}" for number in range(int(labels.max()) + 1))
    if len(names) < 2:
        raise DataError(f"{examples.name} has a single class: expected two or more")
    return names


def _align(dev: Examples, labels: np.ndarray, names: tuple[str, ...], kind: Kind) -> np.ndarray:
    """Numbers the classes of the dev data as the training data does."""
    if kind != "class":
        return labels
    own = dev.classes or names
    unknown = sorted({own[number] if number < len(own) else str(number) for number in labels} - set(names))
    if unknown:
        raise DataError(f"{dev.name} has the class {unknown[0]!r}, which the training data has not: {', '.join(names)}")
    return np.array([names.index(own[number]) for number in labels], np.int64)


def _pairs(examples: Examples) -> list[tuple[str, str]]:
    return list(zip(*examples.texts, strict=True))


def _measure(predicted: np.ndarray, labels: np.ndarray, kind: Kind) -> float:
    if kind == "class":
        return float((predicted.argmax(axis=1) == labels).mean())
    if kind == "binary":
        return float(sklearn.metrics.average_precision_score(labels, predicted))
    return float(np.nan_to_num(scipy.stats.spearmanr(predicted, labels).statistic))  # constant scores: no correlation


def _listed(rows: np.ndarray) -> str:
    return ", ".join(map(str, sorted(rows.tolist())[:20])) + (" ..." if len(rows) > 20 else "")
