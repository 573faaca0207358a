"""Columns of every type: as texts, as ids, and as columns that only pass through."""

import datetime
import decimal
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import mine
from pipelines.cli import main
from pipelines.mine_options import MineOptions
from sbert_core.data.columns import comparable_ids, ids_as_text, is_id_type, plain_type
from sbert_core.errors import DataError, JobError
from tests.corpora import ADDED, read_output, run_fake
from transforms.dataset.corpus import open_corpus
from transforms.dataset.ordinals import ids_of
from transforms.dataset.sort_steps import assign_ordinals

ROWS = 4
DAYS = [datetime.date(2024, 1, 3), datetime.date(2024, 1, 2), datetime.date(2025, 1, 1), datetime.date(1969, 5, 5)]
NUMBERS = [3, 1, 2, 0]
PRICES = [decimal.Decimal("3.10"), decimal.Decimal("1.10"), decimal.Decimal("-2.00"), decimal.Decimal("0.01")]
WORDS = ["b", "a" * 40, "", "日本"]
BYTES = [b"\xffbbb", b"aaaa", b"\x00\x00\x00\x00", b"aaab"]
UUIDS = [uuid.UUID(int=number) for number in (9, 5, 7, 1)]


def extension(kind: pa.DataType, values: list) -> pa.Array:
    return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))


ID_COLUMNS = {
    **{str(kind): pa.array(NUMBERS, kind) for kind in (pa.int8(), pa.int64(), pa.uint64())},
    **{
        kind: pa.array(PRICES, getattr(pa, kind)(9, 2))
        for kind in ("decimal32", "decimal64", "decimal128", "decimal256")
    },
    "date": pa.array(DAYS),
    "time": pa.array(NUMBERS, pa.time64("ns")),
    "timestamp": pa.array(NUMBERS, pa.timestamp("us")),
    "timestamp with zone": pa.array(NUMBERS, pa.timestamp("ns", "Europe/Berlin")),
    "duration": pa.array(NUMBERS, pa.duration("ms")),
    "string": pa.array(WORDS),
    "large_string": pa.array(WORDS, pa.large_string()),
    "string_view": pa.array(WORDS, pa.string_view()),
    "dictionary": pa.array(WORDS).dictionary_encode(),
    "binary": pa.array(BYTES),
    "large_binary": pa.array(BYTES, pa.large_binary()),
    "binary_view": pa.array(BYTES, pa.binary_view()),
    "fixed_size_binary": pa.array(BYTES, pa.binary(4)),
    "uuid": extension(pa.uuid(), [each.bytes for each in UUIDS]),
}
OTHER_COLUMNS = {
    "null": pa.nulls(ROWS),
    "bool": pa.array([True, None, False, True]),
    "halffloat": pa.array([1, None, 2, 3], pa.float16()),
    "double": pa.array([1.5, None, float("nan"), float("inf")]),
    "list": pa.array([[1], None, [], [2, None]]),
    "large_list": pa.array([["a"], None, [], ["b"]], pa.large_list(pa.string())),
    "list of views": pa.array([["a"], None, [], ["b" * 40]], pa.list_(pa.string_view())),
    "list_view": pa.array([[1], None, [], [2]], pa.list_view(pa.int32())),
    "fixed_size_list": pa.array([[1, 2]] * ROWS, pa.list_(pa.int32(), 2)),
    "struct": pa.array([{"a": 1, "b": {"c": "x"}}, None, {"a": None, "b": None}, {"a": 2, "b": {"c": None}}]),
    "map": pa.array([[("a", 1)], None, [], [("b", None)]], pa.map_(pa.string(), pa.int32())),
    "list of dictionary": pa.array([["a"], None, [], ["b"]], pa.list_(pa.dictionary(pa.int32(), pa.string()))),
    "json": extension(pa.json_(), ['{"a": 1}', None, "{}", "[]"]),
    "bool8": extension(pa.bool8(), [1, None, 0, 1]),
    "tensor": extension(pa.fixed_shape_tensor(pa.int32(), [2]), [[1, 2]] * ROWS),
    "opaque": extension(pa.opaque(pa.string(), "type", "vendor"), ["a", None, "b", "c"]),
}
TEXT_COLUMNS = {
    "string": pa.array(["one", None, "three", ""]),
    "large_string": pa.array(["one", None, "three", ""], pa.large_string()),
    "string_view": pa.array(["one", None, "three" * 20, ""], pa.string_view()),
    "dictionary": pa.array(["one", None, "three", ""]).dictionary_encode(),
    "dictionary of large": pa.array(["one", None, "one", ""], pa.dictionary(pa.int8(), pa.large_string())),
}


def write(tmp_path, columns: dict) -> str:
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=3)
    return str(path)


def stored(column: pa.Array) -> pa.ChunkedArray:
    """A column as Parquet gives it back, without views."""
    return column.cast(plain_type(column.type)) if column.type != plain_type(column.type) else column


@pytest.mark.slow
def test_other_columns_come_out_equal(tmp_path):
    """With a row to reject, so that the others are filtered."""
    columns = {f"{name} column": column for name, column in {**ID_COLUMNS, **OTHER_COLUMNS}.items()}
    path = write(tmp_path, {"id": ["a", "b", "c", "d"], "text": ["one", "two", None, "four"], **columns})
    assert run_fake(path, tmp_path / "out")["rejected"] == 1
    result = read_output(tmp_path / "out")
    for name, column in columns.items():
        expected = stored(column).take(pa.array([0, 1, 3]))
        assert result[name].type == expected.type, name
        assert str(result[name].to_pylist()) == str(expected.to_pylist()), name
    assert result.schema.names == ["id", "text", *columns, *ADDED]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["string_view", "dictionary of large"])
def test_text_columns(tmp_path, name):
    path = write(tmp_path, {"id": NUMBERS, "text": TEXT_COLUMNS[name]})
    figures = run_fake(path, tmp_path / "out")
    assert (figures["embedded"], figures["rejected"]) == (3, 1)
    texts = {id_: text for id_, text in zip(NUMBERS, TEXT_COLUMNS[name].to_pylist(), strict=True) if text is not None}
    result = read_output(tmp_path / "out")
    assert dict(zip(result["id"].to_pylist(), result["text"].to_pylist(), strict=True)) == texts


@pytest.mark.parametrize("name", [name for name in {**ID_COLUMNS, **OTHER_COLUMNS} if name not in TEXT_COLUMNS])
def test_what_is_no_text_is_refused(tmp_path, capsys, name):
    column = {**ID_COLUMNS, **OTHER_COLUMNS}[name]
    refused(
        tmp_path,
        capsys,
        {"id": NUMBERS, "text": column},
        r"in.parquet: column 'text' is .*, expected text.*text_column",
    )


def refused(tmp_path, capsys, columns, message) -> None:
    path = write(tmp_path, columns)
    with pytest.raises(DataError, match=message):
        run_fake(path, tmp_path / "out")
    assert main(["embed", "--input", path, "--output", str(tmp_path / "out")]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", [name for name in OTHER_COLUMNS if name != "bool"])
def test_what_cannot_identify_rows_is_refused(tmp_path, capsys, name):
    columns = {"id": OTHER_COLUMNS[name], "text": ["a"] * ROWS}
    message = r"in.parquet: column 'id' is .*, which cannot identify rows: expected text, .*id_column"
    refused(tmp_path, capsys, columns, message)


@pytest.mark.parametrize("name", ID_COLUMNS)
def test_ids_are_distinct(name):
    ids = ID_COLUMNS[name]
    ids = ids.cast(plain_type(ids.type))
    assert is_id_type(ids.type)
    texts = ids_as_text(ids)
    assert texts.type == pa.string()
    assert len(set(texts.to_pylist())) == ROWS
    compared = comparable_ids(ids)
    assert len(compared.unique()) == ROWS
    pa.compute.sort_indices(compared)


def test_ids_as_text():
    assert ids_as_text(ID_COLUMNS["uuid"]).to_pylist() == [str(each) for each in UUIDS]
    assert ids_as_text(ID_COLUMNS["binary"]).to_pylist() == [each.hex() for each in BYTES]
    assert ids_as_text(ID_COLUMNS["decimal64"]).to_pylist() == ["3.10", "1.10", "-2.00", "0.01"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["uuid", "decimal64", "dictionary"])
def test_jobs_with_odd_ids(tmp_path, name):
    ids = ID_COLUMNS[name]
    path = write(tmp_path, {"id": ids, "text": ["one", "two", "three", None]})
    assert run_fake(path, tmp_path / "out")["embedded"] == 3
    rejected = pq.read_table(tmp_path / "out" / "rejected")
    assert rejected["id"].to_pylist() == ids_as_text(stored(ids)).to_pylist()[3:]
    mine.run(MineOptions(input=f"{tmp_path}/out/embeddings", output=str(tmp_path / "out"), min_score=-1.0))
    neighbors = pq.read_table(tmp_path / "out" / "neighbors")
    assert set(neighbors["neighbor_id"].to_pylist()) == set(ids.to_pylist()[:3])


@pytest.mark.slow
def test_odd_ids_that_occur_twice(tmp_path):
    ids = ID_COLUMNS["uuid"].take(pa.array([0, 1, 0]))
    with pytest.raises(JobError, match=r"ids are not unique: in.parquet row 0 and in.parquet row 2"):
        run_fake(write(tmp_path, {"id": ids, "text": ["a", "b", "c"]}), tmp_path / "out")


def test_ordinals_of_odd_ids(tmp_path):
    vectors = pa.array(np.eye(ROWS, dtype=np.float32).tolist(), pa.list_(pa.float32(), ROWS))
    for name, ids in ID_COLUMNS.items():
        path = write(tmp_path, {"id": ids, "text": ["a"] * ROWS, "embedding": vectors})
        corpus = assign_ordinals(open_corpus(path), str(tmp_path / f"work {name}"))
        found = ids_of(corpus, np.arange(corpus.rows)).to_pylist()
        assert sorted(map(str, found)) == sorted(map(str, stored(ids).to_pylist())), name
        if name != "dictionary":
            assert found == sorted(found), name


def test_two_columns_of_one_name(tmp_path, capsys):
    table = pa.table([pa.array(["a"]), pa.array(["b"]), pa.array([1])], names=["text", "text", "id"])
    pq.write_table(table, tmp_path / "in.parquet")
    with pytest.raises(DataError, match=r"in.parquet has two columns 'text': rename one of them"):
        run_fake(str(tmp_path / "in.parquet"), tmp_path / "out")
    assert main(["embed", "--input", str(tmp_path / "in.parquet"), "--output", str(tmp_path / "out")]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_what_parquet_cannot_store_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a", "extra": {}}\n')
    with pytest.raises(DataError, match=r"a.jsonl: column 'extra' is struct<>, which Parquet cannot store: remove it"):
        run_fake(str(tmp_path / "a.jsonl"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_texts_that_are_not_utf8_are_rejected(tmp_path):
    raw = pa.array([b"good", b"bad \xff", b"fine"])
    texts = pa.StringArray.from_buffers(3, raw.buffers()[1], raw.buffers()[2])
    figures = run_fake(write(tmp_path, {"id": [1, 2, 3], "text": texts}), tmp_path / "out")
    assert (figures["embedded"], figures["rejected"]) == (2, 1)
    assert figures["first reason"].startswith("in.parquet row 1: text is not valid UTF-8")


@pytest.mark.slow
def test_ids_that_are_not_utf8(tmp_path):
    raw = pa.array([b"good", b"bad \xff", b"fine"])
    ids = pa.StringArray.from_buffers(3, raw.buffers()[1], raw.buffers()[2])
    with pytest.raises(
        JobError, match=r"^in.parquet rows 0 to 2: an id in column 'id' is not valid UTF-8\. See --id_c"
    ):
        run_fake(write(tmp_path, {"id": ids, "text": ["a", "b", "c"]}), tmp_path / "out")
