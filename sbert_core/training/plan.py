"""The plan of a training run: the model, the data sets with their objectives, and the settings of the optimizer."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, field_validator, model_validator

from sbert_core.data.tables import short
from sbert_core.encoder.prompts import prompts_of_columns
from sbert_core.errors import DataError
from sbert_core.training.attack import Attack
from sbert_core.training.batches import Mixing
from sbert_core.training.losses.objectives import OBJECTIVES
from sbert_core.training.plan_fields import (
    Count,
    Finite,
    Flag,
    Integer,
    Number,
    OneOrMore,
    PlanPart,
    PositiveCount,
    Range,
    Share,
    TextKeys,
    Texts,
    Weight,
    check_keys,
)
from sbert_core.training.schedule import Schedule

DevTask = Literal["sts", "triplets", "pairs"]
TrainPrecision = Literal["float32", "bfloat16", "float16"]


class DataSpec(PlanPart):
    """A data set and the objective that is trained on it."""

    file: str  # Parquet, JSONL, TSV or CSV; a folder of shards; `pairs/` of the mine job
    objective: str = "multiple_negatives"
    columns: Texts = ()  # text columns in the order of the objective; none: by their usual names
    label: str | None = None
    label_range: Range | None = None  # the scores in the file that become 0 and 1
    where: dict[str, Any] = {}  # only rows with these values
    limit: PositiveCount | None = None  # a random sample of this many rows
    options: dict[str, Any] = {}  # of the objective
    prompts: Texts = ()  # put before the texts of each column; none: the model's default prompt
    teacher: str | None = None  # the model that labels the rows: an encoder for distillation, else a cross-encoder
    hard_negatives: dict[str, Any] | None = None  # ranks, margin, per_pair; from: an output folder of `mine`
    augment: dict[str, Any] | None = None  # delete, swap, synonyms, probability, columns
    batch_size: PositiveCount | None = None  # None: the plan's

    @field_validator("objective")
    @classmethod
    def _check_objective(cls, name: str) -> str:
        if name not in OBJECTIVES:
            close = difflib.get_close_matches(name, OBJECTIVES, 1)
            hint = f"did you mean {close[0]}?" if close else f"use one of {', '.join(OBJECTIVES)}"
            raise DataError(f"there is no objective {name!r}: {hint}")
        return name


class DevSpec(PlanPart):
    """Rows that are not trained on; the model with the best score on them is kept."""

    file: str
    task: DevTask = "sts"  # Spearman of cosine and score; accuracy of triplets; average precision of pairs
    columns: Texts = ()
    label: str | None = None
    label_range: Range | None = None
    where: dict[str, Any] = {}
    limit: PositiveCount | None = None
    prompts: Texts = ()  # of each column; none: those of the model, as `evaluate` uses them


class TrainPlan(PlanPart):
    """A training run; the defaults are those of the Sentence-BERT paper."""

    model: str  # a model folder, a plain transformer, a hub name, or `default`
    output: str  # the folder of the trained model
    data: Annotated[tuple[Annotated[DataSpec, TextKeys], ...], OneOrMore]
    dev: Annotated[DevSpec, TextKeys] | None = None
    prompts: dict[str, str] | None = None  # saved with the model, by name; None: those of the data sets
    pooling: str | None = None  # instead of the model's own: cls, mean, max ..., or several with commas
    decoder: Flag = False  # T5: the first token of the decoder instead of the mean of the encoder's tokens
    max_tokens: PositiveCount | None = None
    normalize: Flag | None = None  # None: as the model does
    dense: Annotated[PositiveCount, Field(le=65_536)] | None = None  # adds a linear layer to this many dimensions
    keep_layers: Annotated[PositiveCount, Field(le=10_000)] | None = None  # starts from this many layers, evenly spaced
    epochs: Annotated[PositiveCount, Field(le=100_000)] = 1
    max_steps: PositiveCount | None = None  # ends the run earlier
    batch_size: PositiveCount = 16
    learning_rate: Annotated[Finite, Field(gt=0)] = 2e-5
    warmup: Share = 0.1  # share of all steps
    schedule: Schedule = "linear"
    weight_decay: Weight = 0.01
    clip: Annotated[Number, Field(gt=0)] = 1.0  # maximum norm of the gradient
    accumulate: PositiveCount = 1  # batches per optimizer step
    mixing: Mixing = "proportional"
    chunk_rows: Count = 0  # rows embedded at once (GradCache), for batches larger than memory; 0: all
    adversarial: Attack = "none"
    epsilon: Annotated[Finite, Field(gt=0)] | None = None  # size of the attack, see `StepOptions`; None: the default
    attack_steps: Annotated[PositiveCount, Field(le=1000)] = 3
    rdrop: Weight = 0.0
    precision: TrainPrecision = "float32"
    checkpointing: Flag = False  # recomputes activations: less memory, more time
    freeze: Annotated[Count, Field(le=10_000)] = 0  # token embeddings and this many layers stay unchanged
    lora_rank: Annotated[Count, Field(le=4096)] = 0  # trains low-rank adapters only; needs the extra `train`
    evaluate_every: Count = 0  # steps; 0: after each epoch
    checkpoint_every: Count = 500  # steps; 0: never
    tensorboard: Flag = False  # needs the extra `train`
    device: str = "auto"
    seed: Annotated[Integer, Field(ge=0, lt=2**32)] = 0

    @field_validator("data", mode="before")
    @classmethod
    def _check_data(cls, value: Any) -> Any:
        if not isinstance(value, Mapping | list | tuple | None):
            raise DataError(f"must be a data set or a list of them, got {short(value)}")
        if not value:
            raise DataError("there is nothing to train on: name at least one data set")
        return value

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        """Checks that settings agree with each other."""
        if self.chunk_rows and self.rdrop:
            raise DataError("rdrop compares two passes of a whole batch: leave chunk_rows out")
        if self.evaluate_every and self.dev is None:
            raise DataError(f"evaluate_every is {self.evaluate_every}, but there is no dev set: add dev")
        if self.epsilon is not None and self.adversarial == "none":
            raise DataError(f"epsilon is {self.epsilon:g}, but there is no attack: add adversarial: fgsm, fgm or pgd")
        for spec in self.data:
            objective, batch_size = OBJECTIVES[spec.objective], spec.batch_size or self.batch_size
            if objective.distinct and not objective.queued and batch_size < 2:
                raise DataError(
                    f"batch_size is {batch_size}, but {spec.objective} uses the other rows of a batch as negatives: "
                    "use at least 2"
                )
        if self.prompts is None:
            prompts_of_columns([spec.prompts for spec in self.data])  # raises if they differ
        return self

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "the plan") -> Self:
        """Makes a plan of nested mappings, as in YAML. An unknown key is an error; `where` is named in errors."""
        try:
            return cls(**check_keys(values))
        except DataError as error:
            raise DataError(f"{where}: {error}") from error

    @classmethod
    def read(cls, path: str, **changes: Any) -> Self:
        """Reads a plan from a YAML file; `changes` override its values."""
        try:
            values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise DataError(f"the plan {path} cannot be read: {error.strerror}") from error
        except (yaml.YAMLError, UnicodeError) as error:
            raise DataError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
        if not isinstance(values, Mapping):
            raise DataError(f"{path} holds no plan: expected `model:`, `output:`, `data:` ...")
        return cls.from_dict({**values, **changes}, path)

    def to_dict(self) -> dict[str, Any]:
        """The plan as values that JSON can hold."""
        return self.model_dump(mode="json", fallback=str)
