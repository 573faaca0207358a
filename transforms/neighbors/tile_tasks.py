"""Tasks of exact mining: a run of blocks against a run of blocks.

What is found for a block is merged within a task and sent once per task, so each block is sent once per run that it is
compared with. At most this moves

    rows * k * 8 bytes * runs

through a shuffle. Up to 3 million rows there are 12 runs, so this grows with the corpus. A run has at most 262,144 rows
(fewer if k is over 64), so a larger corpus has rows / 262,144 runs: 381 of them and 9.8 TB for 100 million rows and
k = 32, if each worker emits each task on its own. Empty slots are not sent, so with a minimum score it is much less.
"""

import dataclasses
import itertools
from collections.abc import Iterator

from transforms.dataset.corpus import Corpus
from transforms.neighbors.mining_plan import BlockKey, MiningPlan

MIN_RUNS = 12  # of a corpus that has as many blocks: 78 tasks, so that many workers have something to do
MAX_RUN_ROWS = 262_144  # two runs take about 15 minutes of a core
MAX_RUN_SLOTS = 2**24  # rows * k: 128 MiB of candidates


@dataclasses.dataclass(frozen=True)
class TileTask:
    """Two runs of blocks whose rows are compared, each as the number of its first block and of the block behind it.

    Within one corpus a run can be compared with itself.
    """

    left: tuple[int, int]
    right: tuple[int, int]

    @property
    def file_name(self) -> str:
        """The name of the work file that holds what was found for the task."""
        return "tile-{:06d}-{:06d}-{:06d}-{:06d}.npz".format(*self.left, *self.right)

    def right_blocks(self, left_block: int, plan: MiningPlan) -> list[int]:
        """The blocks that a block is compared with; within one run each pair of blocks occurs once.

        Every other block goes through them backwards, and thus begins with those that were loaded last.
        """
        is_same_run = len(plan.corpora) == 1 and self.left == self.right
        blocks = range(left_block if is_same_run else self.right[0], self.right[1])
        return list(reversed(blocks)) if left_block % 2 else list(blocks)

    def wanted_blocks(self, plan: MiningPlan) -> list[BlockKey]:
        """The blocks of the task whose rows need neighbours."""
        keys = [(0, number) for number in range(*self.left)]
        if plan.is_right_wanted:
            keys += [(len(plan.corpora) - 1, number) for number in range(*self.right)]
        return list(dict.fromkeys(keys))

    def cosines(self, plan: MiningPlan) -> int:
        """The number of cosines that the task computes."""
        left = [block.rows for block in plan.corpora[0].blocks[slice(*self.left)]]
        right = [block.rows for block in plan.corpora[-1].blocks[slice(*self.right)]]
        if len(plan.corpora) == 1 and self.left == self.right:
            return (sum(left) ** 2 + sum(rows**2 for rows in left)) // 2
        return sum(left) * sum(right)


def plan_tile_tasks(plan: MiningPlan) -> Iterator[TileTask]:
    """The tasks that compare all rows; within one corpus each pair of blocks once."""
    runs = [_runs(corpus, plan.k) for corpus in plan.corpora]
    pairs = itertools.combinations_with_replacement(runs[0], 2) if len(runs) == 1 else itertools.product(*runs)
    return itertools.starmap(TileTask, pairs)


def count_tile_tasks(plan: MiningPlan) -> int:
    """The number of tasks."""
    counts = [len(_runs(corpus, plan.k)) for corpus in plan.corpora]
    return counts[0] * (counts[0] + 1) // 2 if len(counts) == 1 else counts[0] * counts[1]


def _runs(corpus: Corpus, k: int) -> list[tuple[int, int]]:
    """The blocks of a corpus as runs of about equal length."""
    n_blocks = len(corpus.blocks)
    block_rows = max((block.rows for block in corpus.blocks), default=1)
    max_blocks = max(1, min(MAX_RUN_ROWS, MAX_RUN_SLOTS // k) // block_rows)
    n_runs = max(min(n_blocks, MIN_RUNS), -(-n_blocks // max_blocks))
    edges = [n_blocks * number // n_runs for number in range(n_runs + 1)] if n_runs else []
    return list(itertools.pairwise(edges))
