"""Faults of a text reject its row; faults of a machine or a model fail the bundle."""

import math
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from pipelines import embed
from pipelines.cli import main
from sbert_core.data.schema import REJECTED
from sbert_core.errors import JobError, ModelError, TextError
from tests.corpora import make_table, read_output, write_shards
from tests.fake_encoder import FakeEncoder, FaultyEncoder
from tests.tiny_models import make_transformer
from transforms.encode.encode_sentences import encode_batch
from transforms.encode.isolate_failures import KNOWN_GOOD_TEXT, MAX_REASON_CHARACTERS, describe_error, is_machine_fault

NAN, INF = math.nan, math.inf


def healthy(texts, call):
    return None


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Runs the embed command with an encoder that fails as told; returns the exit code and the output."""
    table = make_table(50)
    make_encode = embed.make_encode

    def run(fault=healthy, texts=None, slice_rows=30, flags=()):
        if texts is not None:
            used = make_table(len(texts)).set_column(1, "text", pa.array(texts, pa.string()))
            pattern = write_shards(tmp_path / "in", used, 1, row_group_size=slice_rows)
        else:
            pattern = write_shards(tmp_path / "in", table, 1, row_group_size=100)
        encoder = FaultyEncoder(fault)
        monkeypatch.setattr(
            embed, "make_encode", lambda options: make_encode(options, load=lambda model, **more: encoder)
        )
        arguments = ["--input", pattern, "--output", str(tmp_path / "out"), "--slice_rows", str(slice_rows)]
        code = main(["embed", *arguments, *flags])
        printed = capsys.readouterr()
        return code, printed.err if code else printed.out

    return run


def read_rejected(tmp_path) -> list[dict]:
    found = [pq.read_table(path).select(REJECTED.names) for path in (tmp_path / "out" / "rejected").glob("*.parquet")]
    return sorted(pa.concat_tables(found).to_pylist(), key=lambda row: row["row"]) if found else []


def lost_gpu(texts, call):
    if call >= 3:
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered\nCompile with ...")


def broken(texts, call):
    if call >= 3:
        raise ValueError("nothing works any more")


def out_of_memory(texts, call):
    if call >= 3:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")


def out_of_ram(texts, call):
    if call >= 3:
        raise RuntimeError(
            "[enforce fail at alloc_cpu.cpp:118] . DefaultCPUAllocator: can't allocate memory: you tried"
        )


def out_of_python_memory(texts, call):
    if call >= 3:
        raise MemoryError


def wrapped(texts, call):
    if call >= 3:
        try:
            raise RuntimeError("CUDA error: unspecified launch failure")
        except RuntimeError as error:
            raise ValueError("the forward pass failed") from error


def unusable_model(texts, call):
    if call >= 3:
        raise ModelError("the model has no prompt 'x'")


def only_nan(texts, call):
    return dict.fromkeys(texts, NAN) if call >= 3 else None


MACHINE = "the machine failed, not a text, at rows 0 to 9 of a batch: "
PASSING_FAULTS = [
    (lost_gpu, f"{MACHINE}AcceleratorError: CUDA error"),
    (out_of_memory, f"{MACHINE}OutOfMemoryError: CUDA out of memory"),
    (out_of_ram, f"{MACHINE}RuntimeError: .*can't allocate memory"),
    (out_of_python_memory, f"{MACHINE}MemoryError"),
    (wrapped, f"{MACHINE}ValueError: the forward pass failed"),
    (unusable_model, "the model has no prompt 'x' .at rows 0 to 9 of a batch."),
    (broken, "the encoder of this worker is broken: .* row 0 of a batch .*ValueError: nothing works any more"),
    (only_nan, "the encoder of this worker is broken: .* rows 0 to 9 of a batch .*not finite"),
]


def texts_batch(texts: list) -> pa.RecordBatch:
    return pa.record_batch({"text": pa.array(texts, pa.string())})


@pytest.mark.parametrize(("fault", "message"), PASSING_FAULTS)
def test_a_fault_of_the_machine_or_model_fails_the_batch(fault, message):
    encoder = FaultyEncoder(lambda texts, call: fault(texts, 3))
    with pytest.raises((JobError, ModelError), match=message) as failed:
        encode_batch(texts_batch([f"text {number}" for number in range(10)]), encoder)
    assert "\n" not in str(failed.value)


@pytest.mark.slow
def test_a_passing_fault_rejects_nothing(command, tmp_path):
    """The first call tries the encoder, the second encodes the first part, from the third on everything fails."""
    code, printed = command(lost_gpu)
    assert code == 1
    message = "the machine failed, not a text, at part-000.parquet rows 30 to 49: AcceleratorError: CUDA error"
    assert message in printed
    folder = tmp_path / "out" / "embeddings"
    advice = f"Parts done so far (1) are safe in {folder}: the same command continues from them"
    assert printed.strip().endswith(advice)
    assert len(printed.strip().splitlines()) == 1
    assert read_rejected(tmp_path) == []
    code, printed = command()
    assert code == 0
    assert re.search(r"embedded +50\b", printed)
    assert re.search(r"parts kept +1\b", printed)
    assert read_rejected(tmp_path) == []
    assert len(read_output(tmp_path / "out")) == 50


@pytest.mark.parametrize("fault", [lost_gpu, out_of_memory, broken, only_nan])
def test_a_broken_encoder_is_noticed_early(fault):
    encoder = FaultyEncoder(lambda texts, call: fault(texts, 3))
    batch = pa.record_batch({"text": [f"text {number}" for number in range(1024)]})
    with pytest.raises(JobError):
        encode_batch(batch, encoder)
    assert len(encoder.calls) <= 12  # a halving each, then the known-good text


def test_a_fault_that_passes_while_it_is_searched_for_rejects_nothing():
    def passing(texts, call):
        if call <= 5 and texts != [KNOWN_GOOD_TEXT]:  # down to one row, which fails alone once
            raise ValueError("for a moment")

    texts = make_table(50)["text"].to_pylist()
    encoded, reasons = encode_batch(texts_batch(texts), FaultyEncoder(passing))
    assert reasons == {}
    expected = FakeEncoder().encode(texts, details=True).embeddings
    np.testing.assert_array_equal(np.stack(encoded["embedding"].to_numpy(zero_copy_only=False)), expected)
    assert encoded["text"].to_pylist() == texts


@pytest.mark.slow
def test_bad_rows_are_rejected_and_the_others_stay_in_order(command, tmp_path):
    texts = [f"text {number % 20}" for number in range(60)]
    for row in (0, 17, 31, 59):
        texts[row] = f"poison {row % 2}"
    texts[40] = None
    code, _ = command(texts=texts)
    assert code == 0
    reasons = {row["row"]: row["reason"] for row in read_rejected(tmp_path)}
    assert reasons == dict.fromkeys((0, 17, 31, 59), "RuntimeError: poisoned") | {40: "text is null"}
    result = read_output(tmp_path / "out")
    kept = [text for row, text in enumerate(texts) if row not in reasons]
    assert result["text"].to_pylist() == kept
    expected = FakeEncoder().encode(kept, details=True)
    np.testing.assert_array_equal(np.stack(result["embedding"].to_numpy(zero_copy_only=False)), expected.embeddings)
    assert result["n_tokens"].to_pylist() == expected.n_tokens.tolist()


@pytest.mark.parametrize("texts", [["poison"], [None, "poison"], ["poison"] * 3])
def test_a_batch_of_one_text_that_is_bad(texts):
    """Otherwise the job could never finish."""
    _, reasons = encode_batch(texts_batch(texts), FaultyEncoder(healthy))
    bad = {row: "RuntimeError: poisoned" for row, text in enumerate(texts) if text == "poison"}
    assert reasons == bad | {row: "text is null" for row, text in enumerate(texts) if text is None}


@pytest.mark.parametrize(
    ("fault", "text", "reason"),
    [(healthy, "poison {}", "RuntimeError: poisoned"), (None, "nan {}", "the vector is not finite")],
)
def test_a_batch_in_which_no_text_succeeds(fault, text, reason):
    fault = fault or (lambda texts, call: {text: NAN for text in texts if text.startswith("nan")})
    message = f"cannot encode any of the 4 texts at rows 0 to 3 of a batch, although it encodes others: {reason}"
    with pytest.raises(ModelError, match=message):
        encode_batch(texts_batch([text.format(number) for number in range(4)]), FaultyEncoder(fault))


@pytest.mark.parametrize("number", [NAN, INF, -INF])
@pytest.mark.parametrize("stored", ["float32", "float16", "int8"])
def test_vectors_that_are_not_finite(number, stored):
    encoder = FaultyEncoder(lambda texts, call: {"bad": number})
    encoded, reasons = encode_batch(texts_batch(["one", "bad", "two"]), encoder, stored=stored)
    assert reasons == {1: "the vector is not finite"}
    assert encoded["text"].to_pylist() == ["one", "two"]


def test_vectors_that_float16_cannot_hold():
    encoder = FaultyEncoder(lambda texts, call: {"bad": 65520.0})
    encoded, reasons = encode_batch(texts_batch(["one", "bad", "two"]), encoder, stored="float16")
    assert reasons == {1: "the vector is not finite in float16"}
    stored = encoded["embedding"].flatten()
    assert np.isfinite(stored.to_numpy(zero_copy_only=False).astype(np.float32)).all()


def test_a_vector_that_is_not_finite_once():
    encoder = FaultyEncoder(lambda texts, call: {"bad": NAN} if call == 1 else None)
    encoded, reasons = encode_batch(texts_batch(["one", "bad", "two"]), encoder)
    assert reasons == {}
    assert encoded["text"].to_pylist() == ["one", "bad", "two"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (NAN, "has numbers that are not finite: its weights are damaged"),
        (1e30, "gives a vector that is not finite: its weights are damaged"),
    ],
)
def test_a_model_that_gives_nan_is_an_error_before_work(tmp_path, capsys, value, message):
    """Real weights: a folder whose model is spoiled."""
    from safetensors.torch import load_file, save_file

    model = make_transformer(tmp_path / "model")
    (path,) = model.rglob("*.safetensors")
    weights = load_file(path)
    save_file({name: torch.full_like(weight, value) for name, weight in weights.items()}, path, {"format": "pt"})
    pattern = write_shards(tmp_path / "in", make_table(5), 1)
    assert main(["embed", "--input", pattern, "--output", str(tmp_path / "out"), "--model", str(model)]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_model_that_cannot_encode_is_an_error_before_work(command, tmp_path):
    def fault(texts, call):
        raise IndexError("index out of range in self")

    code, printed = command(fault)
    assert code == 2
    assert "the model default was loaded but cannot encode a text: IndexError: index out of range in self" in printed
    assert not (tmp_path / "out").exists()


def test_an_interrupt_is_not_searched_for():
    def interrupt(texts, call):
        raise KeyboardInterrupt

    encoder = FaultyEncoder(interrupt)
    with pytest.raises(KeyboardInterrupt):
        encode_batch(pa.record_batch({"text": ["one", "two"]}), encoder)
    assert len(encoder.calls) == 1


def test_an_error_about_a_text_is_of_that_text():
    def refuse(texts, call):
        if "bad" in texts:
            raise TextError("this is not a text")

    _, reasons = encode_batch(pa.record_batch({"text": ["one", "bad", "two"]}), FaultyEncoder(refuse))
    assert reasons == {1: "TextError: this is not a text"}


@pytest.mark.parametrize("bad", [1, 5])
def test_the_number_of_calls_is_bounded(bad):
    texts = [f"text {number}" for number in range(1024)]
    for row in range(bad):
        texts[97 + 181 * row] = f"poison {row}"
    encoder = FaultyEncoder(healthy)
    encoded, reasons = encode_batch(pa.record_batch({"text": texts}), encoder)
    assert len(reasons) == bad
    assert len(encoded) == 1024 - bad
    assert len(encoder.calls) <= bad * (2 * 10 + 4)


def test_equal_texts_are_searched_for_once():
    texts = ["poison" if number % 2 else f"text {number}" for number in range(1024)]
    encoder = FaultyEncoder(healthy)
    _, reasons = encode_batch(pa.record_batch({"text": texts}), encoder)
    assert len(reasons) == 512
    assert len(encoder.calls) <= 24


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("two\nlines\tand \x00 more"), "ValueError: two lines and more"),
        (ValueError(), "ValueError"),
        (ValueError("in <Model object at 0x7f3bc2d31e50>"), "ValueError: in <Model object at 0x...>"),
        (ValueError("in /home/me/model-3/run.py, line 3"), "ValueError: in run.py, line 3"),
        (ValueError("'/tmp/tmpx81/weights.bin' is bad"), "ValueError: 'weights.bin' is bad"),
        (ValueError(r"C:\Users\me\run.py is bad"), "ValueError: run.py is bad"),
        (ValueError("either/or at https://host/page/3, 1/2"), "ValueError: either/or at https://host/page/3, 1/2"),
        (ValueError("a lone \ud800"), "ValueError: a lone"),
    ],
)
def test_reasons_are_one_line_that_is_the_same_in_every_run(error, line):
    assert describe_error(error) == line


def test_long_reasons_are_cut():
    def fault(texts, call):
        if "bad" in texts:
            raise ValueError(f"cannot read {object()!r}\n" + "x" * 1_000_000)

    found = [encode_batch(texts_batch(["one", "bad", "two"]), FaultyEncoder(fault))[1] for _ in range(2)]
    assert found[0] == found[1]
    assert found[0][1].startswith("ValueError: cannot read <object object at 0x...> xxx")
    assert len(found[0][1]) == MAX_REASON_CHARACTERS


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: device-side assert triggered"),
        RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("MPS backend out of memory (MPS allocated: 9.02 GB)"),
        RuntimeError("HIP error: the operation cannot be performed"),
        RuntimeError("No CUDA GPUs are available"),
        OSError(5, "Input/output error"),
        ConnectionResetError("peer"),
    ],
)
def test_faults_of_a_machine(error):
    assert is_machine_fault(error)


@pytest.mark.parametrize(
    "error", [RuntimeError("poisoned"), IndexError("index out of range"), ValueError("MPS error of a text")]
)
def test_faults_that_may_be_of_a_text(error):
    assert not is_machine_fault(error)
