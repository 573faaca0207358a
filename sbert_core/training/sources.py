"""A data set made ready to learn from: read, labelled by a teacher, given hard negatives."""

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
from sbert_core.training.plan import Source
from sbert_core.training.students import distillation_examples, margin_examples

_AUGMENTATIONS: dict[str, Callable[[Any], Any]] = {
    "delete": delete_words,
    "swap": swap_words,
    "synonyms": lambda path: replace_synonyms(read_synonyms(path)),
}


@dataclasses.dataclass(frozen=True, eq=False)
class PreparedSource:
    """Rows, their objective, and how to cut them into batches."""

    source: Source
    examples: Examples
    objective: Objective
    augmenter: Augmenter | None
    batch_size: int

    def batches(self, seed: int, epoch: int) -> list[np.ndarray]:
        """The rows of each batch of an epoch."""
        if self.objective.grouped:
            assert self.examples.labels is not None  # it learns from classes
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


def prepare(source: Source, encoder: SentenceEncoder, batch_size: int, seed: int, progress: bool) -> PreparedSource:
    """Reads a data set and checks that its objective can learn from it; `encoder` is the model before training."""
    augmenter = _make_augmenter(source)  # before the rows: its mistakes are told at once
    examples = _read(source, seed)
    columns = len(examples.texts)
    if source.hard_negatives is not None:
        examples = _add_hard_negatives(source, encoder, examples, progress)
    if source.teacher is not None:
        examples = _ask_teacher(source, source.teacher, examples, progress)
    objective = make_objective(
        source.objective,
        dim=encoder.dim,
        classes=examples.classes,
        options=dict(source.options),
        normalizes=encoder.normalizes,
    )
    least, most = objective.columns
    if len(examples.texts) < least or (most is not None and len(examples.texts) > most):
        wanted = f"{least}" if least == most else f"{least} or more" if most is None else f"{least} to {most}"
        raise DataError(
            f"{source.objective} learns from {wanted} text columns, and {source.file} gives {len(examples.texts)}: "
            "name them with columns"
        )
    if objective.labels == "vector" and examples.labels is not None and examples.labels.shape[1] != encoder.dim:
        raise DataError(
            f"the vectors of {source.teacher or source.label} have {examples.labels.shape[1]} dimensions, the model "
            f"has {encoder.dim}: add `dense: {examples.labels.shape[1]}`, or reduce the teacher's"
        )
    if source.prompts and len(source.prompts) not in (columns, len(examples.texts)):
        raise DataError(f"{source.file}: {len(source.prompts)} prompts for {columns} text columns: give one for each")
    if augmenter and any(column >= columns for column in augmenter.columns or ()):
        raise DataError(f"augment: columns {list(augmenter.columns or ())}, and there are {columns}, counted from 0")
    return PreparedSource(source, examples, objective, augmenter, source.batch_size or batch_size)


def _read(source: Source, seed: int) -> Examples:
    if (Path(source.file) / MANIFEST).exists() and not source.columns:
        return examples_from_pairs(source.file)
    needs = OBJECTIVES[source.objective].labels
    kind = "margin" if source.objective == "margin_distillation" else needs
    if needs != "none" and source.label is None and source.teacher is None:
        raise DataError(f"{source.objective} learns from labels ({needs}): name the label column of {source.file}")
    labelled = needs != "none" and source.teacher is None
    return read_examples(
        source.file,
        source.columns,
        source.label if labelled else None,
        kind if labelled else "none",
        where=source.where,
        limit=source.limit,
        label_range=source.label_range,
        seed=seed,
    )


def _add_hard_negatives(source: Source, encoder: SentenceEncoder, examples: Examples, progress: bool) -> Examples:
    options = dict(source.hard_negatives or {})
    unknown = options.keys() - {"from", "ranks", "margin", "per_pair"}
    if unknown:
        raise DataError(f"hard_negatives: {min(unknown)!r} is not known: use from, ranks, margin, per_pair")
    if isinstance(options.get("ranks"), list):
        options["ranks"] = tuple(options["ranks"])
    mined = options.pop("from", None)
    if mined is not None:
        if not isinstance(mined, str):
            raise DataError(f"hard_negatives: from must be a folder that `mine` has filled, got {short(mined)}")
        return mine_hard_negatives(f"{mined}/embeddings", f"{mined}/neighbors", examples, **options)
    query, passage = [*source.prompts, None, None][:2]
    return hard_negatives(encoder, examples, prompts=(query, passage), progress=progress, **options)


def _ask_teacher(source: Source, teacher: str, examples: Examples, progress: bool) -> Examples:
    if source.objective == "distillation":
        return distillation_examples(SentenceEncoder.load(teacher, precision="float32"), examples, progress=progress)
    if source.objective == "margin_distillation":
        return margin_examples(CrossEncoder.load(teacher), examples)
    if OBJECTIVES[source.objective].labels == "score":
        return label_pairs(CrossEncoder.load(teacher), examples)
    raise DataError(f"{source.objective} has no use for a teacher: leave it out")


def _make_augmenter(source: Source) -> Augmenter | None:
    if source.augment is None:
        return None
    given = dict(source.augment)
    probability, columns = given.pop("probability", 0.5), given.pop("columns", None)
    unknown = given.keys() - _AUGMENTATIONS.keys()
    if unknown:
        raise DataError(f"augment: {min(unknown)!r} is not known: use {', '.join(_AUGMENTATIONS)}")
    if columns is not None and not (
        isinstance(columns, list | tuple) and columns and all(type(column) is int and column >= 0 for column in columns)
    ):
        raise DataError(f"augment: columns must be a list of whole numbers, counted from 0, got {short(columns)}")
    try:
        steps = tuple(_AUGMENTATIONS[name](value) for name, value in given.items())
        return Augmenter(steps, probability, None if columns is None else tuple(columns))
    except DataError as error:
        raise DataError(f"augment ({', '.join(map(str, given)) or 'nothing'}): {error}") from error


def column_prompts(prompts: Sequence[str], views: int) -> tuple[str, ...]:
    """A prompt for each view; views of one column share its prompt."""
    if not prompts:
        return ()
    return tuple(prompts[min(view, len(prompts) - 1)] for view in range(views))
