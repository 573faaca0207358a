"""Data sets prepared for training: read, labelled by a teacher, extended by hard negatives."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sbert_core.data.examples import Examples, read_examples
from sbert_core.data.manifest import MANIFEST
from sbert_core.data.tables import short
from sbert_core.encoder.cross_encoder import CrossEncoder
from sbert_core.encoder.sentence_encoder import SentenceEncoder
from sbert_core.errors import DataError
from sbert_core.training.augmentation import Augmenter, delete_words, read_synonyms, replace_synonyms, swap_words
from sbert_core.training.augsbert import label_pairs
from sbert_core.training.batches import distinct_batches, grouped_batches, shuffled_batches
from sbert_core.training.losses.objective import Objective
from sbert_core.training.losses.objectives import OBJECTIVES, make_objective
from sbert_core.training.mined_examples import examples_from_pairs, hard_negatives, mine_hard_negatives
from sbert_core.training.plan import DataSpec
from sbert_core.training.students import distillation_examples, margin_examples

_AUGMENTATIONS: dict[str, Callable[[Any], Any]] = {
    "delete": delete_words,
    "swap": swap_words,
    "synonyms": lambda path: replace_synonyms(read_synonyms(path)),
}


@dataclasses.dataclass(frozen=True, eq=False)
class PreparedData:
    """The rows of a data set with their objective."""

    spec: DataSpec
    examples: Examples
    objective: Objective
    augmenter: Augmenter | None
    batch_size: int

    def batches(self, seed: int, epoch: int) -> list[np.ndarray]:
        """The rows of each batch of an epoch."""
        if self.objective.grouped:
            assert self.examples.labels is not None  # a grouped objective needs classes
            return grouped_batches(self.examples.labels, self.batch_size, seed, epoch)
        if self.objective.distinct:
            return distinct_batches(self.examples, self.batch_size, seed, epoch)
        return shuffled_batches(len(self.examples), self.batch_size, seed, epoch)

    def views(self, batch: Examples, rng: np.random.Generator) -> list[list[str]]:
        """The texts to embed of a batch."""
        texts = list(batch.texts)
        return self.objective.views(self.augmenter(texts, rng) if self.augmenter else texts, rng)

    def labels(self, batch: Examples, device: torch.device) -> Tensor | None:
        """The labels of a batch."""
        return None if batch.labels is None else torch.from_numpy(batch.labels).to(device)


def prepare(spec: DataSpec, encoder: SentenceEncoder, batch_size: int, seed: int, progress: bool) -> PreparedData:
    """Reads a data set and checks that it fits its objective; `encoder` is the model before training."""
    augmenter = _make_augmenter(spec)  # before reading rows: errors show at once
    examples = _read(spec, seed)
    n_columns = len(examples.texts)
    if spec.hard_negatives is not None:
        examples = _add_hard_negatives(spec, encoder, examples, progress)
    if spec.teacher is not None:
        examples = _label_by_teacher(spec, spec.teacher, examples, progress)
    objective = make_objective(
        spec.objective,
        dim=encoder.dim,
        classes=examples.classes,
        options=dict(spec.options),
        normalizes=encoder.normalizes,
    )
    _check_columns(spec, objective, len(examples.texts))
    if objective.labels == "vector" and examples.labels is not None and examples.labels.shape[1] != encoder.dim:
        raise DataError(
            f"the vectors of {spec.teacher or spec.label} have {examples.labels.shape[1]} dimensions, but the model "
            f"has {encoder.dim}: add `dense: {examples.labels.shape[1]}`, or reduce those of the teacher"
        )
    if spec.prompts and len(spec.prompts) not in (n_columns, len(examples.texts)):
        raise DataError(f"{spec.file}: {len(spec.prompts)} prompts for {n_columns} text columns: give one for each")
    if augmenter and any(column >= n_columns for column in augmenter.columns or ()):
        raise DataError(
            f"augment: columns are {list(augmenter.columns or ())}, but the data has {n_columns}: count them from 0"
        )
    return PreparedData(spec, examples, objective, augmenter, spec.batch_size or batch_size)


def _check_columns(spec: DataSpec, objective: Objective, count: int) -> None:
    minimum, maximum = objective.columns
    if minimum <= count <= (maximum or count):
        return
    if minimum == maximum:
        needed = str(minimum)
    else:
        needed = f"{minimum} or more" if maximum is None else f"{minimum} to {maximum}"
    raise DataError(
        f"{spec.objective} needs {needed} text columns, but {spec.file} has {count}: name them with columns"
    )


def _read(spec: DataSpec, seed: int) -> Examples:
    if (Path(spec.file) / MANIFEST).exists() and not spec.columns:
        return examples_from_pairs(spec.file)
    needs = OBJECTIVES[spec.objective].labels
    kind = "margin" if spec.objective == "margin_distillation" else needs
    if needs != "none" and spec.label is None and spec.teacher is None:
        raise DataError(f"{spec.objective} needs labels ({needs}): name the label column of {spec.file}")
    reads_labels = needs != "none" and spec.teacher is None
    return read_examples(
        spec.file,
        spec.columns,
        spec.label if reads_labels else None,
        kind if reads_labels else "none",
        where=spec.where,
        limit=spec.limit,
        label_range=spec.label_range,
        seed=seed,
    )


def _add_hard_negatives(spec: DataSpec, encoder: SentenceEncoder, examples: Examples, progress: bool) -> Examples:
    options = dict(spec.hard_negatives or {})
    unknown = options.keys() - {"from", "ranks", "margin", "per_pair"}
    if unknown:
        raise DataError(f"hard_negatives: {min(unknown)!r} is not known: use from, ranks, margin, per_pair")
    if isinstance(options.get("ranks"), list):
        options["ranks"] = tuple(options["ranks"])
    mined = options.pop("from", None)
    if mined is not None:
        if not isinstance(mined, str):
            raise DataError(f"hard_negatives: from must be an output folder of `mine`, got {short(mined)}")
        return mine_hard_negatives(f"{mined}/embeddings", f"{mined}/neighbors", examples, **options)
    query, passage = [*spec.prompts, None, None][:2]
    return hard_negatives(encoder, examples, prompts=(query, passage), progress=progress, **options)


def _label_by_teacher(spec: DataSpec, teacher: str, examples: Examples, progress: bool) -> Examples:
    if spec.objective == "distillation":
        return distillation_examples(SentenceEncoder.load(teacher, precision="float32"), examples, progress=progress)
    if spec.objective == "margin_distillation":
        return margin_examples(CrossEncoder.load(teacher), examples)
    if OBJECTIVES[spec.objective].labels == "score":
        return label_pairs(CrossEncoder.load(teacher), examples)
    raise DataError(f"{spec.objective} does not use a teacher: leave teacher out")


def _make_augmenter(spec: DataSpec) -> Augmenter | None:
    if spec.augment is None:
        return None
    options = dict(spec.augment)
    probability, columns = options.pop("probability", 0.5), options.pop("columns", None)
    unknown = options.keys() - _AUGMENTATIONS.keys()
    if unknown:
        raise DataError(f"augment: {min(unknown)!r} is not known: use {', '.join(_AUGMENTATIONS)}")
    if columns is not None and not (
        isinstance(columns, list | tuple) and columns and all(type(column) is int and column >= 0 for column in columns)
    ):
        raise DataError(f"augment: columns must be a list of whole numbers from 0, got {short(columns)}")
    try:
        steps = tuple(_AUGMENTATIONS[name](value) for name, value in options.items())
        return Augmenter(steps, probability, None if columns is None else tuple(columns))
    except DataError as error:
        raise DataError(f"augment ({', '.join(map(str, options)) or 'nothing'}): {error}") from error


def column_prompts(prompts: Sequence[str], views: int) -> tuple[str, ...]:
    """A prompt for each view; views of the same column share its prompt."""
    if not prompts:
        return ()
    return tuple(prompts[min(view, len(prompts) - 1)] for view in range(views))
