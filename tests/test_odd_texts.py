"""Unusual texts through the embed command: each is encoded, or rejected with a reason."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.cli import main
from sbert_beam import SentenceEncoder
from tests.corpora import read_output
from tests.tiny_models import make_transformer

pytestmark = pytest.mark.slow

TEXTS = {
    "long": "the quick fox " * 75_000,  # over a megabyte
    "one long word": "x" * 1_100_000,
    "empty": "",
    "spaces": " \t \u00a0 \u2003 ",
    "newlines": "the fox\njumps\r\nover\rthe\u2028lazy\u0085dog",
    "only newlines": "\n\r\n\r",
    "control": "\x01\x02\x1b[31mred\x1b[0m\x7f",
    "nul": "the\x00fox",
    "only nul": "\x00",
    "emoji": "the fox 😀👩‍👩‍👧🏽🇩🇪",
    "right to left": "שלום, עולם \u202eזה\u202c مرحبا",
    "combining": "e\u0301" * 30,
    "invisible": "\u200b\u200d\ufeff\u2060",
    "noncharacters": "\ufffe\uffff\U0010ffff",
    "replacement": "the \ufffd fox",
    "quotes": "\"the\" 'fox', \\n \\ud800 <b>&amp;</b> ${x} %s {0}",
    "plain": "the quick brown fox",
}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return str(make_transformer(tmp_path_factory.mktemp("tiny")))


@pytest.fixture
def embed(tmp_path, model):
    """Runs the command on a file and returns what was embedded and what was rejected, by id."""

    def run(path) -> tuple[dict, dict]:
        output = tmp_path / "out"
        assert main(["embed", "--input", str(path), "--output", str(output), "--model", model, "--device", "cpu"]) == 0
        rejected = [row for part in (output / "rejected").glob("*.parquet") for row in pq.read_table(part).to_pylist()]
        embedded = {row["id"]: row for row in read_output(output).to_pylist()}
        return embedded, {row["id"]: row["reason"] for row in rejected}

    return run


def text_array(values: list[bytes], kind: pa.DataType) -> pa.Array:
    """A column of text whose bytes nobody checked."""
    binary = pa.large_binary() if kind == pa.large_string() else pa.binary()
    return pa.Array.from_buffers(kind, len(values), pa.array(values, binary).buffers())


def test_all_are_encoded_unchanged(tmp_path, model, embed):
    pq.write_table(pa.table({"id": list(TEXTS), "text": list(TEXTS.values())}), tmp_path / "odd.parquet")
    embedded, rejected = embed(tmp_path / "odd.parquet")
    assert rejected == {}
    assert {name: row["text"] for name, row in embedded.items()} == TEXTS
    expected = SentenceEncoder.load(model, "cpu").encode(TEXTS.values(), details=True)
    for name, vector, n_tokens in zip(TEXTS, expected.embeddings, expected.n_tokens, strict=True):
        np.testing.assert_allclose(embedded[name]["embedding"], vector, atol=1e-6)
        assert np.isfinite(vector).all()
        assert embedded[name]["n_tokens"] == n_tokens
    truncated = {name for name, row in embedded.items() if row["truncated"]}
    assert {"long", "one long word"} <= truncated
    assert "plain" not in truncated


@pytest.mark.parametrize("kind", [pa.large_string(), "dictionary"])
def test_bytes_that_are_not_utf8_are_rejected(tmp_path, embed, kind):
    values = [b"the fox", b"\xff\xfe", b"caf\xe9", b"\xed\xa0\x80", b"the dog", b"\xc3\xa9"]  # \xed\xa0\x80: U+D800
    texts = text_array(values, pa.string() if kind == "dictionary" else kind)
    texts = pa.concat_arrays([texts, pa.nulls(1, texts.type)])
    if kind == "dictionary":
        texts = texts.dictionary_encode()
    pq.write_table(pa.table({"id": list("abcdefg"), "text": texts}), tmp_path / "odd.parquet")
    embedded, rejected = embed(tmp_path / "odd.parquet")
    assert {name: row["text"] for name, row in embedded.items()} == {"a": "the fox", "e": "the dog", "f": "é"}
    assert rejected == {
        "b": "text is not valid UTF-8: invalid start byte at byte 0",
        "c": "text is not valid UTF-8: unexpected end of data at byte 3",
        "d": "text is not valid UTF-8: invalid continuation byte at byte 0",
        "g": "text is null",
    }


def test_lines_of_text(tmp_path, embed):
    """Bytes that are not UTF-8 become the replacement character in a file that is nothing but text."""
    (tmp_path / "odd.txt").write_bytes(b"the fox\n\nnul \x00\r\na\rb\n\xff\xfe\n   \n\xc3\xa9")
    embedded, rejected = embed(tmp_path / "odd.txt")
    assert rejected == {}
    texts = [row["text"] for _, row in sorted(embedded.items())]
    assert texts == ["the fox", "", "nul \x00", "a\rb", "\ufffd\ufffd", "   ", "é"]


def test_json_lines(tmp_path, embed):
    lines = [b'{"id": "a", "text": "nul \\u0000 \\ud83d\\ude00\\n"}', b'{"id": "c"}']
    (tmp_path / "odd.jsonl").write_bytes(b"\n".join(lines))
    embedded, rejected = embed(tmp_path / "odd.jsonl")
    assert {name: row["text"] for name, row in embedded.items()} == {"a": "nul \x00 😀\n"}
    assert rejected == {"c": "text is null"}


def test_json_in_another_encoding_fails_fast(tmp_path, model, capsys):
    """Which bytes belong to which row cannot be told then, and rows must not vanish into rejected/ one by one."""
    (tmp_path / "odd.jsonl").write_bytes(b'{"text": "the fox"}\n{"text": "\xff"}\n')
    output = tmp_path / "out"
    assert main(["embed", "--input", str(tmp_path / "odd.jsonl"), "--output", str(output), "--model", model]) == 2
    assert "line 2 is not valid UTF-8: see --encoding" in capsys.readouterr().err
    assert not output.exists()


def test_a_lone_surrogate_in_json_fails_fast(tmp_path, model, capsys):
    (tmp_path / "odd.jsonl").write_text('{"text": "the fox"}\n{"text": "the \\ud800 fox"}\n')
    output = tmp_path / "out"
    assert main(["embed", "--input", str(tmp_path / "odd.jsonl"), "--output", str(output), "--model", model]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "odd.jsonl cannot be read" in line
    assert "surrogate" in line
    assert not output.exists()
