"""Mining task: whether the duplicates of a corpus are found among all its pairs."""

from collections.abc import Collection, Mapping

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from sbert_core.errors import DataError
from sbert_core.evaluation.metrics import mined_scores
from sbert_core.evaluation.result import Encode, Evaluation
from sbert_core.evaluation.vectors import encode_columns
from sbert_core.neighbors.in_memory import mine_paraphrases

MAIN = "average_precision"


def evaluate_mining(
    encoder: Encode,
    texts: Mapping[str, str],
    duplicates: Collection[tuple[str, str]],
    *,
    transitive: bool = False,
    top_k: int = 100,
    max_pairs: int = 500_000,
    name: str = "data",
    model: str = "model",
) -> Evaluation:
    """Average precision and best F1, with its precision, recall and threshold, of mined pairs by cosine.

    Args:
        encoder: of the texts.
        texts: the corpus, by id.
        duplicates: the gold pairs of ids, in any order.
        transitive: treats connected texts as duplicates too: a and c, if a and b are, and b and c.
        top_k: neighbours per text.
        max_pairs: number of best pairs that are scored; other gold pairs are missed.
        name: of the data.
        model: its name.
    """
    numbers = {identity: number for number, identity in enumerate(texts)}
    gold = _gold(numbers, duplicates, name)
    if transitive:
        gold = _closure(gold, len(numbers))
    vectors = encode_columns(encoder, [list(texts.values())])[0]
    found = mine_paraphrases(vectors, top_k=top_k, max_pairs=max_pairs)
    average, best = mined_scores(np.stack([found.first, found.second], axis=1), found.scores, gold)
    scores = {
        "average_precision": average,
        "f1": best.f1,
        "precision": best.precision,
        "recall": best.recall,
        "threshold": best.threshold,
    }
    counts = {"rows": len(numbers), "gold_pairs": len(gold), "mined_pairs": len(found)}
    return Evaluation("mining", name, model, MAIN, scores, counts)


def _gold(numbers: Mapping[str, int], duplicates: Collection[tuple[str, str]], name: str) -> set[tuple[int, int]]:
    gold = set()
    for pair in duplicates:
        missing = next((identity for identity in pair if identity not in numbers), None)
        if missing is not None:
            raise DataError(
                f"{name}: {missing!r} of the gold pair {tuple(pair)} is not the id of a text: use ids of the texts"
            )
        first, second = sorted(numbers[identity] for identity in pair)
        if first == second:
            raise DataError(f"{name}: the gold pair {tuple(pair)} is one text twice: give pairs of different ids")
        gold.add((first, second))
    if not gold:
        raise DataError(f"{name} has no gold pairs: give at least one pair of duplicates")
    return gold


def _closure(gold: set[tuple[int, int]], size: int) -> set[tuple[int, int]]:
    """All pairs of rows that are connected."""
    first, second = np.array(sorted(gold)).T
    graph = coo_array((np.ones(len(first)), (first, second)), shape=(size, size))
    labels = connected_components(graph, directed=False)[1]
    order = np.argsort(labels, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)
    return {(int(a), int(b)) for group in groups for at, a in enumerate(group) for b in group[at + 1 :]}
