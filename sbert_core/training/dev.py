"""The score of a model on the dev set: one figure, the higher the better."""

from collections.abc import Callable, Sequence

import numpy as np

from sbert_core.data.examples import Examples, LabelKind, read_examples
from sbert_core.encoder.sentence_encoder import SentenceEncoder
from sbert_core.errors import DataError
from sbert_core.evaluation.pairs_task import evaluate_pairs
from sbert_core.evaluation.result import Evaluation
from sbert_core.evaluation.sts_task import evaluate_sts
from sbert_core.evaluation.triplets_task import evaluate_triplets
from sbert_core.training.plan import DevSpec, DevTask

METRICS: dict[DevTask, str] = {"sts": "spearman", "triplets": "accuracy", "pairs": "average precision"}
_TASKS: dict[DevTask, Callable[..., Evaluation]] = {
    "sts": evaluate_sts,
    "triplets": evaluate_triplets,
    "pairs": evaluate_pairs,
}
_KINDS: dict[DevTask, LabelKind] = {"sts": "score", "triplets": "none", "pairs": "binary"}
_COLUMNS = {"sts": 2, "triplets": 3, "pairs": 2}


def read_dev(dev: DevSpec, seed: int = 0) -> Examples:
    """Reads the rows and checks that they fit the task."""
    if dev.task != "triplets" and dev.label is None:
        raise DataError(f"the dev task {dev.task} needs labels: name the label column of {dev.file}")
    examples = read_examples(
        dev.file,
        dev.columns,
        dev.label if dev.task != "triplets" else None,
        _KINDS[dev.task],
        where=dev.where,
        limit=dev.limit,
        label_range=dev.label_range,
        seed=seed,
    )
    if len(examples.texts) != _COLUMNS[dev.task]:
        raise DataError(
            f"the dev task {dev.task} needs {_COLUMNS[dev.task]} text columns, but {dev.file} has "
            f"{len(examples.texts)}: name them with columns"
        )
    if dev.prompts and len(dev.prompts) != len(examples.texts):
        raise DataError(
            f"dev: {len(dev.prompts)} prompts for {len(examples.texts)} text columns of {dev.file}: give one for each"
        )
    return examples


def score_dev(encoder: SentenceEncoder, dev: DevSpec, examples: Examples) -> float:
    """The main figure of the dev task; `dev.prompts`, if any, replace the prompts of the model."""
    return _TASKS[dev.task](_ColumnPrompts(encoder, dev.prompts) if dev.prompts else encoder, examples).score


class _ColumnPrompts:
    """An encoder with one prompt per column; texts are columns of equal length, one after the other."""

    def __init__(self, encoder: SentenceEncoder, prompts: Sequence[str]) -> None:
        self._encoder, self._prompts = encoder, prompts

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        return self._encode(texts, self._prompts)

    def encode_query(self, texts: Sequence[str]) -> np.ndarray:
        return self._encode(texts, self._prompts[:1])

    def encode_document(self, texts: Sequence[str]) -> np.ndarray:
        return self._encode(texts, self._prompts[1:])

    def _encode(self, texts: Sequence[str], prompts: Sequence[str]) -> np.ndarray:
        rows = len(texts) // len(prompts)
        columns = [texts[number * rows : (number + 1) * rows] for number in range(len(prompts))]
        return np.concatenate(
            [self._encoder.encode(column, prompt=prompt) for column, prompt in zip(columns, prompts, strict=True)]
        )
