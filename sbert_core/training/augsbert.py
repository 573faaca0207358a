"""AugSBERT: a cross-encoder labels more pairs, and the bi-encoder is trained on both sets.

1. Train a cross-encoder on the gold pairs (`train_cross_encoder`).
2. Choose pairs to label (`candidate_pairs`): near neighbours by an existing encoder, since random texts are hardly
   ever similar, and some random pairs, so that there are dissimilar ones too.
3. Label them with the cross-encoder (`label_pairs`): the silver pairs.
4. Train the bi-encoder on gold and silver.

Thakur, Reimers, Daxenberger, Gurevych: Augmented SBERT, NAACL 2021.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from sbert_core.data.examples import Examples
from sbert_core.encoder.cross_encoder import CrossEncoder
from sbert_core.encoder.sentence_encoder import SentenceEncoder
from sbert_core.errors import DataError
from sbert_core.neighbors.in_memory import find_neighbors


def label_pairs(cross_encoder: CrossEncoder, pairs: Examples) -> Examples:
    """Pairs with the cross-encoder's scores, from 0 to 1, as labels.

    With one label the score is the sigmoid of its logit, else the probability of entailment, paraphrase, duplicate or
    equivalent. Labels that the pairs already have are replaced.
    """
    if len(pairs.texts) != 2:
        raise DataError(f"{pairs.name} has {len(pairs.texts)} text columns: expected pairs")
    rows = list(zip(*pairs.texts, strict=True))
    if len(cross_encoder.labels) == 1:
        logits = cross_encoder.predict(rows, logits=True)
        scores = np.exp(-np.logaddexp(0, -logits))  # the sigmoid, without overflow
    else:
        scores = cross_encoder.score(rows)
    return dataclasses.replace(pairs, labels=scores.astype(np.float32), classes=())


def candidate_pairs(
    encoder: SentenceEncoder,
    texts: Sequence[str],
    *,
    top_k: int = 3,
    n_random: int | None = None,
    labelled: Examples | None = None,
    seed: int = 0,
) -> Examples:
    """Pairs of different texts to label; each pair occurs once, in either order.

    Args:
        encoder: finds the neighbours.
        texts: blank texts and duplicates are skipped.
        top_k: number of nearest texts that each text is paired with.
        n_random: number of random pairs in addition; None: as many as there are different texts.
        labelled: pairs that have a label already; they are left out.
        seed: of the random pairs.
    """
    if top_k < 0 or (n_random is not None and n_random < 0):
        raise DataError(f"top_k and n_random must not be negative, got {top_k} and {n_random}")
    distinct = list(dict.fromkeys(text for text in texts if text.strip()))
    count = len(distinct)
    if count < 2:
        raise DataError(f"pairs need two different texts or more, got {count}")
    labelled_numbers = _numbers_of(labelled, distinct)
    found = np.empty(0, np.int64)
    if top_k:
        near = find_neighbors(encoder.encode(distinct), min(top_k, count - 1)).indices  # (n, k)
        rows, places = np.nonzero(near >= 0)
        found = np.setdiff1d(_pair_numbers(rows, near[rows, places], count), labelled_numbers)
    wanted = count if n_random is None else n_random
    drawn = _draw(count, wanted, np.union1d(found, labelled_numbers), np.random.default_rng(seed))
    first, second = np.divmod(np.concatenate([found, drawn]), count)
    columns = tuple([distinct[row] for row in side.tolist()] for side in (first, second))
    return Examples(columns, name="candidate pairs")


def _pair_numbers(first: np.ndarray, second: np.ndarray, count: int) -> np.ndarray:
    """One number for each pair of rows, the same in either order: (n,) int64."""
    return np.minimum(first, second).astype(np.int64) * count + np.maximum(first, second)


def _numbers_of(labelled: Examples | None, distinct: list[str]) -> np.ndarray:
    if labelled is None:
        return np.empty(0, np.int64)
    if len(labelled.texts) != 2:
        raise DataError(f"{labelled.name} has {len(labelled.texts)} text columns: expected pairs")
    row_of = {text: row for row, text in enumerate(distinct)}
    rows = [(row_of[a], row_of[b]) for a, b in zip(*labelled.texts, strict=True) if a in row_of and b in row_of]
    first, second = np.array(rows, np.int64).reshape(-1, 2).T
    return np.unique(_pair_numbers(first, second, len(distinct)))


def _draw(count: int, wanted: int, taken: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """At most `wanted` numbers of pairs that are not taken; fewer only if there are no more."""
    if 4 * (wanted + len(taken)) >= count * (count - 1) // 2:  # too few are free for rejection sampling
        free = np.setdiff1d(_pair_numbers(*np.triu_indices(count, 1), count), taken)
        return rng.permutation(free)[:wanted]
    drawn = np.empty(0, np.int64)
    while len(drawn) < wanted:
        first, second = rng.integers(count, size=(2, 2 * (wanted - len(drawn)) + 16))
        numbers = _pair_numbers(first, second, count)[first != second]
        numbers = np.concatenate([drawn, numbers[~np.isin(numbers, taken)]])
        _, where = np.unique(numbers, return_index=True)
        drawn = numbers[np.sort(where)][:wanted]
    return drawn
