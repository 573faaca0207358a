"""How cells are divided into tasks."""

import numpy as np

from transforms.neighbors.cell_tasks import CellTask, plan_cell_tasks


def test_tasks_cover_all_cells_once_and_divide_large_ones():
    sizes = np.random.default_rng(0).integers(0, 200, 300)
    sizes[[3, 4, 299]] = 100_000
    tasks = list(plan_cell_tasks(sizes, n_cells=300))
    assert [cell for task in tasks if task.part == 0 for cell in range(task.first, task.end)] == list(range(300))
    for large in (3, 4, 299):  # 32 times the mean are 35,000 rows
        assert [task for task in tasks if task.first == large] == [CellTask(large, large + 1, n, 3) for n in range(3)]


def test_small_cells_are_never_divided():
    sizes = np.array([10_000, 1, 1, 1])
    assert list(plan_cell_tasks(sizes, n_cells=1000)) == [CellTask(0, 4)]
    assert len(list(plan_cell_tasks(sizes, n_cells=1000, min_divided_rows=5000))) == 3


def test_each_task_has_a_file_of_its_own():
    sizes = np.random.default_rng(0).integers(0, 60_000, 300)
    tasks = list(plan_cell_tasks(sizes, n_cells=30_000))
    assert max(task.n_parts for task in tasks) > 1
    assert len({task.file_name for task in tasks}) == len(tasks)


def test_no_cells():
    assert list(plan_cell_tasks(np.empty(0, np.int64))) == []
