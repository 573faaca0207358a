"""Inputs of every kind, ids, and columns that are in the way."""

import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from pipelines import embed
from pipelines.embed_options import EmbedOptions
from sbert_core.errors import DataError, JobError
from tests.corpora import make_table, read_output, run_fake, write_shards
from tests.fake_encoder import FakeEncoder, load_fake
from transforms.dataset.slices import inspect_files, read_task, split_file
from transforms.encode.encode_sentences import EncodeSentences, int8_ranges

TEXTS = [f'line {number}, with "quotes" and ümlauts' for number in range(25)]


def write_text(path):
    path.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")


def write_jsonl(path):
    path.write_text("".join(json.dumps({"text": text, "n": n}) + "\n" for n, text in enumerate(TEXTS)))


def write_csv(path):
    pa.csv.write_csv(pa.table({"text": TEXTS, "n": range(25)}), path)


@pytest.mark.parametrize(
    ("name", "write"), [("corpus.txt", write_text), ("corpus.jsonl", write_jsonl), ("corpus.csv", write_csv)]
)
@pytest.mark.parametrize("compressed", [False, True])
def test_text_formats(tmp_path, name, write, compressed):
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / name)
    if compressed:
        content = (tmp_path / "in" / name).read_bytes()
        (tmp_path / "in" / name).unlink()
        name += ".gz"
        (tmp_path / "in" / name).write_bytes(gzip.compress(content))
    figures = run_fake(str(tmp_path / "in"), tmp_path / "out", slice_rows=10)
    assert figures["embedded"] == 25
    result = {row["id"]: row["text"] for row in read_output(tmp_path / "out").to_pylist()}
    assert result == {f"{name}#{number}": text for number, text in enumerate(TEXTS)}


def test_text_lines_are_rows(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_bytes(b"one\r\n\nthree \xff\nlast")
    (file,) = inspect_files([str(path)])
    (task,) = split_file(file)
    assert read_task(task)["text"].to_pylist() == ["one", "", "three \ufffd", "last"]


def test_unknown_suffix(tmp_path):
    (tmp_path / "corpus.docx").write_text("hello")
    with pytest.raises(DataError, match=r"corpus\.docx has no suffix this job knows"):
        run_fake(str(tmp_path / "*.docx"), tmp_path / "out")


def test_several_inputs_and_a_folder(tmp_path):
    write_shards(tmp_path / "a", make_table(10), 2)
    write_shards(tmp_path / "b", make_table(10, first=10), 1)
    options = EmbedOptions(input=[str(tmp_path / "a"), f"{tmp_path}/b/*.parquet"], output=str(tmp_path / "out"))
    assert embed.run(options, encode=EncodeSentences(load=load_fake))["embedded"] == 20


def test_result_of_an_earlier_job(tmp_path):
    run_fake(write_shards(tmp_path / "in", make_table(20), 2), tmp_path / "first")
    stale = tmp_path / "first" / "embeddings" / "stale.parquet"
    pq.write_table(make_table(1), stale)
    for number, source in enumerate(("embeddings", "embeddings/_manifest.json")):
        figures = run_fake(
            str(tmp_path / "first" / source),
            tmp_path / f"second{number}",
            embedding_column="again",
            n_tokens_column="n2",
            truncated_column="t2",
        )
        assert figures["embedded"] == 20
    assert {"embedding", "again", "n2", "t2"} <= set(read_output(tmp_path / "second0").schema.names)


def test_made_ids_do_not_depend_on_slices(tmp_path):
    table = make_table(100).drop_columns(["id"])
    pattern = write_shards(tmp_path / "in", table, 2)
    ids = []
    for slice_rows in (7, 8192):
        run_fake(pattern, tmp_path / str(slice_rows), slice_rows=slice_rows)
        result = read_output(tmp_path / str(slice_rows))
        ids.append(dict(zip(result["id"].to_pylist(), result["text"].to_pylist(), strict=True)))
    assert ids[0] == ids[1]
    assert ids[0]["part-001.parquet#3"] == table["text"][53].as_py()


def test_equal_names_in_two_folders(tmp_path):
    table = make_table(4).drop_columns(["id"])
    for folder in ("a", "b"):
        write_shards(tmp_path / "in" / folder, table, 1)
    run_fake(f"{tmp_path}/in/*/*.parquet", tmp_path / "out")
    assert read_output(tmp_path / "out")["id"].to_pylist() == [
        f"{folder}/part-000.parquet#{row}" for folder in "ab" for row in range(4)
    ]


def test_id_column(tmp_path):
    table = make_table(30).rename_columns({"id": "ticket"}).set_column(0, "ticket", [list(range(30))])
    pattern = write_shards(tmp_path / "in", table, 2)
    run_fake(pattern, tmp_path / "out", id_column="ticket")
    manifest = json.loads((tmp_path / "out" / "embeddings" / "_manifest.json").read_text())
    assert manifest["id_column"] == "ticket"
    with pytest.raises(DataError, match=r"no column 'nope'.*See --id_column"):
        run_fake(pattern, tmp_path / "out2", id_column="nope")


@pytest.mark.parametrize("slice_rows", [5, 8192])
def test_duplicate_ids(tmp_path, slice_rows):
    table = make_table(60)
    ids = table["id"].to_pylist()
    ids[55] = ids[12]
    pattern = write_shards(tmp_path / "in", table.set_column(0, "id", pa.array(ids)), 2)
    places = r"part-000\.parquet row 12 and part-001\.parquet row 25"
    message = rf"^ids are not unique: {places} have the same\. Mend them, or see --id_column$"
    with pytest.raises(JobError, match=message):
        run_fake(pattern, tmp_path / "out", slice_rows=slice_rows)
    assert not list((tmp_path / "out").rglob("_manifest.json"))
    with pytest.raises(JobError, match=message):  # parts that are there already are checked too
        run_fake(pattern, tmp_path / "out", slice_rows=slice_rows)


def test_null_ids(tmp_path):
    table = make_table(6).set_column(0, "id", pa.array(["a", "b", None, "d", "e", "f"]))
    with pytest.raises(JobError, match=r"part-000\.parquet row 2 has no id: column 'id' is null"):
        run_fake(write_shards(tmp_path / "in", table, 1), tmp_path / "out")


def test_csv_is_not_guessed(tmp_path):
    (tmp_path / "corpus.csv").write_text("id,text,zip\n007,hello,01234\n7,,00001\n")
    run_fake(str(tmp_path / "corpus.csv"), tmp_path / "out")
    rows = read_output(tmp_path / "out").select(["id", "text", "zip"]).to_pylist()
    assert rows == [{"id": "007", "text": "hello", "zip": "01234"}, {"id": "7", "text": "", "zip": "00001"}]


def test_folder_without_anything_to_read(tmp_path):
    (tmp_path / "readme.md").touch()
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path, tmp_path / "empty", tmp_path / "nowhere"):
        with pytest.raises(DataError, match=r"no input files: no \.parquet, \.jsonl, \.json, \.csv, \.tsv, \.txt at '"):
            run_fake(str(folder), tmp_path / "out")


@pytest.mark.parametrize(("stored", "tolerance"), [("float16", 2e-3), ("int8", 0.02)])
def test_stored_types(tmp_path, default_encoder, stored, tolerance):
    table = make_table(6)
    pattern = write_shards(tmp_path / "in", table, 1)
    embed.run(EmbedOptions(input=[pattern], output=str(tmp_path / "out"), stored=stored, device="cpu"))
    column = read_output(tmp_path / "out")["embedding"]
    assert str(column.type.value_type).replace("halffloat", "float16") == stored
    vectors = np.array(column.to_pylist(), dtype=np.float32)
    if stored == "int8":
        low, high = int8_ranges(384)
        vectors = low + (vectors + 128.5) * (high - low) / 255
    exact = default_encoder.encode(table["text"])
    cosines = (vectors * exact).sum(axis=1) / np.linalg.norm(vectors, axis=1)
    assert cosines.min() > 1 - tolerance


def test_unknown_stored_type():
    with pytest.raises(ValueError, match="cannot be stored as 'int4'"):
        EncodeSentences(stored="int4", load=FakeEncoder.load)
