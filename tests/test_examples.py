"""Rows to learn from are read as they are in the file, and errors name the place of bad ones."""

import csv
import gzip
import io
import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sbert_core.data.examples import Examples, read_examples
from sbert_core.data.manifest import Manifest, Part
from sbert_core.errors import DataError
from tests.corpora import write_manifest

ROWS = [
    {"sentence1": "A cat sleeps.", "sentence2": "Die Katze schläft.", "score": 5.0, "label": "same", "split": "train"},
    {"sentence1": 'He said "no".', "sentence2": "Yes, he did", "score": 0.0, "label": "other", "split": "train"},
    {"sentence1": "猫が寝ている", "sentence2": "A dog", "score": 2.5, "label": "near", "split": "dev"},
    {"sentence1": "Rain", "sentence2": "It rains", "score": 4.0, "label": "same", "split": "train"},
]
PAIR = ("sentence1", "sentence2")


def write(path: Path, rows: list[dict] = ROWS) -> str:
    """Writes rows in the format that the suffix names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [list(rows[0]), *(list(row.values()) for row in rows)]
    text = io.StringIO(newline="")
    match next(suffix for suffix in path.suffixes if suffix != ".gz"):
        case ".parquet":
            pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=2)
            return str(path)
        case ".jsonl" | ".json":
            text.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        case ".tsv":
            text.writelines("\t".join(map(str, line)) + "\n" for line in lines)
        case ".csv":
            csv.writer(text).writerows(lines)
    content = text.getvalue().encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return str(path)


def column(tmp_path: Path, values: list, name: str = "label", kind: pa.DataType | None = None) -> str:
    """A Parquet file of texts with one more column."""
    texts = [f"text {row}" for row in range(len(values))]
    pq.write_table(pa.table({"text": texts, name: pa.array(values, kind)}), tmp_path / "data.parquet")
    return str(tmp_path / "data.parquet")


def labels(tmp_path: Path, values: list, kind: str, arrow: pa.DataType | None = None, **options) -> Examples:
    return read_examples(column(tmp_path, values, kind=arrow), ["text"], "label", kind, **options)


FORMATS = ["parquet", "jsonl", "json", "tsv", "csv", "jsonl.gz", "tsv.gz", "csv.gz"]


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_has_the_same_rows(tmp_path, suffix):
    path = write(tmp_path / f"data.{suffix}")
    examples = read_examples(path, PAIR, "score", "score", label_range=(0, 5))
    assert examples.texts == tuple([row[name] for row in ROWS] for name in PAIR)
    assert examples.labels.dtype == np.float32
    assert examples.labels.tolist() == [1, 0, 0.5, np.float32(0.8)]
    assert (len(examples), examples.name, examples.classes) == (4, path, ())
    again = read_examples(path, PAIR, "score", "score", label_range=(0, 5))
    assert again.texts == examples.texts
    assert again.labels.tolist() == examples.labels.tolist()


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_is_filtered_and_numbered(tmp_path, suffix):
    path = write(tmp_path / f"data.{suffix}")
    train = read_examples(path, PAIR, "label", "class", where={"split": "train"})
    assert train.texts[0] == ["A cat sleeps.", 'He said "no".', "Rain"]
    assert (train.labels.tolist(), train.classes, train.labels.dtype) == ([1, 0, 1], ("other", "same"), np.int64)


def test_text_of_csv_may_have_lines_and_a_mark(tmp_path):
    (tmp_path / "data.csv").write_bytes('\ufefftext,label\r\n"one\nand ""two""",007\r\n'.encode())
    examples = read_examples(str(tmp_path / "data.csv"), ["text"], "label", "class")
    assert (examples.texts, examples.classes) == ((['one\nand "two"'],), ("007",))


def test_folder_glob_uri_and_manifest(tmp_path):
    for shard, rows in {"b": ROWS[:2], "a": ROWS[2:]}.items():
        write(tmp_path / "in" / f"{shard}.parquet", rows)
    write(tmp_path / "in" / "_hidden.parquet")
    (tmp_path / "in" / "notes.md").write_text("not data")
    (tmp_path / "in" / "dataset_info.json").write_text("{}")
    expected = ["猫が寝ている", "Rain", "A cat sleeps.", 'He said "no".']
    for path in (tmp_path / "in", f"{tmp_path}/in/", tmp_path / "in/*.parquet", f"file://{tmp_path}/in/*.parquet"):
        assert read_examples(str(path)).texts[0] == expected
    write(tmp_path / "in" / "c[1].parquet", ROWS[:1])
    assert read_examples(f"{tmp_path}/in/c[1].parquet").texts[0] == expected[2:3]
    write_manifest(tmp_path / "in", ["b.parquet", "a.parquet"])
    assert read_examples(str(tmp_path / "in")).texts[0] == expected[2:] + expected[:2]


def test_shards_of_other_text_types_fit_together(tmp_path):
    for name, kind in (("a", pa.string()), ("b", pa.large_string()), ("c", pa.dictionary(pa.int32(), pa.string()))):
        pq.write_table(pa.table({"text": pa.array([name], kind)}), tmp_path / f"{name}.parquet")
    assert read_examples(str(tmp_path)).texts == (["a", "b", "c"],)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["negative_2", "positive", "anchor", "negative"], ["anchor", "positive", "negative_2", "negative"]),
        (["query", "positive", "negative"], ["query", "positive", "negative"]),
        (["id", "query", "passage", "negative"], ["query", "passage"]),
        (["sentence2", "sentence1", "text"], ["sentence1", "sentence2"]),
        (["premise", "hypothesis"], ["premise", "hypothesis"]),
        (["text_a", "text_b", "score"], ["text_a", "text_b"]),
        (["id", "text"], ["text"]),
        (["sentence"], ["sentence"]),
    ],
)
def test_conventional_columns(tmp_path, names, expected):
    path = write(tmp_path / "data.jsonl", [{name: f"a {name}" for name in names}])
    assert read_examples(path).texts == tuple([f"a {name}"] for name in expected)


def test_a_column_may_come_twice(tmp_path):
    assert read_examples(write(tmp_path / "a.parquet"), ["sentence1"] * 2).texts[1][3] == "Rain"


@pytest.mark.parametrize(
    ("values", "where", "expected"),
    [
        (["a", "b", None, "c"], ["a", "c"], [0, 3]),
        ([1, 2, None, 12], {2, "12"}, [1, 3]),
        ([True, False, None, True], True, [0, 3]),
        ([1.5, 2.0, None, 2.0], 2, [1, 3]),
    ],
)
def test_where(tmp_path, values, where, expected):
    path = column(tmp_path, values, "of")
    assert read_examples(path, where={"of": where}).texts[0] == [f"text {row}" for row in expected]


def test_several_conditions(tmp_path):
    where = {"split": ["train", "dev"], "label": "same"}
    assert read_examples(write(tmp_path / "a.tsv"), where=where).texts[0] == ["A cat sleeps.", "Rain"]


def test_limit_is_a_seeded_sample(tmp_path):
    path = column(tmp_path, list(range(100)))
    first = read_examples(path, label="label", kind="class", limit=10)
    again = read_examples(path, label="label", kind="class", limit=10, seed=0)
    other = read_examples(path, label="label", kind="class", limit=10, seed=1)
    assert first.texts == again.texts != other.texts
    assert first.texts[0] == [f"text {label}" for label in first.labels]
    assert first.labels.tolist() == sorted(set(first.labels.tolist()))
    assert len(first) == len(other) == 10
    assert len(first.classes) == 100  # of all rows: the numbering does not depend on the sample
    assert len(read_examples(path, limit=1000)) == 100


def test_classes_are_sorted(tmp_path):
    assert labels(tmp_path, ["b", "a", "b"], "class").classes == ("a", "b")
    assert labels(tmp_path, [10, 2, 2], "class").classes == ("2", "10")
    assert labels(tmp_path, ["10", "2", "2"], "class").classes == ("2", "10")
    given = labels(tmp_path, ["b", "a", "b"], "class", classes=["c", "b", "a"])
    assert (given.labels.tolist(), given.classes) == ([1, 2, 1], ("c", "b", "a"))


@pytest.mark.parametrize("values", [[0, 1, 1], [False, True, True], [0.0, 1.0, 1.0], ["0", "true", "1"]])
def test_binary(tmp_path, values):
    examples = labels(tmp_path, values, "binary")
    assert (examples.labels.tolist(), examples.labels.dtype, examples.classes) == ([0, 1, 1], np.int64, ())


def test_scores_and_margins(tmp_path):
    assert labels(tmp_path, [-1, 0.5, 1], "score").labels.tolist() == [-1, 0.5, 1]
    assert labels(tmp_path, [1, 3, 5], "score", label_range=(1, 5)).labels.tolist() == [0, 0.5, 1]
    assert labels(tmp_path, [-12.5, 7, 0], "margin").labels.tolist() == [-12.5, 7, 0]


@pytest.mark.parametrize("arrow", [pa.list_(pa.float32(), 2), pa.list_(pa.float64()), pa.large_list(pa.float16())])
def test_vectors(tmp_path, arrow):
    examples = labels(tmp_path, [[1, 2], [0.5, -1], [0, 0]], "vector", arrow)
    assert (examples.labels.tolist(), examples.labels.dtype) == ([[1, 2], [0.5, -1], [0, 0]], np.float32)
    where = labels(tmp_path, [[1, 2], [0.5, -1], [0, 0]], "vector", arrow, where={"text": ["text 1", "text 2"]})
    assert where.labels.tolist() == [[0.5, -1], [0, 0]]


def test_vectors_of_jsonl(tmp_path):
    rows = [{"text": "a", "v": [1, 2]}, {"text": "b", "v": [0.5, 3]}]
    assert read_examples(write(tmp_path / "a.jsonl", rows), (), "v", "vector").labels.tolist() == [[1, 2], [0.5, 3]]


@pytest.mark.parametrize(
    ("values", "kind", "options", "message"),
    [
        (["a", None], "class", {}, "is None, expected a label"),
        (["a", " "], "class", {}, "is ' ', expected a class: text or a whole number"),
        (["a", "b"], "class", {"classes": ["a"]}, "is 'b', expected one of the classes 'a'"),
        ([1.0, 2.0], "class", {}, r"row 0 .* is 1.0, expected a class: text or a whole number"),
        ([0, 2], "binary", {}, "is 2, expected 0 or 1, or false or true"),
        (["true", "yes"], "binary", {}, "is 'yes', expected 0 or 1"),
        ([0.5, 0.25], "binary", {}, "row 0 .* is 0.5, expected 0 or 1"),
        ([0.0, None], "score", {}, "is None, expected a label"),
        ([0.0, np.nan], "score", {}, "is nan, expected a finite number"),
        ([0.0, np.inf], "margin", {}, "is inf, expected a finite number"),
        (["0.5", "half"], "score", {}, "is 'half', expected a finite number"),
        ([1.0, 1.01], "score", {}, r"is 1.01, expected a score from -1 to 1; for other scores set label_range"),
        ([5.0, 5.5], "score", {"label_range": (0, 5)}, "is 5.5, expected a score from 0 to 5$"),
        ([0.0, -0.5], "score", {"label_range": (0, 5)}, "is -0.5, expected a score from 0 to 5$"),
        ([[1.0, 2.0], None], "vector", {}, "is None, expected a label"),
        ([[1.0, 2.0], [1.0]], "vector", {}, r"is \[1.0\], expected a vector of 2 numbers"),
        ([[], []], "vector", {}, r"row 0 .* is \[\], expected a list of numbers"),
        ([[1.0, 2.0], [1.0, None]], "vector", {}, r"is \[1.0, None\], expected a vector of finite numbers"),
        ([[1, 2], [1, None]], "vector", {}, r"is \[1, None\], expected a vector of finite numbers"),
        ([[1.0, 2.0], [1.0, np.nan]], "vector", {}, r"is \[1.0, nan\], expected a vector of finite numbers"),
        ([1.0, 2.0], "vector", {}, "row 0 .* is 1.0, expected a list of numbers"),
        (["1 2", "3 4"], "vector", {}, "row 0 .* is '1 2', expected a list of numbers"),
    ],
)
def test_bad_labels(tmp_path, values, kind, options, message):
    row = "" if "row 0" in message else re.escape("data.parquet, row 1 (counted from 0): column 'label' ")
    with pytest.raises(DataError, match=row + message):
        labels(tmp_path, values, kind, **options)


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
@pytest.mark.parametrize("value", [None, "", " \n\u3000"])
def test_bad_texts(tmp_path, suffix, value):
    write(tmp_path / "in" / f"a.{suffix}", ROWS[:3])
    write(tmp_path / "in" / f"b.{suffix}", [ROWS[3], ROWS[0] | {"sentence2": value}])
    place = f"{tmp_path}/in/b.{suffix}, row 1 (counted from 0): column 'sentence2' is {value!r}, expected text"
    with pytest.raises(DataError, match=re.escape(place)):
        read_examples(str(tmp_path / "in"))
    assert len(read_examples(str(tmp_path / "in"), where={"sentence1": "Rain"})) == 1  # is not in the way of others


def test_blank_texts_of_text_files(tmp_path):
    (tmp_path / "data.tsv").write_text("text\tother\na\tb\n\tb\n")
    with pytest.raises(DataError, match=r"row 1 \(counted from 0\): column 'text' is '', expected text"):
        read_examples(str(tmp_path / "data.tsv"))


def test_texts_that_are_none(tmp_path):
    with pytest.raises(DataError, match=r"row 0 \(counted from 0\): column 'score' is 5.0, expected text"):
        read_examples(write(tmp_path / "a.parquet"), ["sentence1", "score"])
    with pytest.raises(DataError, match=r"a.jsonl cannot be read: line 3: Column\(/text\) changed from string"):
        read_examples(write(tmp_path / "a.jsonl", [{"text": "a"}, {"text": None}, {"text": 3}]))
    (tmp_path / "b.jsonl").write_text('{"text": "\\ud800"}\n')
    with pytest.raises(DataError, match=r"b.jsonl cannot be read: line 1: The surrogate pair in string is invalid"):
        read_examples(str(tmp_path / "b.jsonl"))


@pytest.mark.parametrize("suffix", FORMATS)
def test_missing_column(tmp_path, suffix):
    path = write(tmp_path / f"data.{suffix}")
    message = re.escape(f"{path} has no column 'text'; it has: sentence1, sentence2, score, label, split")
    with pytest.raises(DataError, match=message):
        read_examples(path, ["text"])
    with pytest.raises(DataError, match="has no column 'gold'"):
        read_examples(path, PAIR, "gold", "score")
    with pytest.raises(DataError, match="has no column 'lang'"):
        read_examples(path, PAIR, where={"lang": "de"})


def test_a_column_that_is_there_twice(tmp_path):
    (tmp_path / "a.csv").write_text("text,b,text\n1,2,3\n")
    pq.write_table(pa.table([["1"], ["2"]], names=["text", "text"]), tmp_path / "a.parquet")
    for name in ("a.csv", "a.parquet"):
        with pytest.raises(DataError, match=f"{name} has two columns 'text': rename one of them"):
            read_examples(str(tmp_path / name))
    assert read_examples(str(tmp_path / "a.csv"), ["b"]).texts == (["2"],)


def test_unconventional_columns(tmp_path):
    with pytest.raises(DataError, match=r"name the text columns of .*: its columns are eng, deu"):
        read_examples(write(tmp_path / "a.parquet", [{"eng": "a", "deu": "b"}]))


def test_one_shard_lacks_a_column(tmp_path):
    write(tmp_path / "a.parquet", [{"text": "a"}])
    write(tmp_path / "b.parquet", [{"body": "b"}])
    with pytest.raises(DataError, match=r"b.parquet has no column 'text'; it has: body"):
        read_examples(str(tmp_path))
    write(tmp_path / "b.parquet", [{"text": 3}])
    with pytest.raises(DataError, match=r"have columns of different types: .*string vs int64"):
        read_examples(str(tmp_path))


@pytest.mark.parametrize("name", ["no.parquet", "no", "no/*.tsv", "folder"])
def test_nothing_there(tmp_path, name):
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match=f"there is no data at '{re.escape(str(tmp_path / name))}'"):
        read_examples(str(tmp_path / name), ["text"])


def test_no_path():
    with pytest.raises(DataError, match="there is no data at ''"):
        read_examples("", ["text"])
    with pytest.raises(DataError, match="cannot list the files of nowhere://x"):
        read_examples("nowhere://x", ["text"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.parquet", b"not Parquet at all", "a.parquet cannot be read: "),
        ("a.parquet", b"", "a.parquet cannot be read: "),
        ("a.jsonl", b'{"text": "a"}\n{"text": \n', "a.jsonl cannot be read: line 2: "),
        ("a.json", b'[\n{"text": "a"}\n', "a.json cannot be read: it begins as an array, but is not valid JSON"),
        ("a.jsonl", b'["a"]\n', "a.jsonl cannot be read: element 0 of the array is not an object"),
        ("a.jsonl", b'{"text": "\xff"}\n', "a.jsonl cannot be read: line 1 is not valid UTF-8"),
        ("a.jsonl.gz", b"not compressed", "a.jsonl.gz cannot be read: .*incorrect header"),
        ("a.tsv.gz", gzip.compress(b"text\n" + b"abc\n" * 99, mtime=0)[:20], "a.tsv.gz cannot be read: "),
        ("a.tsv", b"", "a.tsv has no rows$"),
        ("a.csv", b'text,b\n"one",2,3\n', "a.csv cannot be read: .*has 3 cells, expected 2"),
        ("a.csv", b"text,b\n\xff,2\n", "a.csv cannot be read: .*UTF-8"),
        ("a.tsv", b"\xff\xfe\n", "a.tsv cannot be read: it is UTF-16"),
        ("a.md", b"text\n", "a.md has no suffix of a known format: expected .parquet, .jsonl"),
    ],
)
def test_unreadable(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_examples(str(tmp_path / name), ["text"])


def test_a_manifest_that_names_what_is_gone(tmp_path):
    part = Part(name="gone.parquet", rows=1, bytes=1, sha256="0" * 64)
    (tmp_path / "_manifest.json").write_bytes(Manifest(parts=(part,)).to_json())
    with pytest.raises(DataError, match=r"gone.parquet is missing: the dataset is damaged"):
        read_examples(str(tmp_path), ["text"])
    (tmp_path / "_manifest.json").write_text("{")
    with pytest.raises(DataError, match=r"_manifest.json is damaged: it is not JSON"):
        read_examples(str(tmp_path), ["text"])


def test_empty(tmp_path):
    (tmp_path / "a.jsonl").write_text("")
    (tmp_path / "a.tsv").write_text("text\n")
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "a.parquet")
    for name in ("a.jsonl", "a.tsv", "a.parquet"):
        with pytest.raises(DataError, match=f"{name} has no rows$"):
            read_examples(str(tmp_path / name), ["text"])
    with pytest.raises(DataError, match="has no rows with split = test or x and label = same: it has 4 others"):
        read_examples(write(tmp_path / "b.parquet"), where={"split": ["test", "x"], "label": "same"})


def test_bad_options(tmp_path):
    path = write(tmp_path / "a.parquet")
    with pytest.raises(DataError, match="there is no kind of label 'float': use none, class"):
        read_examples(path, PAIR, "score", "float")
    with pytest.raises(DataError, match="labels of kind 'score' need the name of their column; its columns are sent"):
        read_examples(path, PAIR, kind="score")
    with pytest.raises(DataError, match="labels need a kind"):
        read_examples(path, PAIR, "score")
    with pytest.raises(DataError, match="limit must be at least 1, got 0"):
        read_examples(path, limit=0)
    for wrong in ((5, 0), (0, np.nan)):
        with pytest.raises(DataError, match="label_range must be two numbers, the lower first"):
            read_examples(path, PAIR, "score", "score", label_range=wrong)
    with pytest.raises(DataError, match=r"column 'score' holds double, not \['high'\]"):
        read_examples(path, where={"score": "high"})


def test_take():
    examples = Examples((["a", "b", "c"], ["d", "e", "f"]), np.array([1, 2, 3]), ("x",), "here")
    taken = examples.take(np.array([2, 0, 2]))
    assert taken.texts == (["c", "a", "c"], ["f", "d", "f"])
    assert (taken.labels.tolist(), taken.classes, taken.name) == ([3, 1, 3], ("x",), "here")
    nothing = examples.take(np.array([]))
    assert (len(nothing), nothing.texts, len(nothing.labels)) == (0, ([], []), 0)
    assert Examples((["a"],)).take(np.array([0])).labels is None


def test_columns_of_different_length():
    with pytest.raises(DataError, match="the columns of data differ in length: 2, 1"):
        Examples((["a", "b"], ["c"]))
    with pytest.raises(DataError, match="differ in length: 2, 3"):
        Examples((["a", "b"],), np.zeros(3))
    with pytest.raises(DataError, match="data has no text column"):
        Examples(())


def test_line_breaks_in_quoted_cells_and_names(tmp_path):
    (tmp_path / "a.csv").write_bytes(b'"the\ntext",label\r\n"one\r\ntwo",007\r\n')
    examples = read_examples(str(tmp_path / "a.csv"), ["the\ntext"], "label", "class")
    assert (examples.texts, examples.classes) == ((["one\r\ntwo"],), ("007",))
    (tmp_path / "b.csv").write_text('text,label\n"never closed,1\nlost,2\n')
    with pytest.raises(DataError, match=r"row 0 \(ends in line 3\) has 1 cells, expected 2"):
        read_examples(str(tmp_path / "b.csv"), ["text"])
