"""How good a model is on rows it does not learn from: one figure, the higher the better."""

import numpy as np
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score

from sbert_core.cosine import unit_rows
from sbert_core.encoder import SentenceEncoder
from sbert_core.errors import DataError
from sbert_core.training.examples import Examples, LabelKind, read_examples
from sbert_core.training.plan import Dev, DevTask

METRICS: dict[DevTask, str] = {"sts": "spearman", "triplets": "accuracy", "pairs": "average_precision"}
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
    """Spearman of cosine and score, or accuracy of triplets, or average precision of pairs, from 0 (or -1) to 1."""
    first, *others = (unit_rows(encoder.encode(texts))[0] for texts in examples.texts)
    cosines = [np.einsum("nd,nd->n", first, other) for other in others]
    if task == "triplets":
        return float((cosines[0] > cosines[1]).mean())
    if task == "pairs":
        return float(average_precision_score(examples.labels, cosines[0]))
    return float(spearmanr(cosines[0], examples.labels).statistic)
