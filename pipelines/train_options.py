"""What the train job can be told; light to import, so that `--help` answers at once."""

import dataclasses
from typing import Any

from pipelines.flags import JobOptions, flag, parse_condition, parse_range
from sbert_core.errors import DataError

EXAMPLE = "sbert-beam train --model default --data pairs.tsv --columns question,answer --output tuned"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions(JobOptions):
    """What the train job can be told. Flags go before what the plan in --config says."""

    output: str = flag("folder for the trained model, which --model of the other jobs takes")
    config: str | None = flag("a plan in YAML, which can say all there is (README, Training)", None)
    model: str | None = flag("the encoder to begin with: a folder, a hub name, or `default`", None)
    data: str | None = flag("rows to learn from: Parquet, JSONL, TSV or CSV; a folder; or pairs/ of the mine job", None)
    objective: str | None = flag("what is learned from them (default: multiple_negatives)", None)
    columns: str | None = flag("their text columns, with commas between", None)
    label: str | None = flag("their label column, for objectives that need one", None)
    label_range: str | None = flag("least and greatest score in it, as 0,5", None)
    where: str | None = flag("only rows with this value, as split=train", None)
    teacher: str | None = flag("who labels them: an encoder for distillation, else a cross-encoder", None)
    dev: str | None = flag("rows to choose the best model by", None)
    dev_task: str | None = flag("sts, triplets or pairs (default: sts)", None)
    dev_columns: str | None = flag("their text columns", None)
    dev_label: str | None = flag("their label column", None)
    dev_label_range: str | None = flag("least and greatest score in it", None)
    dev_where: str | None = flag("only rows with this value", None)
    cross_encoder: str | None = flag("train a cross-encoder instead, on labels that are score, binary or class", None)
    pooling: str | None = flag("cls, mean, max ..., instead of the model's own", None)
    keep_layers: int | None = flag("begin with this many of the model's layers", None, at_least=1, type=int)
    epochs: int | None = flag("how often each row is seen (default: 1)", None, at_least=1, type=int)
    max_steps: int | None = flag("end earlier", None, at_least=1, type=int)
    batch_size: int | None = flag("rows per step (default: 16)", None, at_least=1, type=int)
    learning_rate: float | None = flag("the highest (default: 2e-5)", None, above=0, type=float)
    seed: int | None = flag("of weights, order and dropout (default: 0)", None, at_least=0, type=int)
    device: str | None = flag("auto, cpu, cuda ...", None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.config is None and (self.model is None or self.data is None):
            raise DataError("say what to train and from what: --config plan.yaml, or --model and --data")
        if self.cross_encoder not in (None, "score", "binary", "class"):
            raise DataError(f"--cross_encoder is score, binary or class, got {self.cross_encoder!r}")
        if self.cross_encoder and (self.config or not self.label):
            raise DataError("--cross_encoder learns from --data with --columns and --label, not from --config")

    def changes(self) -> dict[str, Any]:
        """What was given as flags, in the words of a plan."""
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
                raise DataError(f"{alone} was given, and no file it is about: give --{name} too")
        plain = ("output", "model", "pooling", "keep_layers", "epochs", "max_steps", "batch_size", "learning_rate")
        given = {name: getattr(self, name) for name in (*plain, "seed", "device")}
        given |= {"data": _given(data) or None, "dev": _given(dev) or None}
        return _given(given)


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _split(value: str | None) -> list[str] | None:
    return None if value is None else [part.strip() for part in value.split(",")]
