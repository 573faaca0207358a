"""The embed job on real shards."""

import subprocess
import sys
import threading

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from apache_beam.internal import pickler
from apache_beam.testing.util import assert_that, equal_to

from pipelines import embed
from pipelines.cli import main
from pipelines.embed_options import EmbedOptions
from pipelines.flags import FlagParser, add_flags, parse_flags
from sbert_core.data.schema import REJECTED
from sbert_core.errors import DataError
from tests.corpora import ADDED, make_table, read_output, run_fake, write_shards
from tests.fake_encoder import FakeEncoder, load_counted, load_fake
from transforms.dataset.batch_coder import RecordBatchCoder
from transforms.dataset.published import PublishDatasets
from transforms.dataset.read_sentences import ReadSentences
from transforms.dataset.slices import InputSlice, inspect_files, read_slice, split_file
from transforms.dataset.write_parts import WriteEmbeddings, slice_part_name
from transforms.encode.encode_sentences import EncodeSentences, _EncodeFn, encode_batch


@pytest.mark.slow
def test_contents(tmp_path):
    """Columns, rows, vectors and metadata; the encoder is loaded once, and shards and slices do not matter."""
    table = make_table(100)
    (tmp_path / "loads").mkdir()
    encode = EncodeSentences(model=str(tmp_path / "loads"), load=load_counted)
    pattern = write_shards(tmp_path / "in", table, 3)
    figures = embed.run(EmbedOptions(input=[pattern], output=str(tmp_path / "out")), encode=encode)
    assert len(list((tmp_path / "loads").iterdir())) == 1
    result = read_output(tmp_path / "out")
    assert result.drop_columns(ADDED).cast(table.schema).equals(table)
    assert [(field.name, field.type) for field in result.schema][:7] == [(f.name, f.type) for f in table.schema]
    assert result.schema.field("embedding").type == pa.list_(pa.field("item", pa.float32(), nullable=False), 4)
    assert not any(result.schema.field(name).nullable for name in ADDED)
    expected = FakeEncoder().encode(table["text"].to_pylist(), details=True)
    np.testing.assert_array_equal(np.stack(result["embedding"].to_numpy(zero_copy_only=False)), expected.embeddings)
    assert result["n_tokens"].to_pylist() == expected.n_tokens.tolist()
    assert result["truncated"].to_pylist() == expected.truncated.tolist()
    assert figures["rows in"] == figures["embedded"] == 100
    for part in (tmp_path / "out" / "embeddings").glob("*.parquet"):
        assert pq.read_schema(part).metadata[b"sbert_beam.fingerprint"] == b"fake"
    run_fake(write_shards(tmp_path / "in2", table, 4), tmp_path / "out2", slice_rows=17)
    assert read_output(tmp_path / "out2").equals(result)


@pytest.mark.slow
def test_rejected_rows(tmp_path):
    table = make_table(50)
    texts = table["text"].to_pylist()
    texts[3], texts[40], texts[41] = None, "poison", "more poison"
    table = table.set_column(1, "text", pa.array(texts))
    figures = run_fake(write_shards(tmp_path / "in", table, 1), tmp_path / "out", slice_rows=30)
    assert (figures["rows in"], figures["embedded"], figures["rejected"]) == (50, 47, 3)
    rejected = pq.read_table(tmp_path / "out" / "rejected").select(REJECTED.names)
    assert sorted(rejected.to_pylist(), key=lambda row: row["row"]) == [
        {"file": "part-000.parquet", "row": 3, "id": "r0003", "reason": "text is null"},
        {"file": "part-000.parquet", "row": 40, "id": "r0040", "reason": "RuntimeError: poisoned"},
        {"file": "part-000.parquet", "row": 41, "id": "r0041", "reason": "RuntimeError: poisoned"},
    ]
    assert read_output(tmp_path / "out")["id"].to_pylist() == [
        f"r{number:04}" for number in range(50) if number not in (3, 40, 41)
    ]


@pytest.mark.slow
def test_all_rows_rejected(tmp_path):
    table = make_table(3).set_column(1, "text", pa.array([None] * 3, pa.string()))
    assert run_fake(write_shards(tmp_path / "in", table, 1), tmp_path / "out")["rejected"] == 3
    assert len(read_output(tmp_path / "out")) == 0


@pytest.mark.slow
def test_empty_file(tmp_path):
    figures = run_fake(write_shards(tmp_path / "in", make_table(1)[:0], 1), tmp_path / "out")
    assert figures["rows in"] == figures["embedded"] == 0


def test_slices_cover_every_row_once(tmp_path):
    pattern = write_shards(tmp_path / "in", make_table(100), 1)
    (file,) = inspect_files([pattern])
    slices = list(split_file(file, slice_rows=17))
    assert [(each.first_row, each.rows) for each in slices] == [
        *((0, 17), (17, 17), (34, 6), (40, 17), (57, 17), (74, 6), (80, 17), (97, 3))
    ]
    assert len({slice_part_name(each, "0" * 64) for each in slices}) == len(slices)
    rows = [row for each in slices for row in read_slice(each)["id"].to_pylist()]
    assert rows == [f"r{number:04}" for number in range(100)]


def test_part_names_of_equal_files_in_two_folders_differ():
    slices = [InputSlice("x", f"{folder}/part.parquet", 0, 0, 0, 1) for folder in "ab"]
    assert slice_part_name(slices[0], "0" * 64) != slice_part_name(slices[1], "0" * 64)


def test_threads_of_a_process_share_the_encoder(tmp_path):
    pickled = pickler.dumps(_EncodeFn(EncodeSentences(model=str(tmp_path), load=load_counted, workers=2)))
    instances = [pickler.loads(pickled) for _ in range(4)]
    threads = [threading.Thread(target=instance.setup) for instance in instances]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(tmp_path.iterdir())) == 1
    assert len({id(instance._encoder) for instance in instances}) == 1


def test_processes_share_the_cores(monkeypatch, tmp_path):
    monkeypatch.setattr("sbert_core.cores.usable_cores", lambda: 8)
    chosen = []
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    for workers in (1, 3, 16):
        _EncodeFn(EncodeSentences(load=load_fake, workers=workers)).setup()
    assert chosen == [8, 2, 1]


@pytest.mark.slow
def test_writing_in_ones_own_pipeline(tmp_path):
    pattern = write_shards(tmp_path / "in", make_table(20), 2)
    with beam.Pipeline("FnApiRunner") as root:
        outputs = root | ReadSentences(patterns=[pattern]) | EncodeSentences(load=load_fake)
        draft = outputs["encoded"] | WriteEmbeddings(folder=str(tmp_path / "out" / "embeddings"))
        _ = (draft,) | PublishDatasets(expected=1)
    assert len(read_output(tmp_path / "out")) == 20


def test_batches_of_ones_own_pipeline():
    batch = pa.record_batch({"question": ["where is it", "hello"]})
    with beam.Pipeline("FnApiRunner") as root:
        outputs = root | beam.Create([batch]) | EncodeSentences(text_column="question", load=load_fake)
        columns = outputs["encoded"] | beam.Map(lambda encoded: tuple(encoded.schema.names))
        assert_that(columns, equal_to([("question", *ADDED)]))


def test_null_text_in_ones_own_pipeline():
    batch = pa.record_batch({"text": ["hello", None]})
    with beam.Pipeline("FnApiRunner") as root:
        outputs = root | beam.Create([batch]) | EncodeSentences(load=load_fake)
        rejected = outputs["rejected"] | beam.FlatMap(lambda rows: [str(row) for row in rows.to_pylist()])
        expected = {"file": "", "row": 1, "id": None, "reason": "text is null"}
        assert_that(rejected, equal_to([str(expected)]))


def test_encoding_nothing():
    encoded, reasons = encode_batch(pa.record_batch({"text": pa.array([], pa.string())}), FakeEncoder())
    assert len(encoded) == 0
    assert reasons == {}


@pytest.mark.parametrize(
    ("break_input", "message"),
    [
        (lambda folder: [path.unlink() for path in folder.iterdir()], "no input files"),
        (lambda folder: (folder / "part-001.parquet").write_bytes(b"PAR1 no"), r"part-001\.parquet cannot be read"),
        (lambda folder: cut(folder / "part-001.parquet"), r"part-001\.parquet cannot be read"),
        (lambda folder: rewrite(folder, lambda t: t.drop_columns(["text"])), r"part-001\.parquet has no column 'text'"),
        (lambda folder: rewrite(folder, lambda t: t.drop_columns(["price"])), "'price' is missing and decimal128"),
        (
            lambda folder: rewrite(folder, lambda t: t.append_column("truncated", [[1] * len(t)])),
            "already has a column",
        ),
        (
            lambda folder: rewrite(folder, lambda t: t.set_column(1, "text", [list(range(len(t)))])),
            "'text' is int64, expected text",
        ),
    ],
)
def test_bad_input_fails_fast(tmp_path, capsys, break_input, message):
    pattern = write_shards(tmp_path / "in", make_table(10), 2)
    break_input(tmp_path / "in")
    with pytest.raises(DataError, match=message):
        run_fake(pattern, tmp_path / "out")
    assert main(["embed", "--input", pattern, "--output", str(tmp_path / "out")]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert not (tmp_path / "out").exists()


def cut(path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def rewrite(folder, change) -> None:
    path = folder / "part-001.parquet"
    pq.write_table(change(pq.read_table(path)), path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required: --input, --output"),
        (["--input", "x", "--output", "y", "--modle", "z"], "unknown flag --modle: did you mean --model?"),
        (
            ["--input", "x", "--output", "y", "--text-column", "z"],
            "unknown flag --text-column: did you mean --text_column",
        ),
        (["--inputt", "x", "--output", "y"], "unknown flag --inputt: did you mean --input?"),
        (["--input", "x", "--output", "y", "--zzzzz=1"], "unknown flag --zzzzz: neither this job nor Beam has it"),
        (["--input", "x", "--output", "y", "--slice_rows", "many"], "invalid int value: 'many'"),
    ],
)
def test_bad_flags(capsys, arguments, message):
    with pytest.raises(SystemExit) as exit_code:
        main(["embed", *arguments])
    assert exit_code.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


@pytest.mark.parametrize("flag", ["--workers", "--slice_rows"])
def test_numbers_out_of_range(capsys, flag):
    assert main(["embed", "--input", "x", "--output", "y", flag, "0"]) == 2
    assert f"{flag} must be at least 1, got 0" in capsys.readouterr().err


@pytest.mark.slow
def test_a_prompt_the_model_does_not_have(tmp_path, capsys):
    pattern = write_shards(tmp_path / "in", make_table(5), 1)
    assert main(["embed", "--input", pattern, "--output", str(tmp_path / "out"), "--prompt_name", "query"]) == 2
    assert "the model has no prompt 'query'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_an_output_that_is_a_file(tmp_path, capsys):
    pattern = write_shards(tmp_path / "in", make_table(5), 1)
    (tmp_path / "out").touch()
    assert main(["embed", "--input", pattern, "--output", str(tmp_path / "out"), "--device", "cpu"]) == 2
    assert "cannot write to" in capsys.readouterr().err


def test_beam_flags_are_passed_on():
    parser = FlagParser()
    add_flags(parser, EmbedOptions)
    arguments = ["--input", "x", "--output", "y", "--runner=FnApiRunner", "--direct_num_workers", "2"]
    options, rest = parse_flags(parser, EmbedOptions, arguments)
    assert options.output == "y"
    assert rest == ["--runner=FnApiRunner", "--direct_num_workers", "2"]


@pytest.mark.slow
def test_help_needs_neither_beam_nor_torch():
    code = (
        "import sys; from pipelines.cli import main\n"
        "try: main(['embed', '--help'])\n"
        "except SystemExit: print({'torch', 'apache_beam'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("set()")


def test_batches_cross_a_shuffle():
    batch = make_table(100).to_batches()[0].slice(3, 5).replace_schema_metadata({b"key": b"value"})
    coder = RecordBatchCoder()
    again = coder.decode(coder.encode(batch))
    assert again.equals(batch, check_metadata=True)
    assert len(coder.encode(batch)) < 5000  # the slice alone
    assert isinstance(beam.coders.registry.get_coder(pa.RecordBatch), RecordBatchCoder)


def test_bad_slice_rows():
    with pytest.raises(DataError, match="slice_rows must be at least 1"):
        ReadSentences(patterns=["x"], slice_rows=0)


@pytest.mark.slow
def test_command_line_with_the_default_model(tmp_path, capsys, default_encoder):
    table = make_table(12)
    pattern = write_shards(tmp_path / "in", table, 2)
    assert main(["embed", "--input", pattern, "--output", str(tmp_path / "out"), "--device", "cpu"]) == 0
    assert "embedded  12" in capsys.readouterr().out
    vectors = np.stack(read_output(tmp_path / "out")["embedding"].to_numpy(zero_copy_only=False))
    np.testing.assert_allclose(vectors, default_encoder.encode(table["text"]), atol=1e-6)
