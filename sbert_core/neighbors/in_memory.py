"""Neighbours and paraphrases among vectors that fit into memory.

The Beam transforms do the same with blocks that are read when they are needed.
"""

import dataclasses
from collections.abc import Callable, Sequence
from itertools import combinations_with_replacement, product

import numpy as np
import torch

from sbert_core.errors import DataError
from sbert_core.neighbors.cosine import Block, compare, unit_rows
from sbert_core.neighbors.pairs import Pairs, limit_per_row, margin_scores, mean_scores, merge_pairs, pairs_of
from sbert_core.neighbors.topk import EMPTY, TopK, ranks_of, scores_of

BLOCK_ROWS = 8192


@dataclasses.dataclass(frozen=True, eq=False)
class Neighbors:
    """The nearest rows of each row, best first, equal ones by number: indices (n, k), scores (n, k).

    A row that has fewer has -1 and nan in the places behind.
    """

    indices: np.ndarray  # int64
    scores: np.ndarray  # float32


def find_neighbors(
    vectors: np.ndarray,
    k: int = 32,
    min_score: float = -np.inf,
    corpus: np.ndarray | None = None,
    progress: Callable[[float], None] | None = None,
) -> Neighbors:
    """For each row its `k` nearest others by cosine, exactly; with `corpus`, its nearest rows there.

    A row is never its own neighbour, an exact copy of it is. A row of zeros is nobody's neighbour.
    `progress` is called with the share that is done.
    """
    best = _find_best(vectors, corpus, k, min_score, False, progress)[0]
    return Neighbors(
        np.where(best == EMPTY, -1, ranks_of(best).astype(np.int64)), np.where(best == EMPTY, np.nan, scores_of(best))
    )


def mine_paraphrases(
    vectors: np.ndarray,
    *,
    min_score: float = -np.inf,
    top_k: int = 100,
    max_pairs: int = 500_000,
    mutual: bool = False,
    strict: bool = False,
    margin: bool = False,
    corpus: np.ndarray | None = None,
    progress: Callable[[float], None] | None = None,
) -> Pairs:
    """The pairs of rows that are in each other's vicinity, best first.

    A pair counts if one row is among the `top_k` nearest of the other, or, if `mutual`, both are. With `strict` no row
    is in more than `top_k` pairs. `margin` scores a pair by the ratio of its cosine to those of its neighbourhood;
    `min_score` is of the cosine. With `corpus` the second row of each pair is from there.
    """
    if max_pairs < 0:
        raise DataError(f"max_pairs must not be negative, got {max_pairs}")
    # The margin is about all neighbours, also those that do not reach the least score.
    found = _find_best(vectors, corpus, top_k, -np.inf if margin else min_score, True, progress)
    ranks = [np.arange(len(best), dtype=np.uint32) for best in found]
    if corpus is None:
        pairs = merge_pairs([pairs_of(found[0], ranks[0])], mutual)
    else:
        parts = [pairs_of(found[0], ranks[0], "first"), pairs_of(found[1], ranks[1], "second")]
        pairs = merge_pairs(parts, mutual)
    if margin:
        pairs = pairs[pairs.scores >= min_score]
        pairs = dataclasses.replace(pairs, scores=margin_scores(pairs, mean_scores(found[0]), mean_scores(found[-1])))
    pairs = pairs.sorted()
    if strict:
        pairs = pairs[limit_per_row(pairs, top_k, one_corpus=corpus is None)]
    return pairs[:max_pairs]


def _find_best(
    vectors: np.ndarray,
    corpus: np.ndarray | None,
    k: int,
    min_score: float,
    both: bool,
    progress: Callable[[float], None] | None,
) -> list[np.ndarray]:
    """The best candidates of the rows, and with `both` those of the rows of the corpus too."""
    if k < 1:
        raise DataError(f"k must be at least 1, got {k}")
    left, left_rows = _cut(vectors)
    right, right_rows = (left, left_rows) if corpus is None else _cut(corpus)
    if left and right and left[0].vectors.shape[1] != right[0].vectors.shape[1]:
        raise DataError(f"vectors have {left[0].vectors.shape[1]} and {right[0].vectors.shape[1]} dimensions")
    left_best = [TopK(len(block), k, min_score) for block in left]
    right_best = left_best if corpus is None else [TopK(len(block), k, min_score) for block in right]
    turns: Sequence[tuple[int, int]] = (
        list(combinations_with_replacement(range(len(left)), 2))
        if corpus is None
        else list(product(range(len(left)), range(len(right))))
    )
    for done, (i, j) in enumerate(turns, 1):
        compare(left[i], right[j], left_best[i], right_best[j] if corpus is None or both else None)
        if progress:
            progress(done / len(turns))
    sides = [(left_best, left_rows, len(vectors))]
    if corpus is not None and both:
        sides.append((right_best, right_rows, len(corpus)))
    results = []
    for bests, rows, count in sides:
        result = np.zeros((count, k), np.uint64)
        result[rows] = np.concatenate([best.best() for best in bests]) if bests else result[:0]
        results.append(result)
    return results


def _cut(vectors: np.ndarray) -> tuple[list[Block], np.ndarray]:
    """Blocks of the rows that have a direction, and the numbers of these rows."""
    if vectors.ndim != 2:
        raise DataError(f"expected vectors as rows of one array, got an array of shape {vectors.shape}")
    unit, some = unit_rows(vectors)
    rows = np.flatnonzero(some).astype(np.uint32)
    chosen = torch.from_numpy(unit if some.all() else unit[rows])
    starts = range(0, len(rows), BLOCK_ROWS)
    return [Block(chosen[start : start + BLOCK_ROWS], rows[start : start + BLOCK_ROWS]) for start in starts], rows
