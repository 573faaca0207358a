"""What `encode` promises about any input."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from sbert_beam import ModelError, SentenceEncoder, TextError, calibrate
from sbert_core.encoder.device import choose_device
from sbert_core.encoder.tokenization import MAX_CHARACTERS
from tests.tiny_models import make_transformer

WORDS = ["the", "parcel", "refund", "order", "late", "broken", "thanks", "please", "where", "when", "blue", "invoice"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A model that no test changes."""
    return make_transformer(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def encoder(folder) -> SentenceEncoder:
    return SentenceEncoder.load(folder, device="cpu")


@pytest.fixture
def n_computed(encoder) -> Iterator[list[int]]:
    """Records the number of sentences of each call of the model."""
    sizes: list[int] = []
    embeddings = encoder.parts.body.model.embeddings
    handle = embeddings.register_forward_pre_hook(lambda module, inputs: sizes.append(len(inputs[0])))
    yield sizes
    handle.remove()


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
def test_an_item_that_is_not_text_is_named(encoder, n_computed, bad):
    with pytest.raises(TextError, match=rf"texts\[1\] is {type(bad).__name__}, expected str"):
        encoder.encode(["fine", bad])
    assert n_computed == []


@pytest.mark.parametrize("bad", ["one string", b"bytes", None, 5, {"a": 1}, {"a"}])
def test_an_input_that_is_not_a_list_is_refused(encoder, bad):
    with pytest.raises(TextError, match="pass a list of str"):
        encoder.encode(bad)


UNUSUAL_TEXTS = {
    "lone surrogate": "a \ud800 b",
    "empty": "",
    "spaces": " \t\n ",
    "control": "\x00\x01\u200b\ufeff",
    "long": "word " * 20_000,
    "one long word": "x" * 100_000,
    "emoji": "\U0001f600" * 20_000,
    "special tokens as text": "[PAD] [CLS] [SEP] [PAD]",
    "right to left": "\u202eשלום עולם",
}


def test_an_unusual_text_does_not_affect_the_others(encoder, sentences):
    alone = encoder.encode(sentences)
    together = encoder.encode([*sentences, *UNUSUAL_TEXTS.values()])
    assert np.isfinite(together).all()
    np.testing.assert_allclose(together[: len(sentences)], alone, atol=1e-6)


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


def test_max_tokens_can_be_lowered_not_raised(folder):
    assert SentenceEncoder.load(folder, max_tokens=8).max_tokens == 8
    assert SentenceEncoder.load(folder, max_tokens=10_000).max_tokens == 40  # the size of the position table


# RoBERTa-like models number positions from the padding id, 1 here: two positions are not used.
@pytest.mark.parametrize(("architecture", "max_tokens"), [("bert", 40), ("roberta", 38), ("mpnet", 38), ("t5", 40)])
def test_the_longest_text_fits_the_position_table(tmp_path, architecture, max_tokens):
    encoder = SentenceEncoder.load(make_transformer(tmp_path, architecture), max_tokens=10_000)
    assert encoder.max_tokens == max_tokens
    assert np.isfinite(encoder.encode(["fox " * 100])).all()


def test_each_distinct_text_is_computed_once(encoder, n_computed, sentences):
    vectors = encoder.encode(sentences * 50)
    assert sum(n_computed) == len(set(sentences))
    np.testing.assert_array_equal(vectors[: len(sentences)], vectors[-len(sentences) :])


@pytest.fixture(scope="module")
def random_texts() -> list[str]:
    random = np.random.default_rng(0)
    return [" ".join(random.choice(WORDS, random.integers(1, 60))) for _ in range(40)]


@pytest.fixture(scope="module")
def random_vectors(default_encoder, random_texts) -> np.ndarray:
    return default_encoder.encode(random_texts)


@pytest.mark.slow
def test_order_does_not_matter(default_encoder, random_texts, random_vectors):
    order = np.random.default_rng(1).permutation(len(random_texts))
    shuffled = default_encoder.encode([random_texts[row] for row in order])
    np.testing.assert_allclose(shuffled, random_vectors[order], atol=1e-6)


@pytest.mark.slow
def test_other_texts_do_not_matter(default_encoder, random_texts, random_vectors):
    for rows in (slice(0, 1), slice(17, 18), slice(30, 39)):
        np.testing.assert_allclose(default_encoder.encode(random_texts[rows]), random_vectors[rows], atol=1e-6)


@pytest.mark.slow
def test_threads_do_not_matter(default_encoder):
    random = np.random.default_rng(2)
    texts = [" ".join(random.choice(WORDS, length)) for length in (1, 20, 20, 20, 45, 45)]
    inputs = [texts[:1], texts[3:], texts]  # few lengths: two threads that wait for a busy core are slow
    n_threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        expected = [default_encoder.encode(batch) for batch in inputs]
        torch.set_num_threads(2)
        found = [default_encoder.encode(batch) for batch in inputs]
    finally:
        torch.set_num_threads(n_threads)
    for one_thread, two_threads in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one_thread, two_threads)


def test_the_batch_size_does_not_matter(folder, encoder, sentences):
    for batch_tokens in (1, 30):
        split = SentenceEncoder.load(folder, batch_tokens=batch_tokens).encode(sentences)
        np.testing.assert_allclose(split, encoder.encode(sentences), atol=1e-6)


def test_out_of_memory_halves_the_batch(tmp_path):
    encoder = SentenceEncoder.load(make_transformer(tmp_path, "t5"), device="cpu")  # computed in padded batches
    texts = [f"fox {letter}" for letter in "abcdefghijklmnopqrst"]
    expected = encoder.encode(texts)
    sizes = []

    def fail_on_large_batches(module, inputs):
        sizes.append(len(inputs[0]))
        if len(inputs[0]) > 7:
            raise torch.OutOfMemoryError("out of memory")

    encoder.parts.body.register_forward_pre_hook(fail_on_large_batches)
    np.testing.assert_allclose(encoder.encode(texts), expected, atol=1e-6)
    assert sizes == [20, 10, 5, 5, 5, 5]
    encoder.encode(texts)
    assert sizes[6:] == [5, 5, 5, 5]


def test_normalize_option(folder, encoder, tmp_path, sentences):
    raw = encoder.encode(sentences)
    unit_encoder = SentenceEncoder.load(folder, normalize=True)
    unit = unit_encoder.encode(sentences)
    np.testing.assert_allclose(unit, raw / np.linalg.norm(raw, axis=1, keepdims=True), atol=1e-6)
    unit_encoder.save(tmp_path / "unit")
    np.testing.assert_array_equal(SentenceEncoder.load(tmp_path / "unit").encode(sentences), unit)
    np.testing.assert_array_equal(SentenceEncoder.load(tmp_path / "unit", normalize=False).encode(sentences), raw)


def test_truncating_raw_vectors_does_not_scale_them(folder, encoder, sentences):
    truncated = SentenceEncoder.load(folder, truncate_dim=5).encode(sentences)
    np.testing.assert_array_equal(truncated, encoder.encode(sentences)[:, :5])


def test_output_precision(encoder, sentences):
    vectors = encoder.encode(sentences)
    ranges = calibrate(vectors)
    assert encoder.encode(sentences, output_precision="float16").dtype == np.float16
    assert encoder.encode(sentences, output_precision="int8", ranges=ranges).dtype == np.int8
    assert encoder.encode(sentences, output_precision="ubinary").shape == (len(sentences), 4)


def test_progress(encoder, sentences, capsys, monkeypatch):
    monkeypatch.setattr("sbert_core.progress.LINE_INTERVAL_SECONDS", 0)
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
def test_bad_options(folder, options, message):
    with pytest.raises(ModelError, match=message):
        SentenceEncoder.load(folder, **options)


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
def test_cuda_without_a_gpu(folder):
    with pytest.raises(ModelError, match="torch finds no GPU here"):
        SentenceEncoder.load(folder, device="cuda")


def test_prompt_that_is_not_text(encoder):
    with pytest.raises(TextError, match="prompt is int"):
        encoder.encode(["fox"], prompt=5)


def test_save_refuses_to_overwrite_other_files(encoder, tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").touch()
    for target in (tmp_path / "notes", tmp_path / "notes" / "mine.txt"):
        with pytest.raises(ModelError, match="is not a model folder: choose another"):
            encoder.save(target)


def test_a_truncated_encoder_cannot_be_saved(folder, tmp_path):
    with pytest.raises(ModelError, match="cannot store truncate_dim"):
        SentenceEncoder.load(folder, truncate_dim=8).save(tmp_path / "saved")


def test_repr(encoder):
    assert repr(encoder) == "SentenceEncoder(BertModel, dim=32, device=cpu, precision=float32)"


def test_half_precision_is_close(folder, tmp_path, sentences):
    half = SentenceEncoder.load(folder, device="cpu", precision="bfloat16", normalize=True)
    full = SentenceEncoder.load(folder, device="cpu", normalize=True)
    assert half.encode(sentences).dtype == np.float32
    assert (half.encode(sentences) * full.encode(sentences)).sum(axis=1).min() > 0.99
    assert half.fingerprint != full.fingerprint
    with pytest.raises(ModelError, match="load it in float32 to save it"):
        half.save(tmp_path / "saved")
