"""What `encode` promises about any input."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from sbert_beam import ModelError, SentenceEncoder, TextError, calibrate
from sbert_core.encoder.sentence_encoder import choose_device
from sbert_core.encoder.tokenization import MAX_CHARACTERS
from tests.tiny_models import make_transformer

WORDS = ["the", "parcel", "refund", "order", "late", "broken", "thanks", "please", "where", "when", "blue", "invoice"]


@pytest.fixture
def encoder(tmp_path) -> SentenceEncoder:
    return SentenceEncoder.load(make_transformer(tmp_path / "model"), device="cpu")


@pytest.fixture
def seen(encoder, monkeypatch) -> list[int]:
    """Records how many sentences each forward pass gets."""
    sizes: list[int] = []
    forward = encoder._forward

    class Recording:
        pads = forward.pads

        def __call__(self, ids, prompt_tokens):
            sizes.append(len(ids))
            return forward(ids, prompt_tokens)

    monkeypatch.setattr(encoder, "_forward", Recording())
    return sizes


def test_shape_and_type(encoder, sentences):
    vectors = encoder.encode(sentences)
    assert vectors.shape == (len(sentences), encoder.dim)
    assert vectors.dtype == np.float32


def test_no_texts(encoder):
    assert encoder.encode([]).shape == (0, 32)
    details = encoder.encode([], details=True)
    assert len(details.n_tokens) == len(details.truncated) == 0


def test_one_text(encoder, sentences):
    np.testing.assert_allclose(encoder.encode(sentences[:1])[0], encoder.encode(sentences)[0], atol=1e-6)


@pytest.mark.parametrize(
    "kind", [tuple, iter, np.array, pd.Series, pa.array, lambda t: pa.chunked_array([t[:2], t[2:]])]
)
def test_any_iterable_of_str(encoder, sentences, kind):
    np.testing.assert_array_equal(encoder.encode(kind(sentences)), encoder.encode(sentences))


@pytest.mark.parametrize("bad", [None, b"bytes", 3, 1.5, float("nan"), ["list"]])
def test_what_is_not_text_is_named(encoder, seen, bad):
    with pytest.raises(TextError, match=rf"texts\[1\] is {type(bad).__name__}, expected str"):
        encoder.encode(["fine", bad])
    assert seen == []


@pytest.mark.parametrize("bad", ["one string", b"bytes", None, 5, {"a": 1}, {"a"}])
def test_what_is_no_list_is_refused(encoder, bad):
    with pytest.raises(TextError, match="pass a list of str"):
        encoder.encode(bad)


STRANGE = {
    "lone surrogate": "a \ud800 b",
    "empty": "",
    "spaces": " \t\n ",
    "control": "\x00\x01\u200b\ufeff",
    "million characters": "word " * 200_000,
    "one long word": "x" * 300_000,
    "10 MB of emoji": "\U0001f600" * 2_500_000,
    "spelled special tokens": "[PAD] [CLS] [SEP] [PAD]",
    "right to left": "\u202eשלום עולם",
}


@pytest.mark.parametrize("name", STRANGE)
def test_strange_text_harms_nobody(encoder, sentences, name):
    alone = encoder.encode(sentences)
    with_it = encoder.encode([*sentences[:3], STRANGE[name], *sentences[3:]])
    assert np.isfinite(with_it).all()
    np.testing.assert_allclose(np.delete(with_it, 3, axis=0), alone, atol=1e-6)


def test_lone_surrogate_is_the_replacement_character(encoder):
    lone, replaced, pair, emoji = encoder.encode(["the \ud800 fox", "the \ufffd fox", "\ud83d\ude00", "\U0001f600"])
    np.testing.assert_allclose(lone, replaced, atol=1e-6)
    np.testing.assert_allclose(pair, emoji, atol=1e-6)


def test_counts_and_truncation(encoder):
    texts = ["fox", "", "fox " * 22, "fox " * 23, "fox" + " " * MAX_CHARACTERS]
    details = encoder.encode(texts, details=True)
    assert encoder.max_tokens == 24
    assert details.n_tokens.tolist() == [3, 2, 24, 24, 3]
    assert details.truncated.tolist() == [False, False, False, True, True]
    np.testing.assert_allclose(details.embeddings[2], details.embeddings[3], atol=1e-6)


def test_max_tokens_can_be_lowered_not_raised(tmp_path):
    folder = make_transformer(tmp_path)
    assert SentenceEncoder.load(folder, max_tokens=8).max_tokens == 8
    assert SentenceEncoder.load(folder, max_tokens=10_000).max_tokens == 40  # the position table's size
    roberta = make_transformer(tmp_path / "roberta", "roberta")
    assert SentenceEncoder.load(roberta, max_tokens=10_000).max_tokens == 38


def test_longest_text_fits_the_position_table(tmp_path):
    for architecture in ("bert", "roberta", "mpnet", "t5"):
        folder = make_transformer(tmp_path / architecture, architecture)
        encoder = SentenceEncoder.load(folder, max_tokens=10_000)
        assert np.isfinite(encoder.encode(["fox " * 100])).all()


def test_each_distinct_text_is_computed_once(encoder, seen, sentences):
    texts = sentences * 50
    vectors = encoder.encode(texts)
    assert sum(seen) == len(set(sentences))
    np.testing.assert_array_equal(vectors[: len(sentences)], vectors[-len(sentences) :])


def test_order_and_company_do_not_matter(default_encoder):
    random = np.random.default_rng(0)
    texts = [" ".join(random.choice(WORDS, random.integers(1, 60))) for _ in range(150)]
    together = default_encoder.encode(texts)
    for _ in range(2):
        order = random.permutation(len(texts))
        np.testing.assert_allclose(default_encoder.encode([texts[i] for i in order]), together[order], atol=1e-6)
    for row in range(0, len(texts), 30):
        np.testing.assert_allclose(default_encoder.encode([texts[row]])[0], together[row], atol=1e-6)


def test_threads_do_not_matter(default_encoder):
    random = np.random.default_rng(1)
    for _ in range(10):
        texts = [" ".join(random.choice(WORDS, random.integers(1, 40))) for _ in range(random.integers(1, 60))]
        results = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(default_encoder.encode(texts))
        np.testing.assert_array_equal(*results)


def test_batches_hold_the_token_budget(tmp_path, sentences):
    folder = make_transformer(tmp_path)
    whole = SentenceEncoder.load(folder).encode(sentences)
    for batch_tokens in (1, 10, 30):
        split = SentenceEncoder.load(folder, batch_tokens=batch_tokens).encode(sentences)
        np.testing.assert_allclose(split, whole, atol=1e-6)


def test_running_out_of_memory_halves_the_batch(encoder, monkeypatch):
    texts = [f"fox {number}" for number in range(40)]
    expected = encoder.encode(texts)
    forward, sizes = encoder._forward, []

    class Small:
        pads = forward.pads

        def __call__(self, ids, prompt_tokens):
            sizes.append(len(ids))
            if len(ids) > 7:
                raise torch.OutOfMemoryError("out of memory")
            return forward(ids, prompt_tokens)

    monkeypatch.setattr(encoder, "_forward", Small())
    np.testing.assert_allclose(encoder.encode(texts), expected, atol=1e-6)
    assert sizes[:4] == [40, 20, 10, 5]
    assert max(sizes[4:]) <= 7
    encoder.encode(texts)
    assert max(sizes[4:]) <= 7  # a later call does not try the large batch again


def test_out_of_memory_on_a_single_text_is_raised(encoder, monkeypatch):
    class Full:
        pads = False

        def __call__(self, ids, prompt_tokens):
            raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(encoder, "_forward", Full())
    with pytest.raises(torch.OutOfMemoryError):
        encoder.encode(["fox", "dog"])


def test_normalize_option(tmp_path, sentences):
    folder = make_transformer(tmp_path / "model")
    raw = SentenceEncoder.load(folder).encode(sentences)
    unit_encoder = SentenceEncoder.load(folder, normalize=True)
    unit = unit_encoder.encode(sentences)
    np.testing.assert_allclose(unit, raw / np.linalg.norm(raw, axis=1, keepdims=True), atol=1e-6)
    unit_encoder.save(tmp_path / "unit")
    np.testing.assert_array_equal(SentenceEncoder.load(tmp_path / "unit").encode(sentences), unit)
    np.testing.assert_array_equal(SentenceEncoder.load(tmp_path / "unit", normalize=False).encode(sentences), raw)


def test_truncating_raw_vectors_does_not_scale_them(tmp_path, sentences):
    folder = make_transformer(tmp_path)
    whole = SentenceEncoder.load(folder).encode(sentences)
    np.testing.assert_array_equal(SentenceEncoder.load(folder, truncate_dim=5).encode(sentences), whole[:, :5])


def test_output_precision(encoder, sentences):
    vectors = encoder.encode(sentences)
    ranges = calibrate(vectors)
    assert encoder.encode(sentences, output_precision="float16").dtype == np.float16
    assert encoder.encode(sentences, output_precision="int8", ranges=ranges).dtype == np.int8
    assert encoder.encode(sentences, output_precision="ubinary").shape == (len(sentences), 4)


def test_progress(encoder, sentences, capsys, monkeypatch):
    monkeypatch.setattr("sbert_core.progress.LINE_SECONDS", 0)
    encoder.encode(sentences)
    assert capsys.readouterr().err == ""
    encoder.encode(sentences, progress=True)
    assert "encode: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"truncate_dim": 33}, "between 1 and the model's 32, got 33"),
        ({"truncate_dim": 0}, "between 1 and the model's 32, got 0"),
        ({"precision": "int4"}, "precision 'int4' is not known"),
        ({"batch_tokens": -1}, "batch_tokens must be at least 1"),
        ({"max_tokens": 0}, "max_tokens must be at least 1, got 0"),
        ({"max_tokens": -4}, "max_tokens must be at least 1, got -4"),
        ({"device": "gpu"}, "device 'gpu' is not known"),
    ],
)
def test_bad_options(tmp_path, options, message):
    with pytest.raises(ModelError, match=message):
        SentenceEncoder.load(make_transformer(tmp_path), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt_name": "query"}, "no prompt 'query'; it has: none"),
        ({"prompt_name": "query", "prompt": "q"}, "not both"),
    ],
)
def test_bad_prompts(encoder, options, message):
    with pytest.raises(ModelError, match=message):
        encoder.encode(["fox"], **options)


@pytest.mark.parametrize(
    ("cuda", "mps", "expected"),
    [(True, True, "cuda"), (True, False, "cuda"), (False, True, "mps"), (False, False, "cpu")],
)
def test_auto_device(monkeypatch, cuda, mps, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert choose_device("auto").type == expected


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_cuda_without_a_gpu(tmp_path):
    with pytest.raises(ModelError, match="torch finds no GPU here"):
        SentenceEncoder.load(make_transformer(tmp_path), device="cuda")


def test_prompt_that_is_not_text(encoder):
    with pytest.raises(TextError, match="prompt is int"):
        encoder.encode(["fox"], prompt=5)


def test_save_where_something_else_is(encoder, tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").touch()
    for target in (tmp_path / "notes", tmp_path / "notes" / "mine.txt"):
        with pytest.raises(ModelError, match="is not a model folder: choose another"):
            encoder.save(target)


def test_save_does_not_forget_dimensions(tmp_path):
    encoder = SentenceEncoder.load(make_transformer(tmp_path / "model"), truncate_dim=8)
    with pytest.raises(ModelError, match="cannot say truncate_dim"):
        encoder.save(tmp_path / "saved")


def test_repr(encoder):
    assert repr(encoder) == "SentenceEncoder(BertModel, dim=32, device=cpu, precision=float32)"


def test_half_precision_is_close(tmp_path, sentences):
    folder = make_transformer(tmp_path / "model")
    half = SentenceEncoder.load(folder, device="cpu", precision="bfloat16", normalize=True)
    full = SentenceEncoder.load(folder, device="cpu", normalize=True)
    assert half.encode(sentences).dtype == np.float32
    assert (half.encode(sentences) * full.encode(sentences)).sum(axis=1).min() > 0.99
    assert half.fingerprint != full.fingerprint
    with pytest.raises(ModelError, match="load it in float32 to save it"):
        half.save(tmp_path / "saved")
