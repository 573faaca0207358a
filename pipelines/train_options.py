"""The options of the train job; fast to import, for `--help`."""

import dataclasses
from typing import Any

from pipelines.flags import JobOptions, flag, parse_condition, parse_range
from sbert_core.errors import DataError

EXAMPLE = "sbert-beam train --model default --data pairs.tsv --columns question,answer --output tuned"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions(JobOptions):
    """The options of the train job. Flags override the plan in --config."""

    output: str = flag("folder for the trained model, which --model of the other jobs takes")
    config: str | None = flag("a training plan in YAML, with all settings (see docs/training.md)", None)
    model: str | None = flag("the encoder to start from: a folder, a hub name, or `default`", None)
    data: str | None = flag("training rows: Parquet, JSONL, TSV or CSV; a folder; or pairs/ of the mine job", None)
    objective: str | None = flag("the training objective (default: multiple_negatives)", None)
    columns: str | None = flag("text columns of the training rows, separated by commas", None)
    label: str | None = flag("label column of the training rows, for objectives that need one", None)
    label_range: str | None = flag("minimum and maximum label, e.g. 0,5", None)
    where: str | None = flag("only training rows with this value, e.g. split=train", None)
    teacher: str | None = flag(
        "the model that labels the training rows: an encoder for distillation, else a cross-encoder", None
    )
    dev: str | None = flag("development rows: the best model on them is kept", None)
    dev_task: str | None = flag("sts, triplets or pairs (default: sts)", None)
    dev_columns: str | None = flag("text columns of the development rows", None)
    dev_label: str | None = flag("label column of the development rows", None)
    dev_label_range: str | None = flag("minimum and maximum label of the development rows, e.g. 0,5", None)
    dev_where: str | None = flag("only development rows with this value, e.g. split=dev", None)
    cross_encoder: str | None = flag("train a cross-encoder instead, on labels that are score, binary or class", None)
    pooling: str | None = flag("cls, mean, max ..., instead of the model's own", None)
    keep_layers: int | None = flag("start from this many of the model's layers", None, at_least=1, type=int)
    epochs: int | None = flag("passes over the training rows (default: 1)", None, at_least=1, type=int)
    max_steps: int | None = flag("maximum number of optimizer steps", None, at_least=1, type=int)
    batch_size: int | None = flag("rows per optimizer step (default: 16)", None, at_least=1, type=int)
    learning_rate: float | None = flag("peak learning rate (default: 2e-5)", None, above=0, type=float)
    seed: int | None = flag("random seed of weights, order and dropout (default: 0)", None, at_least=0, type=int)
    device: str | None = flag("auto, cpu, cuda ...", None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.config is None and (self.model is None or self.data is None):
            raise DataError("no model or no data to train: give --config plan.yaml, or --model and --data")
        if self.cross_encoder not in (None, "score", "binary", "class"):
            raise DataError(f"--cross_encoder is score, binary or class, got {self.cross_encoder!r}")
        if self.cross_encoder and (self.config or not self.label):
            raise DataError("--cross_encoder needs --data, --columns and --label, and takes no --config")

    def changes(self) -> dict[str, Any]:
        """The settings that were given as flags, in the structure of a training plan."""
        data = {
            "file": self.data,
            "objective": self.objective,
            "columns": _split(self.columns),
            "label": self.label,
            "label_range": parse_range("label_range", self.label_range),
            "where": parse_condition("where", self.where),
            "teacher": self.teacher,
        }
        dev = {
            "file": self.dev,
            "task": self.dev_task,
            "columns": _split(self.dev_columns),
            "label": self.dev_label,
            "label_range": parse_range("dev_label_range", self.dev_label_range),
            "where": parse_condition("dev_where", self.dev_where),
        }
        for name, parts in (("data", data), ("dev", dev)):
            alone = next((part for part, value in parts.items() if value is not None and parts["file"] is None), None)
            if alone:
                raise DataError(f"{alone} was given without a file: give --{name} too")
        plain = ("output", "model", "pooling", "keep_layers", "epochs", "max_steps", "batch_size", "learning_rate")
        given = {name: getattr(self, name) for name in (*plain, "seed", "device")}
        given |= {"data": _given(data) or None, "dev": _given(dev) or None}
        return _given(given)


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _split(value: str | None) -> list[str] | None:
    return None if value is None else [part.strip() for part in value.split(",")]
