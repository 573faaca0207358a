"""JSON files: types that hold for the whole file, wherever their blocks end."""

import io
import json

import pyarrow as pa
import pytest

from sbert_core.data.json_format import inspect_json, read_json
from sbert_core.data.text_stream import BadFileError, TextFormat
from sbert_core.errors import DataError
from tests.corpora import read_output, run_fake


def read(content: bytes, chunk_bytes: int = 1 << 20, **text_format) -> pa.Table:
    def open_stream():
        return io.BytesIO(content)

    schema, rows = inspect_json(open_stream, TextFormat(**text_format), chunk_bytes)
    table = pa.Table.from_batches(read_json(open_stream, TextFormat(**text_format), schema, chunk_bytes), schema)
    assert len(table) == rows
    return table


def lines(rows, encoding="utf-8") -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode(encoding)


ROWS = [
    {"text": "2024-01-01", "n": None, "o": {"when": "2024-01-01T00:00:00Z"}},
    {"text": "2024-01-02", "n": 1, "o": {"when": "2024-01-01"}, "tags": ["2024-01-01"]},
    {"text": "no time, with \n a break and ü", "n": 2.5, "o": {"when": "later", "more": True}},
    {"text": None, "late": "field"},
]


@pytest.mark.parametrize("chunk_bytes", [1, 10, 64, 100, 1 << 20])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_types_hold_for_the_whole_file(chunk_bytes, encoding):
    table = read(lines(ROWS, encoding), chunk_bytes, encoding=encoding)
    assert table.schema.field("text").type == pa.string()
    assert table.schema.field("n").type == pa.float64()
    assert table.column_names == ["text", "n", "o", "tags", "late"]
    assert table["text"].to_pylist() == [row["text"] for row in ROWS]
    assert table["n"].to_pylist() == [None, 1, 2.5, None]
    assert [each and each["when"] for each in table["o"].to_pylist()] == [
        "2024-01-01T00:00:00Z",
        "2024-01-01",
        "later",
        None,
    ]
    assert table["tags"].to_pylist() == [None, ["2024-01-01"], None, None]


def test_a_line_longer_than_a_block():
    table = read(lines([{"text": "x" * 5_000_000}, {"text": "short"}]))
    assert [len(text) for text in table["text"].to_pylist()] == [5_000_000, 5]


@pytest.mark.parametrize("content", [b"", b"\n\n", b"[]", b" \n [ ]\n"])
def test_nothing_in_a_file(content):
    assert len(read(content)) == 0


def test_blank_lines_and_a_last_line_without_a_break():
    assert read(b'\n{"text": "a"}\n\n  \r\n{"text": "b"}', 4)["text"].to_pylist() == ["a", "b"]


def test_rows_without_any_value_are_rows():
    assert read(b'{}\n{"text": "a"}\n{}\n', 3)["text"].to_pylist() == [None, "a", None]


@pytest.mark.slow
def test_arrays(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(ROWS, indent=2), encoding="utf-8")
    run_fake(str(tmp_path / "a.json"), tmp_path / "out", slice_rows=1)
    result = read_output(tmp_path / "out").select(["id", "text", "n"]).to_pylist()
    assert result == [{"id": f"a.json#{row}", "text": ROWS[row]["text"], "n": ROWS[row]["n"]} for row in range(3)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"text": "a"}\n\n{"text": }\n', "line 3: Invalid value"),
        (b'{"text": "a"}\n{"text": "\xff"}\n', "line 2 is not valid UTF-8: see --encoding$"),
        (b'{"text": "a"}\n{"text": 3}\n', r"line 2: Column\(/text\) changed from string to number$"),
        (b'{"text": "a", "text": "b"}\n', r"line 1: Column\(/text\) was specified twice$"),
        (b'{"text": "a"}\n"b"\n', "line 2: "),
        (b'{"text":\n"a"}\n', "expected one object on each line$"),
        (b'[{"text": "a"}, 3]', "element 1 of the array is not an object"),
        (b'[{"text": "a"}', "it begins as an array, but is not valid JSON"),
        ('{"text": "a"}\n'.encode("utf-16"), "it is UTF-16, not UTF-8: see --encoding utf-16$"),
    ],
)
def test_bad_files(tmp_path, content, message):
    (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=f"a.jsonl cannot be read: {message}"):
        run_fake(str(tmp_path / "a.jsonl"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_type_that_changes_far_into_a_file():
    content = lines([{"text": "a", "n": 1}] * 10 + [{"text": "a", "n": "one"}])
    with pytest.raises(BadFileError, match=r"column 'n' is int64 before line \d+ and string somewhere after it"):
        read(content, 20)


def test_a_place_far_into_a_file():
    with pytest.raises(BadFileError, match=r"^line 11: "):
        read(lines([{"text": "a"}] * 10) + b"{no}\n", 40)
