"""Ranges of consecutive blocks, by which routed mining groups the candidates that cell tasks found.

A cell task finds candidates for rows of all blocks. Keyed by block, each task would emit as many elements as there are
blocks. The number of tasks and the number of ranges both grow as the square root of the corpus, so the number of
elements grows no faster than the corpus.
"""

import math
from collections.abc import Sequence

from transforms.dataset.corpus import BlockRef
from transforms.neighbors.mining_plan import MiningPlan

MAX_BLOCKS_PER_RANGE = 64  # the candidates of a range must fit into memory


def blocks_per_range(plan: MiningPlan) -> int:
    """The number of blocks in each range; the last may have fewer."""
    return min(max(math.isqrt(len(plan.corpora[0].blocks)), 1), MAX_BLOCKS_PER_RANGE)


def count_ranges(plan: MiningPlan) -> int:
    """The number of ranges of a corpus."""
    return math.ceil(len(plan.corpora[0].blocks) / blocks_per_range(plan))


def blocks_of_range(plan: MiningPlan, number: int) -> Sequence[BlockRef]:
    """The blocks of a range."""
    size = blocks_per_range(plan)
    return plan.corpora[0].blocks[number * size : (number + 1) * size]
