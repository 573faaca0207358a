"""Neighbours and paraphrases among vectors that fit into memory.

The Beam transforms do the same with blocks that workers read when they need them.
"""

import dataclasses
from collections.abc import Callable
from itertools import combinations_with_replacement, product

import numpy as np
import torch

from sbert_core.errors import DataError
from sbert_core.neighbors.candidates import EMPTY, ordinals_of, scores_of
from sbert_core.neighbors.cosine import Block, compare, unit_rows
from sbert_core.neighbors.pair_policy import PairPolicy
from sbert_core.neighbors.pairs import Pairs, mean_scores
from sbert_core.neighbors.topk import TopK

BLOCK_ROWS = 8192


@dataclasses.dataclass(frozen=True, eq=False)
class Neighbors:
    """The nearest rows of each row, best first, equal scores by row number: indices (n, k) and scores (n, k).

    Where a row has fewer than k neighbours, the index is -1 and the score NaN.
    """

    indices: np.ndarray  # int64
    scores: np.ndarray  # float32


def find_neighbors(
    vectors: np.ndarray,
    k: int = 32,
    min_score: float = -np.inf,
    corpus: np.ndarray | None = None,
    progress: Callable[[float], None] | None = None,
    block_rows: int = BLOCK_ROWS,
) -> Neighbors:
    """The `k` nearest other rows of each row of `vectors` (n, dim) by cosine, exactly; with `corpus`, its rows.

    A row is never its own neighbour, but an exact copy of it is. A row of zeros has no neighbours and is none.
    `progress` is called with the share of the work that is done. `block_rows` has no effect on the result.
    """
    left, right = _sides(vectors, corpus, block_rows)
    candidates = _find_candidates(left, right, k=k, min_score=min_score, both_sides=False, progress=progress)[0]
    is_empty = candidates == EMPTY
    return Neighbors(
        np.where(is_empty, -1, ordinals_of(candidates).astype(np.int64)),
        np.where(is_empty, np.nan, scores_of(candidates)),
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
    block_rows: int = BLOCK_ROWS,
) -> Pairs:
    """The pairs of rows of `vectors` (n, dim) that are near each other, best first.

    A pair counts if one row is among the `top_k` nearest of the other, or with `mutual`, if both are. With `strict`, no
    row is in more than `top_k` pairs. `margin` scores a pair by the ratio of its cosine to those of its neighbourhood;
    `min_score` is always a cosine. With `corpus`, the second row of each pair is a row of `corpus`. `progress` and
    `block_rows` are those of `find_neighbors`.
    """
    policy = PairPolicy(min_score=min_score, max_pairs=max_pairs, mutual=mutual, strict=strict, margin=margin)
    left, right = _sides(vectors, corpus, block_rows)
    found = _find_candidates(
        left, right, k=top_k, min_score=policy.min_neighbor_score, both_sides=True, progress=progress
    )
    side_names = ["either"] if corpus is None else ["first", "second"]
    parts = [
        policy.pairs_of_rows(candidates, np.arange(len(candidates), dtype=np.uint32), name)
        for candidates, name in zip(found, side_names, strict=True)
    ]
    means = [mean_scores(candidates) for candidates in found] if margin else [None]
    pairs = policy.score([policy.merge(parts)], means[0], means[-1]).pairs
    return pairs[policy.select(pairs, top_k, one_corpus=corpus is None)]


@dataclasses.dataclass(frozen=True, eq=False)
class _Side:
    """The rows of one array, as blocks of those that have a direction."""

    n_rows: int
    dim: int
    rows: np.ndarray  # (m,) uint32: the rows that have a direction
    blocks: list[Block]

    @classmethod
    def of(cls, vectors: np.ndarray, block_rows: int) -> "_Side":
        if vectors.ndim != 2:
            raise DataError(f"expected vectors as rows of one array, got an array of shape {vectors.shape}")
        unit, has_direction = unit_rows(vectors)
        rows = np.flatnonzero(has_direction).astype(np.uint32)
        chosen = torch.from_numpy(unit if has_direction.all() else unit[rows])
        starts = range(0, len(rows), block_rows)
        blocks = [Block(chosen[start : start + block_rows], rows[start : start + block_rows]) for start in starts]
        return cls(len(vectors), vectors.shape[1], rows, blocks)

    def candidates(self, topks: list[TopK], k: int) -> np.ndarray:
        """The candidates (n_rows, k) of all rows, from those that were collected for each block."""
        result = np.zeros((self.n_rows, k), np.uint64)
        if topks:
            result[self.rows] = np.concatenate([topk.candidates() for topk in topks])
        return result


def _sides(vectors: np.ndarray, corpus: np.ndarray | None, block_rows: int) -> tuple[_Side, _Side | None]:
    left, right = _Side.of(vectors, block_rows), None if corpus is None else _Side.of(corpus, block_rows)
    if right and left.blocks and right.blocks and left.dim != right.dim:
        raise DataError(f"vectors have {left.dim} and {right.dim} dimensions")
    return left, right


def _find_candidates(
    left: _Side,
    right: _Side | None,
    *,
    k: int,
    min_score: float,
    both_sides: bool,
    progress: Callable[[float], None] | None,
) -> list[np.ndarray]:
    """The candidates (n, k) of the left rows; with `both_sides`, those of the right rows too, if there is a right side.

    Without a right side, the left rows are compared with each other.
    """
    if k < 1:
        raise DataError(f"k must be at least 1, got {k}")
    left_topks = [TopK(len(block), k, min_score) for block in left.blocks]
    if right is None:
        block_pairs = list(combinations_with_replacement(range(len(left.blocks)), 2))
        right_blocks, right_topks = left.blocks, left_topks
    else:
        block_pairs = list(product(range(len(left.blocks)), range(len(right.blocks))))
        right_blocks, right_topks = right.blocks, [TopK(len(block), k, min_score) for block in right.blocks]
    is_right_wanted = right is None or both_sides
    for done, (i, j) in enumerate(block_pairs, 1):
        compare(left.blocks[i], right_blocks[j], left_topks[i], right_topks[j] if is_right_wanted else None)
        if progress:
            progress(done / len(block_pairs))
    found = [left.candidates(left_topks, k)]
    if right is not None and both_sides:
        found.append(right.candidates(right_topks, k))
    return found
