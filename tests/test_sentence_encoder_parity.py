"""The same numbers as sentence-transformers, for everything that a model folder can describe."""

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as models

from sbert_beam import SentenceEncoder
from sbert_core.encoder.pooling import POOLING_MODES
from tests.peers import assert_same, build
from tests.tiny_models import ARCHITECTURES, make_transformer

THEIR_MODES = {"mean_sqrt_len": "mean_sqrt_len_tokens", "weighted_mean": "weightedmean", "last": "lasttoken"}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture(tmp_path, sentences, architecture):
    reference = build(tmp_path, architecture)
    encoder = SentenceEncoder.load(tmp_path / "st", device="cpu")
    assert_same(encoder.encode(sentences), reference.encode(sentences))


@pytest.mark.parametrize("architecture", ["bert", "t5"])  # one without and one with padding
@pytest.mark.parametrize("mode", POOLING_MODES)
def test_every_pooling_mode(tmp_path, sentences, architecture, mode):
    reference = build(tmp_path, architecture, THEIR_MODES.get(mode, mode))
    encoder = SentenceEncoder.load(tmp_path / "st", device="cpu")
    assert encoder.parts.pooling.modes == (mode,)
    assert_same(encoder.encode(sentences), reference.encode(sentences))


@pytest.mark.parametrize("modes", [("cls", "mean"), ("mean", "max", "cls"), ("lasttoken", "weightedmean")])
def test_concatenated_pooling(tmp_path, sentences, modes):
    reference = build(tmp_path, pooling=modes)
    encoder = SentenceEncoder.load(tmp_path / "st", device="cpu")
    assert encoder.dim == 32 * len(modes)
    assert_same(encoder.encode(sentences), reference.encode(sentences))


def dense(**options) -> models.Dense:
    return models.Dense(in_features=32, out_features=12, **options)


@pytest.mark.parametrize(
    "heads",
    [
        lambda: [models.Normalize()],
        lambda: [dense()],
        lambda: [dense(bias=False, activation_function=torch.nn.Identity()), models.Normalize()],
        lambda: [dense(activation_function=torch.nn.GELU(), use_residual=True)],
        lambda: [models.LayerNorm(32), dense(), models.Normalize()],
    ],
)
def test_heads(tmp_path, sentences, heads):
    reference = build(tmp_path, heads=heads())
    encoder = SentenceEncoder.load(tmp_path / "st", device="cpu")
    assert_same(encoder.encode(sentences), reference.encode(sentences))


def test_prompts(tmp_path, sentences):
    reference = build(tmp_path, prompts={"query": "query: ", "passage": "the dog "})
    encoder = SentenceEncoder.load(tmp_path / "st", device="cpu")
    plain = encoder.encode(sentences)
    for name in ("query", "passage"):
        prompted = encoder.encode(sentences, prompt_name=name)
        assert_same(prompted, reference.encode(sentences, prompt_name=name))
        assert not np.allclose(prompted, plain, atol=1e-3)
    assert_same(encoder.encode(sentences, prompt="fox "), reference.encode(sentences, prompt="fox "))


@pytest.mark.parametrize("mode", ["cls", "mean", "max", "weightedmean", "lasttoken"])
def test_prompt_excluded_from_pooling(tmp_path, sentences, mode):
    reference = build(tmp_path, pooling=mode)
    reference[1].include_prompt = False
    reference.save(str(tmp_path / "st"), create_model_card=False)
    encoder = SentenceEncoder.load(tmp_path / "st", device="cpu")
    texts = [text for text in sentences if text]
    prompted = encoder.encode(texts, prompt="query: ")
    assert_same(prompted, reference.encode(texts, prompt="query: "))
    encoder.parts.pooling.include_prompt = True
    assert np.abs(prompted - encoder.encode(texts, prompt="query: ")).max() > (1e-3 if mode != "lasttoken" else -1)


def test_default_prompt(tmp_path, sentences):
    reference = build(tmp_path, prompts={"query": "query: "})
    reference.default_prompt_name = "query"
    reference.save(str(tmp_path / "st"), create_model_card=False)
    encoder = SentenceEncoder.load(tmp_path / "st", device="cpu")
    assert_same(encoder.encode(sentences), reference.encode(sentences))
    assert_same(encoder.encode(sentences, prompt=""), reference.encode(sentences, prompt=""))


def test_max_seq_length_and_lower_case(tmp_path, sentences):
    make_transformer(tmp_path / "cased", lower_case=False)
    body = models.Transformer(str(tmp_path / "cased"), max_seq_length=9, do_lower_case=True)
    reference = SentenceTransformer(modules=[body, models.Pooling(32)], device="cpu")
    reference.save(str(tmp_path / "st"), create_model_card=False)
    encoder = SentenceEncoder.load(tmp_path / "st", device="cpu")
    assert encoder.max_tokens == 9
    assert_same(encoder.encode(sentences), reference.encode(sentences))
    assert_same(encoder.encode(["WHERE IS MY PARCEL"]), encoder.encode(["where is my parcel"]))


def test_plain_folder_gets_mean_pooling(tmp_path, sentences):
    folder = make_transformer(tmp_path / "hf", "distilbert")
    encoder = SentenceEncoder.load(folder, device="cpu")
    assert encoder.parts.pooling.modes == ("mean",)
    assert_same(encoder.encode(sentences), SentenceTransformer(str(folder), device="cpu").encode(sentences))


def test_matryoshka(tmp_path, sentences):
    reference = build(tmp_path, heads=[models.Normalize()])
    encoder = SentenceEncoder.load(tmp_path / "st", device="cpu", truncate_dim=8)
    vectors = encoder.encode(sentences)
    assert_same(vectors, reference.encode(sentences, truncate_dim=8, normalize_embeddings=True))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


@pytest.mark.slow
def test_default_model(default_encoder, default_reference, sentences):
    texts = [*sentences, "word " * 400]
    ours, theirs = default_encoder.encode(texts), default_reference.encode(texts)
    assert_same(ours, theirs)
    assert (ours * theirs).sum(axis=1).min() > 0.99999
