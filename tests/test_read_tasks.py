"""Read tasks: every slice is read once, in one pass, and becomes the same part whoever reads it."""

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.testing.util import assert_that, equal_to

from pipelines import embed
from pipelines.embed_options import EmbedOptions
from sbert_core.errors import DataError
from tests.corpora import run_fake
from tests.damage import contents
from tests.fake_encoder import load_fake
from tests.input_formats import NAMES, write_input
from transforms.dataset import read_tasks, slices
from transforms.dataset.read_sentences import ReadSentences
from transforms.dataset.read_tasks import plan_tasks, read_task, share_rows
from transforms.dataset.skip_finished import source_digest
from transforms.dataset.slices import InputFile, inspect_files, read_slice, split_file

PART_NAMES = {
    "one_group.parquet": "88a205bd1d801666",
    "groups.parquet": "c0461e296d2d4246",
    "one_row_groups.parquet": "083896a37e324026",
    "rows.csv": "5c51503d01d110d1",
    "rows.csv.gz": "d152429aae1a634c",
    "rows.tsv": "323c483e3664e094",
    "rows.jsonl": "e9209f15417e83b3",
    "rows.jsonl.bz2": "301daed310f5eec4",
    "rows.json": "79d9f5a6705c88b8",
    "rows.txt": "9a767743eae9f788",
    "rows.txt.gz": "89848315ead8fec3",
}
"""A hash of the names of all parts of each input at 17 rows per slice. The name of a part has a hash of its rows.

They were computed when each slice was read on its own, from the start of its row group.
"""


def make_file(*row_groups: int) -> InputFile:
    return InputFile("/x/a.parquet", "a.parquet", pa.schema([]), row_groups)


FILES = [(), (0,), (1,), (100,), (40, 40, 20), (0, 5, 0, 0, 60, 1, 0), (1,) * 50, (3, 200, 3, 3, 200)]


@pytest.mark.parametrize("row_groups", FILES)
@pytest.mark.parametrize("task_rows", [1, 17, 50, 10_000])
def test_tasks_cover_every_slice_once_and_in_order(row_groups, task_rows):
    file = make_file(*row_groups)
    tasks = list(plan_tasks(file, 17, task_rows))
    assert [each for task in tasks for each in task.slices] == list(split_file(file, 17))
    assert all(task.slices for task in tasks)
    assert all(task.rows == sum(each.rows for each in task.slices) for task in tasks)
    assert all(task.rows < task_rows + 17 for task in tasks)


def test_a_large_row_group_is_one_task_unless_workers_would_have_no_work():
    file = make_file(500_000)
    assert len(list(plan_tasks(file, 8192, share_rows([file], 1)))) == 1
    tasks = list(plan_tasks(file, 8192, share_rows([file], 8)))
    assert [task.rows for task in tasks] == [65_536] * 7 + [500_000 - 7 * 65_536]
    others = [make_file(500_000) for _ in range(8)]
    assert all(len(list(plan_tasks(each, 8192, share_rows(others, 8)))) == 1 for each in others)


def test_small_row_groups_are_read_in_runs(monkeypatch):
    assert [len(task.slices) for task in plan_tasks(make_file(*(1,) * 3000), 8192, 3000)] == [1024, 1024, 952]
    monkeypatch.setattr(read_tasks, "RUN_ROWS", 100)
    assert [task.rows for task in plan_tasks(make_file(40, 40, 40, 150, 10, 10), 8192, 10_000)] == [80, 40, 150, 20]


@pytest.fixture
def rows_read(monkeypatch) -> list[int]:
    """The rows of each batch that is decoded."""
    decoded: list[int] = []
    original = slices.read_stream

    def counting(*arguments):
        for batch in original(*arguments):
            decoded.append(len(batch))
            yield batch

    monkeypatch.setattr(slices, "read_stream", counting)
    return decoded


@pytest.mark.parametrize("name", NAMES)
def test_a_task_reads_in_one_pass_what_its_slices_are(tmp_path, name, rows_read):
    (file,) = inspect_files([str(write_input(tmp_path, name, rows=1000))])
    expected = [read_slice(each) for each in split_file(file, 17)]
    rows_read.clear()
    batches = [batch for task in plan_tasks(file.for_workers(), 17, 1000) for batch in read_task(task)]
    assert sum(rows_read) == 1000
    assert [batch.schema.metadata for batch in batches] == [batch.schema.metadata for batch in expected]
    assert [source_digest(batch) for batch in batches] == [source_digest(batch) for batch in expected]


@pytest.mark.parametrize("name", ["one_group.parquet", "rows.csv"])
def test_a_pass_ends_after_the_last_slice(tmp_path, name, rows_read):
    (file,) = inspect_files([str(write_input(tmp_path, name, rows=60_000))])
    first, *_ = plan_tasks(file.for_workers(), 10, 100)
    assert sum(map(len, read_task(first))) == 100
    assert sum(rows_read) < 60_000


@pytest.mark.parametrize("name", ["one_group.parquet", "groups.parquet", "rows.csv", "rows.jsonl", "rows.txt.gz"])
def test_a_file_that_changes_between_two_slices(tmp_path, name):
    """Slices before the change are whole; no row of the new file follows them."""
    path = write_input(tmp_path, name)
    (file,) = inspect_files([str(path)])
    (task,) = plan_tasks(file.for_workers(), 17, 100)
    batches = read_task(task)
    assert len(next(batches)) == 17
    os.utime(path, (1, 1))
    with pytest.raises(DataError, match=rf"{name} was changed while the job ran: run it again when"):
        list(batches)


@pytest.mark.parametrize("min_tasks", [1, 4])
def test_counters_and_batches_of_the_transform(tmp_path, min_tasks):
    write_input(tmp_path, "one_group.parquet")
    read = ReadSentences(patterns=[str(tmp_path)], slice_rows=10, min_tasks=min_tasks)
    root = beam.Pipeline("FnApiRunner")
    assert_that(root | read | beam.Map(len), equal_to([10] * 10))
    result = root.run()
    found = {each.key.metric.name: each.result for each in result.metrics().query()["counters"]}
    expected = {"tasks": min_tasks, "slices": 10, "rows": 100}
    assert {name: found[name] for name in expected} == expected


def test_min_tasks_must_be_positive():
    with pytest.raises(DataError, match="min_tasks must be at least 1, got 0"):
        ReadSentences(patterns=["x"], min_tasks=0)


def run_divided(folder: Path, output: Path, min_tasks: int) -> None:
    """The pipeline of the job, with another division into tasks."""
    options = EmbedOptions(input=[str(folder)], output=str(output), slice_rows=17)
    with beam.Pipeline("FnApiRunner") as root:
        encode = embed.make_encode(options, load=load_fake)
        files = inspect_files([str(folder)])
        embed.build(root, options, encode, files, "fake", min_tasks=min_tasks)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_parts_do_not_depend_on_who_reads_them(tmp_path, name):
    write_input(tmp_path / "in", name)
    run_fake(str(tmp_path / "in"), tmp_path / "out", slice_rows=17)
    result = contents(tmp_path / "out")
    names = sorted(each for each in result if each.endswith(".parquet"))
    assert hashlib.sha256("\n".join(names).encode()).hexdigest()[:16] == PART_NAMES[name]
    run_divided(tmp_path / "in", tmp_path / "divided", min_tasks=100)
    assert contents(tmp_path / "divided") == result


@pytest.mark.slow
@pytest.mark.parametrize("name", ["one_group.parquet", "rows.csv.gz"])
def test_killed_in_the_middle_of_a_file(tmp_path, name):
    """The parts of the slices before the kill are kept, although their task did not end."""
    path = write_input(tmp_path / "in", name)
    run_fake(str(path), tmp_path / "undisturbed", slice_rows=10)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.slow_job", str(path), str(tmp_path / "out")], cwd=Path(__file__).parents[1]
    )
    deadline = time.monotonic() + 60
    while len(list((tmp_path / "out").glob("embeddings/*.parquet"))) < 2:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()
    figures = run_fake(str(path), tmp_path / "out", slice_rows=10)
    assert 2 <= figures["parts kept"] < 10
    assert contents(tmp_path / "out") == contents(tmp_path / "undisturbed")


@pytest.mark.slow
def test_several_processes_share_one_row_group(tmp_path):
    write_input(tmp_path / "in", "one_group.parquet")
    run_fake(str(tmp_path / "in"), tmp_path / "one", slice_rows=10)
    run_fake(str(tmp_path / "in"), tmp_path / "two", slice_rows=10, workers=2)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    counters = [(tmp_path / name / "embeddings/_run.json").read_text() for name in ("one", "two")]
    assert ['"read/tasks": 1,' in each for each in counters] == [True, False]


@pytest.mark.parametrize("rows", [0, 1])
def test_files_with_hardly_a_row(tmp_path, rows):
    pq.write_table(pa.table({"text": pa.array(["a"] * rows, pa.string())}), tmp_path / "a.parquet")
    (tmp_path / "b.txt").write_text("a\n" * rows)
    for file in inspect_files([str(tmp_path)]):
        assert [len(batch) for task in plan_tasks(file, 17, 1) for batch in read_task(task)] == [1] * rows
