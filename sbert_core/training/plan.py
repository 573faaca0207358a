"""What a training run is to do: the model, the data sets with their objectives, and how to learn."""

import dataclasses
import difflib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

import yaml

from sbert_core.data.tables import short
from sbert_core.encoder.prompts import prompts_of_columns
from sbert_core.errors import DataError
from sbert_core.training.attack import Attack
from sbert_core.training.batches import Mixing
from sbert_core.training.losses.objectives import OBJECTIVES
from sbert_core.training.plan_values import check_above_zero, check_choices, check_numbers, make_part
from sbert_core.training.schedule import Schedule

DevTask = Literal["sts", "triplets", "pairs"]
TrainPrecision = Literal["float32", "bfloat16", "float16"]

_LARGE = 1_000_000_000  # no run has as many steps or rows
# Least and most; above these a run would only end by running out of memory or time.
_LIMITS = {
    "epochs": (1, 100_000),
    "max_steps": (1, _LARGE),
    "batch_size": (1, _LARGE),
    "accumulate": (1, _LARGE),
    "attack_steps": (1, 1000),
    "keep_layers": (1, 10_000),
    "dense": (1, 65_536),
    "max_tokens": (1, _LARGE),
    "chunk_rows": (0, _LARGE),
    "freeze": (0, 10_000),
    "lora_rank": (0, 4096),
    "evaluate_every": (0, _LARGE),
    "checkpoint_every": (0, _LARGE),
    "seed": (0, 2**32 - 1),
    "warmup": (0, 1),
    "rdrop": (0, 1e9),
    "weight_decay": (0, 1e9),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """A data set, and what is learned from it."""

    file: str  # Parquet, JSONL, TSV or CSV; a folder of shards; `pairs/` of the mine job
    objective: str = "multiple_negatives"
    columns: tuple[str, ...] = ()  # text columns in the order the objective means; none: by their usual names
    label: str | None = None
    label_range: tuple[float, float] | None = None  # scores: what 0 and 1 are called in the file
    where: dict[str, Any] = dataclasses.field(default_factory=dict)  # only rows with these values
    limit: int | None = None  # a random sample of this many rows
    options: dict[str, Any] = dataclasses.field(default_factory=dict)  # of the objective
    prompts: tuple[str, ...] = ()  # put before the texts of each column; none: the model's default prompt
    teacher: str | None = None  # who labels the rows: an encoder for distillation, else a cross-encoder
    hard_negatives: dict[str, Any] | None = None  # ranks, margin, per_pair; from: a folder that `mine` has filled
    augment: dict[str, Any] | None = None  # delete, swap, synonyms, probability, columns
    batch_size: int | None = None  # None: the plan's

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            close = difflib.get_close_matches(self.objective, OBJECTIVES, 1)
            hint = f"did you mean {close[0]}?" if close else f"use one of {', '.join(OBJECTIVES)}"
            raise DataError(f"there is no objective {self.objective!r}: {hint}")
        check_numbers(self, {"limit": (1, _LARGE), "batch_size": (1, _LARGE)})
        _check_range(self.label_range)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dev:
    """Rows that are not learned from, to see which model is best."""

    file: str
    task: DevTask = "sts"  # Spearman of cosine and score; accuracy of triplets; average precision of pairs
    columns: tuple[str, ...] = ()
    label: str | None = None
    label_range: tuple[float, float] | None = None
    where: dict[str, Any] = dataclasses.field(default_factory=dict)
    limit: int | None = None
    prompts: tuple[str, ...] = ()  # of each column; none: those of the model, as `evaluate` uses them

    def __post_init__(self) -> None:
        check_choices(self, task=DevTask)
        check_numbers(self, {"limit": (1, _LARGE)})
        _check_range(self.label_range)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainPlan:
    """A training run; the defaults are those of the Sentence-BERT paper."""

    model: str  # a model folder, a plain transformer, a hub name, or `default`
    output: str  # the folder of the trained model
    data: tuple[Source, ...]
    dev: Dev | None = None
    prompts: dict[str, str] | None = None  # saved with the model, by name; None: those of the data sets
    pooling: str | None = None  # instead of the model's own: cls, mean, max ..., or several with commas
    decoder: bool = False  # T5: the first token of the decoder instead of the mean of the encoder's
    max_tokens: int | None = None
    normalize: bool | None = None  # None: as the model does
    dense: int | None = None  # adds a linear layer to this many dimensions
    keep_layers: int | None = None  # begins with this many of the model's layers, evenly chosen
    epochs: int = 1
    max_steps: int | None = None  # ends the run earlier
    batch_size: int = 16
    learning_rate: float = 2e-5
    warmup: float = 0.1  # share of all steps
    schedule: Schedule = "linear"
    weight_decay: float = 0.01
    clip: float = 1.0  # largest norm of the gradient
    accumulate: int = 1  # batches per step
    mixing: Mixing = "proportional"
    chunk_rows: int = 0  # rows embedded at once (GradCache), for batches larger than memory
    adversarial: Attack = "none"
    epsilon: float | None = None  # length of the attack / that of a text's token embeddings; None: the default
    attack_steps: int = 3
    rdrop: float = 0.0
    precision: TrainPrecision = "float32"
    checkpointing: bool = False  # less memory for more time
    freeze: int = 0  # token embeddings and this many layers are not learned
    lora_rank: int = 0  # learns low-rank changes only; needs the extra `train`
    evaluate_every: int = 0  # steps; 0: after each epoch
    checkpoint_every: int = 500  # steps; 0: never
    tensorboard: bool = False  # needs the extra `train`
    device: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.data:
            raise DataError("there is nothing to learn from: name at least one data set")
        check_choices(self, schedule=Schedule, mixing=Mixing, adversarial=Attack, precision=TrainPrecision)
        check_numbers(self, _LIMITS)
        check_above_zero(self, "learning_rate", "epsilon")
        if not self.clip > 0:
            raise DataError(f"clip must be above 0, got {self.clip}")
        if self.chunk_rows and self.rdrop:
            raise DataError("rdrop compares two passes of a whole batch: leave chunk_rows out")
        if self.evaluate_every and self.dev is None:
            raise DataError(f"evaluate_every is {self.evaluate_every}, and there are no rows to score: add dev")
        if self.epsilon is not None and self.adversarial == "none":
            raise DataError(f"epsilon is {self.epsilon:g}, and there is no attack: add adversarial: fgsm, fgm or pgd")
        for source in self.data:
            kind, size = OBJECTIVES[source.objective], source.batch_size or self.batch_size
            if kind.distinct and not kind.queued and size < 2:
                raise DataError(
                    f"batch_size is {size}, and {source.objective} takes the other rows of a batch as negatives: "
                    "give at least 2"
                )
        if self.prompts is None:
            prompts_of_columns([source.prompts for source in self.data])  # that they agree

    @classmethod
    def from_dict(cls, given: Mapping[str, Any], where: str = "the plan") -> Self:
        """Makes a plan of nested mappings, as in YAML; a key that is not known is an error."""
        given = dict(given)
        sources = _listed(given.pop("data", ()), where)
        dev = given.pop("dev", None)
        return make_part(
            cls,
            {
                **given,
                "data": tuple(make_part(Source, each, f"{where}, data") for each in sources),
                "dev": None if dev is None else make_part(Dev, dev, f"{where}, dev"),
            },
            where,
        )

    @classmethod
    def read(cls, path: str, **changes: Any) -> Self:
        """Reads a plan from a YAML file; `changes` go before what it says."""
        try:
            given = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise DataError(f"the plan {path} cannot be read: {error.strerror}") from error
        except (yaml.YAMLError, UnicodeError) as error:
            raise DataError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
        if not isinstance(given, Mapping):
            raise DataError(f"{path} holds no plan: expected `model:`, `output:`, `data:` ...")
        return cls.from_dict({**given, **changes}, path)

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON can say it."""
        plain: dict[str, Any] = _plain(dataclasses.asdict(self))
        return plain


def _listed(value: Any, where: str) -> list[Any]:
    if isinstance(value, Mapping):
        return [value]
    if not isinstance(value, list | tuple | None):
        raise DataError(f"{where}: data must be a data set or a list of them, got {short(value)}")
    return list(value or ())


def _check_range(label_range: tuple[float, float] | None) -> None:
    if label_range is not None and not -math.inf < label_range[0] < label_range[1] < math.inf:
        raise DataError(f"label_range must be two numbers, the lower first, got {list(label_range)}")


def _plain(value: Any) -> Any:
    """A value from YAML, which also knows dates and keys that are not text, as JSON can say it."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value))
    return value if isinstance(value, str | int | float | None) else str(value)
