"""Training of cross-encoders: both texts of a pair in, a score or a class out."""

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
from torch.optim.lr_scheduler import LambdaLR

from sbert_core.data.examples import Examples
from sbert_core.encoder.cross_encoder import CrossEncoder
from sbert_core.encoder.model_folder import check_model_target
from sbert_core.errors import DataError
from sbert_core.progress import ProgressBar
from sbert_core.training.batches import by_length
from sbert_core.training.schedule import make_optimizer, make_schedule

Kind = Literal["score", "class", "binary"]

_METRICS = {"score": "spearman", "class": "accuracy", "binary": "average_precision"}
_MAX_GRADIENT_NORM = 1.0


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
    accuracy (class) or average precision (binary); without `dev` the last one. The same seed gives the same weights.

    Args:
        model: an encoder that provides all weights but the head: `default`, a folder, a URI or a hub name.
        examples: two text columns and a label.
        output: if it is a model already, it is replaced at the end, in one operation.
        kind: the type of the labels.
        epochs: how often each pair is seen.
        batch_size: pairs per step; the pairs of a batch have similar lengths.
        learning_rate: the maximum; it then falls to 0 linearly.
        warmup: the share of steps in which it rises to the maximum.
        max_tokens: truncates pairs to this many tokens, special tokens included, instead of the model's own limit.
        seed: of the weights of the head, the order of rows and dropout.
        dev: pairs by which the best epoch is chosen.
        device: `auto` takes CUDA, then MPS, then CPU; or torch's name of a device.
        progress: shows a progress bar.

    Returns:
        `steps`, `metric` (the name of the dev metric), `best` (its best value, None without `dev`) and
        `epochs`, for each its mean `loss` and, with `dev`, the metric.
    """
    if seed < 0:
        raise DataError(f"seed must not be negative, got {seed}")
    if epochs < 1:
        raise DataError(f"epochs must be at least 1, got {epochs}")
    if not 0 <= warmup <= 1:
        raise DataError(f"warmup must be a share of all steps, from 0 to 1, got {warmup}")
    check_model_target(Path(output))
    labels = _check(examples, kind)
    names = _class_names(examples, labels) if kind == "class" else ("LABEL_0",)
    checked_dev = None if dev is None else (_pairs(dev), _align(dev, _check(dev, kind), names, kind))
    with torch.random.fork_rng(range(torch.cuda.device_count())):  # leaves the random state of the caller unchanged
        torch.manual_seed(seed)
        encoder = CrossEncoder.begin(model, names, device, max_tokens)
        run = _Run(encoder, examples, labels, kind)
        batches = run.plan_batches(epochs, batch_size, seed)
        result = run.train(batches, learning_rate, warmup, checked_dev, progress)
    encoder.save(output)
    return result


class _Run:
    """One run over one set of pairs."""

    def __init__(
        self,
        encoder: CrossEncoder,
        examples: Examples,
        labels: np.ndarray,
        kind: Kind,
    ) -> None:
        self.encoder, self.pairs, self.name, self.kind = encoder, _pairs(examples), examples.name, kind
        self.labels = torch.from_numpy(labels).to(encoder.device)  # (n,)
        self.step = 0

    def plan_batches(self, epochs: int, batch_size: int, seed: int) -> list[list[np.ndarray]]:
        """The rows of each batch of each epoch."""
        lengths = self.encoder.count_tokens(self.pairs)
        return [by_length(lengths, batch_size, seed, epoch) for epoch in range(epochs)]

    def train(
        self,
        epochs: list[list[np.ndarray]],
        learning_rate: float,
        warmup: float,
        dev: tuple[list[tuple[str, str]], np.ndarray] | None,
        progress: bool,
    ) -> dict[str, Any]:
        total = sum(map(len, epochs))
        optimizer = make_optimizer(self.encoder.model, learning_rate)
        schedule = make_schedule(optimizer, "linear", math.ceil(warmup * total), total)
        metric = _METRICS[self.kind]
        best: float | None = None
        best_weights: dict[str, Tensor] = {}
        reports = []
        with ProgressBar("cross-encoder", total, "steps", disable=not progress) as bar:
            for batches in epochs:
                report = {"loss": self._train_epoch(batches, optimizer, schedule, bar)}
                if dev is not None:
                    report[metric] = _measure(self.encoder.predict(dev[0]), dev[1], self.kind)
                    if best is None or report[metric] > best:
                        best = report[metric]
                        weights = self.encoder.model.state_dict()
                        best_weights = {name: weight.cpu().clone() for name, weight in weights.items()}
                reports.append(report)
        if best_weights:
            self.encoder.model.load_state_dict(best_weights)
        return {"steps": total, "metric": metric, "best": best, "epochs": reports}

    def _train_epoch(
        self, batches: list[np.ndarray], optimizer: torch.optim.Optimizer, schedule: LambdaLR, bar: ProgressBar
    ) -> float:
        self.encoder.model.train()
        losses = []
        for rows in batches:
            loss = self._loss(rows)
            value = loss.item()
            if not math.isfinite(value):
                raise DataError(
                    f"{self.name}: the loss is {value} in step {self.step} with rows {_listed(rows)} (counted from 0): "
                    "check these rows, or lower learning_rate"
                )
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.encoder.model.parameters(), _MAX_GRADIENT_NORM)
            optimizer.step()
            schedule.step()
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
    """The labels in the type of the loss, if the examples fit this kind of cross-encoder."""
    if kind not in get_args(Kind):
        raise DataError(f"a cross-encoder cannot be trained on {kind!r}: use {', '.join(get_args(Kind))}")
    where, labels = examples.name, examples.labels
    if len(examples.texts) != 2:
        raise DataError(f"{where} has {len(examples.texts)} text columns: a cross-encoder needs 2 and a label")
    if not len(examples):
        raise DataError(f"{where} has no rows")
    if labels is None or labels.ndim != 1:
        raise DataError(f"{where} has {'no' if labels is None else 'vectors as'} labels: expected one {kind} per pair")
    if kind == "class":
        if not np.issubdtype(labels.dtype, np.integer):
            raise DataError(f"{where}: labels are {labels.dtype}, expected whole numbers of classes")
        is_valid = (labels >= 0) & (labels < (len(examples.classes) or np.inf))
        _refuse_first(
            examples, is_valid, f"a class from 0 to {len(examples.classes) - 1}" if examples.classes else "a class"
        )
        return labels.astype(np.int64)
    if kind == "binary":
        _refuse_first(examples, (labels == 0) | (labels == 1), "0 or 1")
    _refuse_first(examples, (labels >= 0) & (labels <= 1), "a score from 0 to 1: scale the labels to that")
    return labels.astype(np.float32)


def _refuse_first(examples: Examples, is_valid: np.ndarray, expected: str) -> None:
    if not is_valid.all():
        row = int(np.argmin(is_valid))
        assert examples.labels is not None  # checked by `_check`
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
        raise DataError(
            f"{dev.name} has the class {unknown[0]!r}, which the training data does not have: use {', '.join(names)}"
        )
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
