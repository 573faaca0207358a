"""What a training run is to do: the model, the data sets with their objectives, and how to learn."""

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, get_args

import yaml

from sbert_core.errors import DataError
from sbert_core.training.batches import Mixing
from sbert_core.training.objectives import OBJECTIVES
from sbert_core.training.schedule import Schedule
from sbert_core.training.step import Attack

DevTask = Literal["sts", "triplets", "pairs"]
TrainPrecision = Literal["float32", "bfloat16", "float16"]
Part = TypeVar("Part")


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
    prompts: tuple[str, ...] = ()  # put before the texts of each column
    teacher: str | None = None  # who labels the rows: an encoder for distillation, else a cross-encoder
    hard_negatives: dict[str, Any] | None = None  # ranks, margin, per_pair; from: a folder that `mine` has filled
    augment: dict[str, Any] | None = None  # delete, swap, synonyms, probability, columns
    batch_size: int | None = None  # None: the plan's

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            close = difflib.get_close_matches(self.objective, OBJECTIVES, 1)
            hint = f"did you mean {close[0]}?" if close else f"use one of {', '.join(OBJECTIVES)}"
            raise DataError(f"there is no objective {self.objective!r}: {hint}")


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

    def __post_init__(self) -> None:
        _check_choices(self, task=DevTask)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainPlan:
    """A training run; the defaults are those of the Sentence-BERT paper."""

    model: str  # a model folder, a plain transformer, a hub name, or `default`
    output: str  # the folder of the trained model
    data: tuple[Source, ...]
    dev: Dev | None = None
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
    epsilon: float | None = None  # None: by the kind of attack
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
        _check_choices(self, schedule=Schedule, mixing=Mixing, adversarial=Attack, precision=TrainPrecision)
        for name in ("epochs", "batch_size", "accumulate", "attack_steps", "max_steps", "keep_layers", "dense"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise DataError(f"{name} must be at least 1, got {value}")
        for name in ("chunk_rows", "rdrop", "freeze", "lora_rank", "evaluate_every", "checkpoint_every"):
            if getattr(self, name) < 0:
                raise DataError(f"{name} must not be negative, got {getattr(self, name)}")
        if not 0 <= self.warmup <= 1 or not self.clip > 0:
            raise DataError(f"warmup must be from 0 to 1 and clip above 0, got {self.warmup} and {self.clip}")
        if self.chunk_rows and self.rdrop:
            raise DataError("rdrop compares two passes of a whole batch: leave chunk_rows out")

    @classmethod
    def from_dict(cls, given: Mapping[str, Any], where: str = "the plan") -> Self:
        """Makes a plan of nested mappings, as in YAML; a key that is not known is an error."""
        given = dict(given)
        sources = given.pop("data", ())
        dev = given.pop("dev", None)
        return _make(
            cls,
            {
                **given,
                "data": tuple(_make(Source, each, f"{where}, data") for each in _listed(sources)),
                "dev": None if dev is None else _make(Dev, dev, f"{where}, dev"),
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
        return dataclasses.asdict(self)


def _listed(value: Any) -> list[Any]:
    return [value] if isinstance(value, Mapping) else list(value or ())


def _make(kind: type[Part], given: Any, where: str) -> Part:
    if not isinstance(given, Mapping):
        raise DataError(f"{where}: expected names with values, got {given!r}")
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in given:
        if name not in fields:
            close = difflib.get_close_matches(str(name), fields, 1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(fields)}"
            raise DataError(f"{where}: {name!r} is not known: {hint}")
    missing = [
        name
        for name, field in fields.items()
        if name not in given and field.default is field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise DataError(f"{where}: {missing[0]} is missing")
    hints = typing.get_type_hints(kind)
    return kind(**{name: _as_type(value, hints[name], f"{where}: {name}") for name, value in given.items()})


def _as_type(value: Any, hint: Any, where: str) -> Any:
    """A value from YAML as the type of its field; 2e-5 is text to YAML, and one column needs no list."""
    options = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None and type(None) in options:
        return None
    wanted = next(option for option in options if option is not type(None))
    kind = typing.get_origin(wanted) or wanted
    try:
        if kind is tuple:
            values = tuple(value) if isinstance(value, list | tuple) else (value,)
            return tuple(map(float, values)) if float in get_args(wanted) else values
        if kind in (int, float) and not isinstance(value, bool) and float(value) == kind(value):
            return kind(value)
    except (TypeError, ValueError):
        pass
    else:
        if kind is Literal or (isinstance(value, kind) and kind not in (int, float)):
            return value
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text", dict: "names with values"}
    raise DataError(f"{where} must be {names.get(kind, 'a list')}, got {value!r}")


def _check_choices(plan: Any, **choices: Any) -> None:
    for name, literal in choices.items():
        if getattr(plan, name) not in get_args(literal):
            raise DataError(f"{name} must be one of {', '.join(get_args(literal))}, got {getattr(plan, name)!r}")
