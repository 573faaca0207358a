"""Reading sentences: formats, ids, and the types that vectors are stored as."""

import dataclasses
import gzip
import json

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.testing.util import assert_that, equal_to

from pipelines import embed
from pipelines.embed_options import EmbedOptions
from sbert_core.errors import DataError, JobError
from tests.corpora import make_table, read_output, run_fake, write_shards
from tests.fake_encoder import FakeEncoder
from transforms.dataset import duplicate_ids
from transforms.dataset.read_sentences import ReadSentences
from transforms.dataset.slices import inspect_files, read_slice, split_file
from transforms.encode.encode_sentences import EncodeSentences, int8_ranges

TEXTS = [f'line {number}, with "quotes" and ümlauts' for number in range(25)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["corpus.txt.gz", "corpus.jsonl"])
def test_text_formats(tmp_path, name):
    (tmp_path / "in").mkdir()
    lines = TEXTS if ".txt" in name else [json.dumps({"text": text, "n": n}) for n, text in enumerate(TEXTS)]
    content = ("\n".join(lines) + "\n").encode()
    (tmp_path / "in" / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    figures = run_fake(str(tmp_path / "in"), tmp_path / "out", slice_rows=10)
    assert figures["embedded"] == 25
    result = {row["id"]: row["text"] for row in read_output(tmp_path / "out").to_pylist()}
    assert result == {f"{name}#{number}": text for number, text in enumerate(TEXTS)}


@pytest.mark.parametrize("is_inspected", [False, True])
def test_files_are_listed_on_a_worker_unless_they_are_passed(tmp_path, is_inspected):
    pattern = write_shards(tmp_path / "in", make_table(10), 2)
    files = inspect_files([pattern])[:1] if is_inspected else None
    read = ReadSentences(patterns=[pattern], slice_rows=3, files=files)
    with beam.Pipeline("FnApiRunner") as root:
        rows = root | read | beam.Map(len)
        assert_that(rows, equal_to([3, 2] if is_inspected else [3, 2, 3, 2]))


def test_text_lines_are_rows(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_bytes(b"one\r\n\nthree \xff\nlast")
    (file,) = inspect_files([str(path)])
    (input_slice,) = split_file(file)
    assert read_slice(input_slice)["text"].to_pylist() == ["one", "", "three \ufffd", "last"]


def test_unknown_suffix(tmp_path):
    (tmp_path / "corpus.docx").write_text("hello")
    with pytest.raises(DataError, match=r"corpus\.docx has no suffix of a known format"):
        inspect_files([str(tmp_path / "*.docx")])


@pytest.mark.slow
def test_result_of_an_earlier_job(tmp_path):
    run_fake(write_shards(tmp_path / "in", make_table(20), 2), tmp_path / "first")
    folder = tmp_path / "first" / "embeddings"
    pq.write_table(make_table(1), folder / "stale.parquet")
    assert inspect_files([str(folder)]) == inspect_files([f"{folder}/_manifest.json"])
    added = {"embedding_column": "again", "n_tokens_column": "n2", "truncated_column": "t2"}
    assert run_fake(str(folder), tmp_path / "second", **added)["embedded"] == 20
    assert {"embedding", "again", "n2", "t2"} <= set(read_output(tmp_path / "second").schema.names)


def test_made_ids_do_not_depend_on_slices(tmp_path):
    table = make_table(100).drop_columns(["id"])
    files = inspect_files([write_shards(tmp_path / "in", table, 2)])
    texts_by_id = []
    for slice_rows in (7, 8192):
        batches = [read_slice(each) for file in files for each in split_file(file, slice_rows)]
        texts_by_id.append({row["id"]: row["text"] for batch in batches for row in batch.to_pylist()})
    assert texts_by_id[0] == texts_by_id[1]
    assert texts_by_id[0]["part-001.parquet#3"] == table["text"][53].as_py()


@pytest.mark.slow
def test_id_column(tmp_path):
    table = make_table(30).rename_columns({"id": "ticket"}).set_column(0, "ticket", [list(range(30))])
    pattern = write_shards(tmp_path / "in", table, 2)
    run_fake(pattern, tmp_path / "out", id_column="ticket")
    manifest = json.loads((tmp_path / "out" / "embeddings" / "_manifest.json").read_text())
    assert manifest["id_column"] == "ticket"
    with pytest.raises(DataError, match=r"no column 'nope'.*See --id_column"):
        run_fake(pattern, tmp_path / "out2", id_column="nope")


@pytest.mark.slow
def test_duplicate_ids(tmp_path):
    table = make_table(60)
    ids = table["id"].to_pylist()
    ids[55] = ids[12]
    pattern = write_shards(tmp_path / "in", table.set_column(0, "id", pa.array(ids)), 2)
    places = r"part-000\.parquet row 12 and part-001\.parquet row 25"
    message = rf"^ids are not unique: {places} have the same id\. Fix the duplicates, or see --id_column$"
    with pytest.raises(JobError, match=message):
        run_fake(pattern, tmp_path / "out", slice_rows=10)
    assert not list((tmp_path / "out").rglob("_manifest.json"))
    with pytest.raises(JobError, match=message):  # parts that are there already are checked too
        run_fake(pattern, tmp_path / "out", slice_rows=10)


class Crowded:
    """A hash of 64 bits as weak as one of 3 bits."""

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return np.array([len(str(value)) % 8 for value in values], np.uint64)


@pytest.mark.slow
def test_ids_with_the_same_hash_are_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(duplicate_ids, "_hash", Crowded())
    table = make_table(60)
    assert run_fake(write_shards(tmp_path / "in", table, 2), tmp_path / "out", slice_rows=10)["embedded"] == 60
    no_ids = write_shards(tmp_path / "no ids", table.drop_columns(["id"]), 2)
    assert run_fake(no_ids, tmp_path / "made", slice_rows=10)["embedded"] == 60
    ids = table["id"].to_pylist()
    ids[55] = ids[12]
    pattern = write_shards(tmp_path / "twice", table.set_column(0, "id", pa.array(ids)), 2)
    places = r"part-000\.parquet row 12 and part-001\.parquet row 25"
    with pytest.raises(JobError, match=rf"^ids are not unique: {places} have the same id\."):
        run_fake(pattern, tmp_path / "refused", slice_rows=10)


@pytest.mark.parametrize("rows_per_bucket", [7, 2**22])
def test_duplicates_are_found_in_any_number_of_buckets(tmp_path, monkeypatch, rows_per_bucket):
    monkeypatch.setattr(duplicate_ids, "ROWS_PER_BUCKET", rows_per_bucket)
    buckets = duplicate_ids.count_buckets(60)
    assert buckets == -(-60 // rows_per_bucket)
    ids = [f"r{row}" for row in range(59)] + ["r3"]
    (file,) = inspect_files([write_shards(tmp_path, make_table(60).set_column(0, "id", pa.array(ids)), 1)])
    found: dict[int, list] = {}
    for batch in (read_slice(each) for each in split_file(file, 10)):
        for number, block in duplicate_ids.hash_ids(batch, "id", buckets):
            found.setdefault(number, []).append(block)
    assert set(found) == set(range(buckets))
    (message,) = [each for blocks in found.values() for each in duplicate_ids.find_duplicates(blocks)]
    assert message.startswith("ids are not unique: part-000.parquet row 3 and part-000.parquet row 59 have the same id")


def test_the_number_of_buckets_depends_on_the_rows():
    found = [duplicate_ids.count_buckets(rows) for rows in (0, 1, 2**22, 2**22 + 1, 2**40)]
    assert found == [1, 1, 1, 2, duplicate_ids.MAX_BUCKETS]
    assert duplicate_ids.count_buckets(None) == duplicate_ids.BUCKETS_IF_UNKNOWN


@pytest.mark.slow
def test_null_ids(tmp_path):
    table = make_table(6).set_column(0, "id", pa.array(["a", "b", None, "d", "e", "f"]))
    with pytest.raises(JobError, match=r"part-000\.parquet row 2 has no id: column 'id' is null"):
        run_fake(write_shards(tmp_path / "in", table, 1), tmp_path / "out")


def test_folder_without_anything_to_read(tmp_path):
    (tmp_path / "readme.md").touch()
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path, tmp_path / "empty", tmp_path / "nowhere"):
        with pytest.raises(DataError, match=r"no input files: no \.parquet, \.jsonl, \.json, \.csv, \.tsv, \.txt at '"):
            run_fake(str(folder), tmp_path / "out")


class UnitEncoder(FakeEncoder):
    """The vectors of the fake encoder at unit length, which int8 columns can hold."""

    def encode(self, texts, **options):
        encoded = super().encode(texts, **options)
        lengths = np.linalg.norm(encoded.embeddings, axis=1, keepdims=True)
        return dataclasses.replace(encoded, embeddings=encoded.embeddings / lengths)


def load_unit(model, **options) -> UnitEncoder:
    return UnitEncoder()


@pytest.mark.slow
@pytest.mark.parametrize(("stored", "tolerance"), [("float16", 2e-3), ("int8", 0.02)])
def test_stored_types(tmp_path, stored, tolerance):
    pattern = write_shards(tmp_path / "in", make_table(6), 1)
    options = EmbedOptions(input=[pattern], output=str(tmp_path / "out"), stored=stored)
    embed.run(options, encode=embed.make_encode(options, load=load_unit))
    result = read_output(tmp_path / "out")
    column = result["embedding"]
    assert str(column.type.value_type).replace("halffloat", "float16") == stored
    vectors = np.array(column.to_pylist(), dtype=np.float32)
    if stored == "int8":
        low, high = int8_ranges(4)
        vectors = low + (vectors + 128.5) * (high - low) / 255
    exact = UnitEncoder().encode(result["text"].to_pylist(), details=True).embeddings
    cosines = (vectors * exact).sum(axis=1) / np.linalg.norm(vectors, axis=1)
    assert cosines.min() > 1 - tolerance


def test_unknown_stored_type():
    with pytest.raises(ValueError, match="cannot be stored as 'int4'"):
        EncodeSentences(stored="int4", load=FakeEncoder.load)
