"""Static encoders: the numbers of sentence-transformers' StaticEmbedding."""

import json

import numpy as np
import pytest
import safetensors.numpy
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as their_modules

from sbert_beam import ModelError, SentenceEncoder
from tests.peers import assert_same
from tests.tiny_models import make_tokenizer


def build(folder, *heads) -> SentenceTransformer:
    tokenizer = make_tokenizer().backend_tokenizer
    table = np.random.default_rng(0).normal(size=(tokenizer.get_vocab_size(), 16)).astype(np.float32)
    body = their_modules.StaticEmbedding(tokenizer, embedding_weights=table)
    model = SentenceTransformer(modules=[body, *heads], device="cpu")
    model.save(str(folder), create_model_card=False)
    return model


@pytest.mark.parametrize("heads", [[], [their_modules.Normalize()], [their_modules.Dense(16, 4)]])
def test_parity_and_round_trip(tmp_path, sentences, heads):
    reference = build(tmp_path / "theirs", *heads)
    encoder = SentenceEncoder.load(tmp_path / "theirs", device="cpu")
    texts = [text for text in sentences if text]
    assert_same(encoder.encode(texts), reference.encode(texts))
    assert_same(encoder.encode(texts, prompt="query: "), reference.encode(texts, prompt="query: "))
    encoder.save(tmp_path / "ours")
    assert_same(SentenceTransformer(str(tmp_path / "ours"), device="cpu").encode(texts), encoder.encode(texts))
    assert SentenceEncoder.load(tmp_path / "ours").fingerprint == encoder.fingerprint


def test_a_text_without_tokens_has_the_zero_vector(tmp_path):
    build(tmp_path, their_modules.Normalize())
    encoder = SentenceEncoder.load(tmp_path)
    details = encoder.encode(["", "fox", "  "], details=True)
    assert details.n_tokens.tolist() == [0, 1, 0]
    assert not details.embeddings[[0, 2]].any()
    assert details.embeddings[1].any()


def test_every_token_counts(tmp_path):
    build(tmp_path)
    encoder = SentenceEncoder.load(tmp_path)
    assert encoder.max_tokens is None
    details = encoder.encode(["fox dog " * 5000, "fox dog"], details=True)
    assert details.n_tokens[0] == 5000 * details.n_tokens[1]
    assert not details.truncated.any()
    np.testing.assert_allclose(details.embeddings[0], details.embeddings[1], atol=1e-3)  # a float32 sum of 10,000
    with pytest.raises(ModelError, match="does not apply to a static encoder"):
        SentenceEncoder.load(tmp_path, max_tokens=5)


def test_model2vec_tensors(tmp_path, sentences):
    build(tmp_path)
    random = np.random.default_rng(1)
    size = make_tokenizer().backend_tokenizer.get_vocab_size()
    rows = random.normal(size=(10, 16)).astype(np.float32)
    mapping, weights = random.integers(0, 10, size), random.random(size)
    tensors = {"embeddings": rows, "mapping": mapping, "weights": weights}
    safetensors.numpy.save_file(tensors, tmp_path / "model.safetensors")
    # sentence-transformers saves a static body in a folder of its own or in the root: follow modules.json.
    assert json.loads((tmp_path / "modules.json").read_text())[0]["path"] in ("", "0_StaticEmbedding")
    encoder = SentenceEncoder.load(tmp_path)
    expected = SentenceTransformer(str(tmp_path), device="cpu")
    assert_same(encoder.encode(["fox dog"]), expected.encode(["fox dog"]))


def test_weights_without_a_table(tmp_path):
    build(tmp_path)
    for path in tmp_path.rglob("model.safetensors"):
        safetensors.numpy.save_file({"other": np.zeros(3, np.float32)}, path)
    with pytest.raises(ModelError, match=r"no tensor 'embedding\.weight'"):
        SentenceEncoder.load(tmp_path)
