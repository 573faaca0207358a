"""Pairs to label are near or random, each once, and labelled as the cross-encoder says."""

import itertools

import numpy as np
import pytest

from sbert_beam import CrossEncoder, DataError, SentenceEncoder
from sbert_core.data.examples import Examples
from sbert_core.training.augsbert import candidate_pairs, label_pairs
from tests.tiny_models import NLI, TEXTS, edit_json, make_classifier, make_transformer


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> SentenceEncoder:
    return SentenceEncoder.load(make_transformer(tmp_path_factory.mktemp("encoder")), device="cpu")


def sets_of(examples: Examples) -> list[frozenset[str]]:
    return [frozenset(pair) for pair in zip(*examples.texts, strict=True)]


def test_neighbours_are_candidates(encoder):
    found = candidate_pairs(encoder, TEXTS, top_k=2, n_random=0)
    vectors = encoder.encode(TEXTS).astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = vectors @ vectors.T - 2 * np.eye(len(TEXTS))
    expected = {
        frozenset((TEXTS[row], TEXTS[other]))
        for row, near in enumerate(np.argsort(-cosines, axis=1)[:, :2])
        for other in near
    }
    assert set(sets_of(found)) == expected
    assert len(found) == len(expected)
    assert found.labels is None


@pytest.mark.parametrize("n_random", [0, 7, 100, 1700, 10**6])
def test_random_candidates(encoder, n_random):
    near = sets_of(candidate_pairs(encoder, TEXTS, top_k=1, n_random=0))
    found = sets_of(candidate_pairs(encoder, TEXTS, top_k=1, n_random=n_random))
    total = 60 * 59 // 2
    assert len(found) == len(set(found)) == min(total, len(near) + n_random)
    assert found[: len(near)] == near
    assert all(len(pair) == 2 for pair in found)


def test_random_candidates_by_default_and_seed(encoder):
    only = candidate_pairs(encoder, TEXTS, top_k=0)
    assert len(only) == len(TEXTS)
    assert only.texts == candidate_pairs(encoder, TEXTS, top_k=0).texts
    assert only.texts != candidate_pairs(encoder, TEXTS, top_k=0, seed=1).texts


def test_labelled_pairs_are_left_out(encoder):
    gold = Examples((["a fox", "a dog", "a fox"], ["the dog", "a fox", "elsewhere"]))
    texts = ["a fox", "the dog", "a dog", "a fox", " ", "my parcel", ""]
    found = candidate_pairs(encoder, texts, top_k=10, labelled=gold)
    everything = {frozenset(pair) for pair in itertools.combinations(["a fox", "the dog", "a dog", "my parcel"], 2)}
    assert len(found) == 4
    assert set(sets_of(found)) == everything - {frozenset(("a fox", "the dog")), frozenset(("a dog", "a fox"))}
    assert len(candidate_pairs(encoder, texts, top_k=1, n_random=10, labelled=gold)) == 4


@pytest.mark.parametrize("texts", [[], ["one"], ["one", "one", " "]])
def test_too_few_texts(encoder, texts):
    with pytest.raises(DataError, match="pairs need two different texts or more, got"):
        candidate_pairs(encoder, texts)


def test_bad_candidates(encoder):
    with pytest.raises(DataError, match="must not be negative, got -1 and None"):
        candidate_pairs(encoder, TEXTS, top_k=-1)
    with pytest.raises(DataError, match="must not be negative, got 3 and -2"):
        candidate_pairs(encoder, TEXTS, n_random=-2)
    with pytest.raises(DataError, match="gold has 1 text columns: expected pairs"):
        candidate_pairs(encoder, TEXTS, labelled=Examples((["a"],), name="gold"))


@pytest.mark.parametrize("activation", ["Sigmoid", "Identity"])
def test_silver_scores(tmp_path, encoder, activation):
    folder = make_classifier(tmp_path)
    expected = CrossEncoder.load(folder, "cpu")
    edit_json(
        folder / "config.json",
        lambda config: config.update(sentence_transformers={"activation_fn": f"torch.nn.{activation}"}),
    )
    pairs = candidate_pairs(encoder, TEXTS, top_k=1)
    silver = label_pairs(CrossEncoder.load(folder, "cpu"), pairs)
    assert silver.labels.dtype == np.float32
    np.testing.assert_allclose(silver.labels, expected.predict(list(zip(*pairs.texts, strict=True))), atol=1e-6)
    assert silver.texts == pairs.texts


def test_silver_probabilities(tmp_path):
    model = CrossEncoder.load(make_classifier(tmp_path, NLI), "cpu")
    pairs = Examples((["a dog", "a fox"], ["the dog", "my parcel"]), np.array([7, 8]), ("x",), "file")
    silver = label_pairs(model, pairs)
    logits = model.predict([("a dog", "the dog"), ("a fox", "my parcel")])
    np.testing.assert_allclose(silver.labels, np.exp(logits[:, 1]) / np.exp(logits).sum(axis=1), atol=1e-6)
    assert (silver.name, silver.classes) == ("file", ())
    assert label_pairs(model, Examples(([], []))).labels.shape == (0,)
    with pytest.raises(DataError, match="file has 1 text columns: expected pairs"):
        label_pairs(model, Examples((["a"],), name="file"))
