"""Every pair of blocks is in one task, and tasks are neither too large nor too few."""

import collections
from types import SimpleNamespace

import pytest

from transforms.neighbors.tile_tasks import MAX_RUN_ROWS, TileTask, count_tile_tasks, plan_tile_tasks


def plan_of(*block_counts: int, block_rows: int = 8192, k: int = 32, both_sides: bool = True) -> SimpleNamespace:
    """What tasks need of a plan, for corpora with these numbers of blocks; the last block of each is half full."""
    corpora = []
    for count in block_counts:
        rows = [block_rows] * (count - 1) + [block_rows // 2] * (count > 0)
        corpora.append(SimpleNamespace(blocks=[SimpleNamespace(rows=each) for each in rows]))
    return SimpleNamespace(corpora=corpora, k=k, is_right_wanted=both_sides or len(corpora) == 1)


def pairs_of(task: TileTask, plan: SimpleNamespace) -> list[tuple[int, int]]:
    return [(left, right) for left in range(*task.left) for right in task.right_blocks(left, plan)]


COUNTS = [0, 1, 2, 11, 12, 13, 25, 100]


@pytest.mark.parametrize("blocks", COUNTS)
def test_each_pair_of_blocks_of_one_corpus_is_in_one_task(blocks):
    plan = plan_of(blocks)
    tasks = list(plan_tile_tasks(plan))
    seen = collections.Counter(tuple(sorted(pair)) for task in tasks for pair in pairs_of(task, plan))
    assert seen == {(i, j): 1 for i in range(blocks) for j in range(i, blocks)}
    assert len(tasks) == count_tile_tasks(plan) == len({task.file_name for task in tasks})
    assert len(tasks) == min(blocks, 12) * (min(blocks, 12) + 1) // 2


@pytest.mark.parametrize("blocks", COUNTS)
def test_each_pair_of_blocks_of_two_corpora_is_in_one_task(blocks):
    plan = plan_of(3, blocks)
    tasks = list(plan_tile_tasks(plan))
    seen = collections.Counter(pair for task in tasks for pair in pairs_of(task, plan))
    assert seen == {(i, j): 1 for i in range(3) for j in range(blocks)}
    assert len(tasks) == count_tile_tasks(plan) == 3 * min(blocks, 12)


@pytest.mark.parametrize(
    ("blocks", "block_rows", "k", "runs"),
    [
        (384, 8192, 32, 12),
        (385, 8192, 32, 13),
        (3840, 8192, 32, 120),
        (384, 8192, 64, 12),
        (384, 8192, 128, 24),  # candidates of fewer rows fit
        (40, 300_000, 32, 40),  # a block that is larger than a run
    ],
)
def test_runs_have_a_maximum_size(blocks, block_rows, k, runs):
    tasks = list(plan_tile_tasks(plan_of(blocks, block_rows=block_rows, k=k)))
    lengths = {task.left[1] - task.left[0] for task in tasks}
    assert len({task.left for task in tasks}) == runs
    assert max(lengths) * block_rows <= max(MAX_RUN_ROWS, block_rows)
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("counts", [(1,), (30,), (5, 30)])
def test_cosines_are_those_of_the_pairs(counts):
    plan = plan_of(*counts)
    for task in plan_tile_tasks(plan):
        rows = [[block.rows for block in corpus.blocks] for corpus in plan.corpora]
        assert task.cosines(plan) == sum(rows[0][i] * rows[-1][j] for i, j in pairs_of(task, plan))


def test_blocks_that_need_neighbors():
    task = TileTask((0, 2), (0, 2))
    assert task.wanted_blocks(plan_of(2)) == [(0, 0), (0, 1)]
    assert TileTask((0, 1), (1, 3)).wanted_blocks(plan_of(3)) == [(0, 0), (0, 1), (0, 2)]
    assert task.wanted_blocks(plan_of(2, 2)) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert task.wanted_blocks(plan_of(2, 2, both_sides=False)) == [(0, 0), (0, 1)]


def test_a_block_begins_with_the_blocks_that_were_loaded_last():
    plan, task = plan_of(8), TileTask((0, 2), (4, 8))
    assert [task.right_blocks(number, plan) for number in (0, 1)] == [[4, 5, 6, 7], [7, 6, 5, 4]]
