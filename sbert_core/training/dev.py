"""How good a model is on rows it does not learn from: one figure, the higher the better."""

from collections.abc import Callable

from sbert_core.encoder import SentenceEncoder
from sbert_core.errors import DataError
from sbert_core.evaluation.pairs import evaluate_pairs
from sbert_core.evaluation.result import Evaluation
from sbert_core.evaluation.sts import evaluate_sts
from sbert_core.evaluation.triplets import evaluate_triplets
from sbert_core.training.examples import Examples, LabelKind, read_examples
from sbert_core.training.plan import Dev, DevTask

METRICS: dict[DevTask, str] = {"sts": "spearman", "triplets": "accuracy", "pairs": "average precision"}
_TASKS: dict[DevTask, Callable[..., Evaluation]] = {
    "sts": evaluate_sts,
    "triplets": evaluate_triplets,
    "pairs": evaluate_pairs,
}
_KINDS: dict[DevTask, LabelKind] = {"sts": "score", "triplets": "none", "pairs": "binary"}
_COLUMNS = {"sts": 2, "triplets": 3, "pairs": 2}


def read_dev(dev: Dev, seed: int = 0) -> Examples:
    """Reads the rows and checks that the task can be scored on them."""
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
            f"the dev task {dev.task} is about {_COLUMNS[dev.task]} text columns, and {dev.file} gives "
            f"{len(examples.texts)}: name them with columns"
        )
    return examples


def score_dev(encoder: SentenceEncoder, task: DevTask, examples: Examples) -> float:
    """The main figure of the task."""
    found = _TASKS[task](encoder, examples)
    return found.scores[found.main]
