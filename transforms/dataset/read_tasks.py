"""Read tasks: the slices of an input file that one worker reads in one pass.

Neither a row group nor a text file can be entered in its middle. So a task is a run of small row groups, or one large
row group, or a whole text file: each row is decoded once. A row group that has more than its share of all rows is cut
into several tasks, so that several workers encode its rows. Each of them decodes it from its start: n tasks take up to
(n + 1) / 2 passes. On a CPU decoding a row takes less than a thousandth of the time of encoding it (see "reading" and
"job" in benchmarks/results/embed.json), and texts need no shuffle.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import pyarrow as pa

from transforms.dataset.slices import InputFile, InputSlice, read_slices, split_file, with_slice

RUN_ROWS = 65_536
"""Small row groups of a file are read by one task up to this many rows, and ..."""
RUN_GROUPS = 1024
"""... up to this many row groups."""


@dataclasses.dataclass(frozen=True)
class ReadTask:
    """Consecutive row groups of a file, or some slices of one row group."""

    file: InputFile  # with the row groups of this task only
    first_group: int  # in the file
    first_row: int  # of the first row group, in the file
    skip_rows: int  # before the first slice
    rows: int
    slice_rows: int

    @property
    def slices(self) -> list[InputSlice]:
        """The slices, in the order of the file."""
        start = self.first_row + self.skip_rows
        slices = split_file(self.file, self.slice_rows, self.first_group, self.first_row)
        return [each for each in slices if start <= each.first_row < start + self.rows]


def share_rows(files: Sequence[InputFile], min_tasks: int) -> int:
    """The rows of each task if `min_tasks` tasks divide all rows among them."""
    return -(-sum(file.rows for file in files) // min_tasks)


def plan_tasks(file: InputFile, slice_rows: int, task_rows: int) -> Iterator[ReadTask]:
    """The tasks of a file. They have at most `task_rows` rows, rounded up to whole slices, and cover every slice once.

    Slices do not depend on tasks: their numbers, rows and parts are those of `split_file`.
    """
    task_rows = -(-task_rows // slice_rows) * slice_rows
    run: list[int] = []
    group, row = 0, 0  # the first of the run

    def task(groups: Sequence[int], skip_rows: int, rows: int) -> ReadTask:
        return ReadTask(dataclasses.replace(file, row_groups=tuple(groups)), group, row, skip_rows, rows, slice_rows)

    for rows in file.row_groups:
        if run and (sum(run) + rows > min(RUN_ROWS, task_rows) or len(run) == RUN_GROUPS):
            if sum(run):
                yield task(run, 0, sum(run))
            group, row, run = group + len(run), row + sum(run), []
        if rows <= task_rows:
            run.append(rows)
            continue
        for skip_rows in range(0, rows, task_rows):
            yield task([rows], skip_rows, min(task_rows, rows - skip_rows))
        group, row = group + 1, row + rows
    if sum(run):
        yield task(run, 0, sum(run))


def read_task(task: ReadTask, id_column: str | None = None) -> Iterator[pa.RecordBatch]:
    """The batches of the slices of a task, as `read_slice` gives them, one at a time."""
    slices = task.slices
    for input_slice, batch in zip(slices, read_slices(slices), strict=True):
        yield with_slice(batch, input_slice, id_column)
