"""Inspection of many files: in parallel, with results and errors in the order of the listing."""

import contextlib
import gzip
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sbert_core.data.json_format import inspect_json
from sbert_core.data.text_stream import DEFAULT_FORMAT, BadFileError
from sbert_core.errors import DataError
from transforms.dataset import slices
from transforms.dataset.slices import inspect_files, inspect_readable_files, read_slice, split_file


@pytest.fixture
def crowd(monkeypatch):
    """A slow file system: an open waits until `parties` others wait too, or for a moment if they do not come."""

    class Crowd:
        parties = 8
        opened = 0
        inside = 0
        max_inside = 0

    found = Crowd()
    condition = threading.Condition()
    original = slices.open_file

    def slow_open(path):
        with condition:
            found.opened += 1
            found.inside += 1
            found.max_inside = max(found.max_inside, found.inside)
            condition.notify_all()
            condition.wait_for(lambda: found.max_inside >= found.parties, timeout=5)
            found.inside -= 1
        return original(path)

    monkeypatch.setattr(slices, "open_file", slow_open)
    return found


def write_parquet(folder, count: int) -> None:
    for number in range(count):
        pq.write_table(pa.table({"text": ["a"] * (number % 3 + 1)}), folder / f"{number:04}.parquet")


def test_footers_are_read_in_parallel_and_each_once(tmp_path, crowd):
    write_parquet(tmp_path, 40)
    files = inspect_files([str(tmp_path)])
    assert [file.name for file in files] == [f"{number:04}.parquet" for number in range(40)]
    assert [file.rows for file in files] == [number % 3 + 1 for number in range(40)]
    assert crowd.max_inside >= 8
    assert crowd.opened == 40


def test_text_files_are_read_in_parallel_and_each_once(tmp_path, crowd):
    crowd.parties = 4
    for number in range(8):
        (tmp_path / f"{number}.csv").write_text("text\n" + "a\n" * number)
    assert [file.rows for file in inspect_files([str(tmp_path)])] == list(range(8))
    assert crowd.max_inside == 4
    assert crowd.opened == 8


def test_the_first_bad_file_is_reported(tmp_path):
    write_parquet(tmp_path, 30)
    for number in (11, 12, 25):
        (tmp_path / f"{number:04}.parquet").write_bytes(b"PAR1 no")
    for _ in range(5):
        with pytest.raises(DataError, match=r"0011\.parquet cannot be read"):
            inspect_files([str(tmp_path)])
    files, skipped = inspect_readable_files([str(tmp_path)])
    assert [each.name for each in skipped] == ["0011.parquet", "0012.parquet", "0025.parquet"]
    assert [file.name for file in files] == sorted(file.name for file in files)
    assert len(files) == 27


def test_files_are_closed_after_inspection(tmp_path, monkeypatch):
    opened = []
    original = slices.open_file
    monkeypatch.setattr(slices, "open_file", lambda path: opened.append(original(path)) or opened[-1])
    write_parquet(tmp_path, 2)
    (tmp_path / "a.csv").write_text("text\na\n")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"text\na\n"))
    (tmp_path / "c.parquet").write_bytes(b"no")
    with contextlib.suppress(DataError):
        inspect_files([str(tmp_path)])
    assert len(opened) == 5
    assert all(file.closed for file in opened)


def test_several_bad_csv_files_with_long_cells_are_diagnosed_at_once(tmp_path):
    """Python's limit of a cell belongs to the process."""
    for number in range(8):
        (tmp_path / f"{number}.csv").write_text("id,text\n" + f"1,{'x' * 200_000}\n" * 20 + "1\n")
    (tmp_path / "good.csv").write_text("id,text\n1,a\n")
    _, skipped = inspect_readable_files([str(tmp_path)])
    assert len(skipped) == 8
    assert all("row 20 (ends in line 22) has 1 cells, expected 2" in each.reason for each in skipped)


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"a", b"a\n", b"a\nb", b"\n\na\r\n\n", b"\r", b"a\x85b\x0cc\n", b"\xff\n\xff"]
)
def test_lines_are_counted_as_they_are_read(tmp_path, content):
    (tmp_path / "a.txt").write_bytes(content)
    (file,) = inspect_files([str(tmp_path)])
    assert file.rows == sum(len(read_slice(each)) for each in split_file(file, 1))
    assert file.rows == len(content.removesuffix(b"\n").split(b"\n")) - (not content)


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b'{"a": 1}\n{"a": 2}\n', 2),
        (b'{"a": 1}\n{"a": 2}', 2),
        (b'{"a": 1}\n\n{"a": 2}\n\n', 2),
        (b'{"a": 1}\n\n', 1),
        (b'\n {"a": 1}\r\n \t\n  {"a": 2}\r\n', 2),
    ],
)
def test_rows_of_json_lines_are_counted(tmp_path, content, rows):
    (tmp_path / "a.jsonl").write_bytes(content)
    assert inspect_json(lambda: (tmp_path / "a.jsonl").open("rb"), DEFAULT_FORMAT)[1] == rows


def test_two_objects_on_a_line_are_not_hidden_by_a_blank_line(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"a": 1}{"a": 2}\n\n')
    with pytest.raises(BadFileError, match="expected one object on each line"):
        inspect_json(lambda: (tmp_path / "a.jsonl").open("rb"), DEFAULT_FORMAT)
