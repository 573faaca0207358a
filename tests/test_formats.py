"""Jobs, the trainer and the evaluator read the same files, with the same errors."""

import bz2
import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sbert_core.data.formats import compression_of, is_hidden, suffix_of, without_descriptions
from sbert_core.data.tables import column_names, read_table
from sbert_core.errors import DataError
from transforms.dataset.slices import inspect_files, read_rows, split_file

ROWS = [{"text": 'He said "no"'}, {"text": "größer 5"}, {"text": "猫"}]
TEXTS = [row["text"] for row in ROWS]


def write(path) -> str:
    name = path.name.lower()
    if ".parquet" in name:
        pq.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=2)
        return str(path)
    if ".jsonl" in name:
        content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)
    elif ".json" in name:
        content = json.dumps(ROWS, indent=2)
    elif ".csv" in name:
        content = "text\n" + "".join('"' + text.replace('"', '""') + '"\n' for text in TEXTS)
    else:
        content = ("text\n" if ".tsv" in name else "") + "".join(f"{text}\n" for text in TEXTS)
    data = content.encode()
    if path.suffix == ".zst":
        with pa.CompressedOutputStream(str(path), "zstd") as file:
            file.write(data)
    else:
        compress = {".gz": gzip.compress, ".bz2": bz2.compress}.get(path.suffix, bytes)
        path.write_bytes(compress(data))
    return str(path)


def read_as_job(path: str) -> list:
    slices = [each for file in inspect_files([path]) for each in split_file(file, 2)]
    return [text for each in slices for text in read_rows(each, ["text"])["text"].to_pylist()]


def read_as_trainer(path: str) -> list:
    return read_table(path, ["text"]).columns["text"].to_pylist()


NAMES = [
    *("a.parquet", "a.jsonl", "a.json", "a.csv", "a.tsv", "a.txt"),
    *("a.PARQUET", "a.CSV", "a.jsonl.gz", "a.csv.bz2", "a.tsv.zst", "a.txt.gz"),
]


@pytest.mark.parametrize("name", NAMES)
def test_every_format_is_read_alike(tmp_path, name):
    path = write(tmp_path / name)
    assert read_as_job(path) == read_as_trainer(path) == TEXTS
    assert column_names(path) == ["text"]


def test_folders_are_listed_alike(tmp_path):
    (tmp_path / "in" / "b.parquet").mkdir(parents=True)  # as Spark writes them
    for name in ("a.parquet", "b.parquet/part-0.parquet", "_hidden.parquet"):
        write(tmp_path / "in" / name)
    for name in ("notes.md", "dataset_info.json", "b.parquet/_SUCCESS"):
        (tmp_path / "in" / name).write_text("{}")
    for path in (tmp_path / "in", tmp_path / "in/*.parquet"):
        assert read_as_job(str(path)) == read_as_trainer(str(path)) == TEXTS * 2


def test_string_views_are_text(tmp_path):
    pq.write_table(pa.table({"text": pa.array(TEXTS, pa.string_view())}), tmp_path / "a.parquet")
    table = read_table(str(tmp_path / "a.parquet"), ["text"]).columns
    assert (table["text"].type, table["text"].to_pylist()) == (pa.string(), TEXTS)


def test_a_shard_without_content_has_no_rows(tmp_path):
    (tmp_path / "a.csv").touch()
    write(tmp_path / "b.csv")
    assert read_as_job(str(tmp_path)) == read_as_trainer(str(tmp_path)) == TEXTS


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.parquet", b"PAR1 no"),
        ("a.jsonl", b'{"text": }\n'),
        ("a.jsonl", b'{"text": "a"}\n{"text": 3}\n'),
        ("a.json", b"[3]"),
        ("a.csv", b"text,n\na\n"),
        ("a.csv", b'text\n"open\n'),
        ("a.tsv", b"text\n\xff\n"),
        ("a.csv", "text\na\n".encode("utf-16")),
        ("a.csv.gz", b"not compressed"),
    ],
)
def test_errors_are_the_same(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    errors = []
    for read in (read_as_job, read_as_trainer):
        with pytest.raises(DataError, match=f"{tmp_path}/{name} cannot be read: ") as error:
            read(str(tmp_path / name))
        errors.append(str(error.value))
    assert errors[0] == errors[1]


def test_names():
    assert (suffix_of("a/B.CSV.GZ"), suffix_of("x.parquet/"), suffix_of("a.docx")) == (".csv", ".parquet", "")
    assert (compression_of("a.csv.zst"), compression_of("a.csv")) == ("zstd", None)
    assert is_hidden("in/_SUCCESS")
    assert not is_hidden("_in/a.csv")
    assert without_descriptions(["a.json", "b.csv"]) == ["b.csv"]
    assert without_descriptions(["a.json"]) == ["a.json"]
