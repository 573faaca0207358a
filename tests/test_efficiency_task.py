import time

import numpy as np
import pytest

from sbert_beam import CrossEncoder, SentenceEncoder
from sbert_core.errors import DataError, ModelError
from sbert_core.evaluation import efficiency_task as efficiency
from sbert_core.evaluation.efficiency_task import _sample_pairs, encode_in_order, evaluate_efficiency
from tests.tiny_models import make_transformer

TEXTS = [f"the {a} is {b}" for a in ("fox", "dog", "man", "flute") for b in ("lazy", "quick", "brown and quick", "my")]


class SlowEncoder:
    """Waits for a millisecond per text; the first two texts are nearly the same."""

    def encode(self, texts) -> np.ndarray:
        time.sleep(0.001 * len(texts))
        return np.array(
            [[1, TEXTS.index(text) / 100 if TEXTS.index(text) < 2 else TEXTS.index(text)] for text in texts]
        )


class SlowCross:
    """Waits for two milliseconds per pair, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[tuple[str, str]]] = []

    def predict(self, pairs) -> np.ndarray:
        self.asked.append(list(pairs))
        time.sleep(0.002 * len(pairs))
        return np.zeros(len(pairs))


def test_times_are_measured_and_scaled():
    cross = SlowCross()
    evaluation = evaluate_efficiency(
        SlowEncoder(), cross, [*TEXTS, *TEXTS], sampled_pairs=30, name="some", model="slow"
    )
    assert evaluation.counts == {"sentences": 16, "pairs": 120, "sampled_pairs": 30}
    scores = evaluation.scores
    assert scores["encode_seconds"] >= 0.016
    assert scores["encode_cpu_seconds"] < scores["encode_seconds"]
    assert scores["bi_encoder_seconds"] == scores["encode_seconds"] + scores["search_seconds"]
    assert scores["cross_encoder_sample_seconds"] >= 0.06
    assert scores["cross_encoder_seconds"] == pytest.approx(4 * scores["cross_encoder_sample_seconds"])
    assert evaluation.score == scores["ratio"] == scores["cross_encoder_seconds"] / scores["bi_encoder_seconds"]
    assert "smart_batching" not in scores
    (_, asked) = cross.asked  # the first time it is warmed up
    assert len(set(map(frozenset, asked))) == 30
    assert all(first != second for first, second in asked)


def test_the_best_pair_is_found():
    evaluation = evaluate_efficiency(SlowEncoder(), SlowCross(), TEXTS, sampled_pairs=1)
    near = np.array([[1, 14.0], [1, 15.0]])
    near /= np.linalg.norm(near, axis=1, keepdims=True)
    assert evaluation.scores["best_cosine"] == pytest.approx(near[0] @ near[1], abs=1e-5)


def test_sentences_are_a_sample_drawn_with_a_seed():
    asked = []
    for seed in (0, 0, 1):
        cross = SlowCross()
        evaluation = evaluate_efficiency(SlowEncoder(), cross, TEXTS, sentences=5, sampled_pairs=3, seed=seed)
        assert evaluation.counts == {"sentences": 5, "pairs": 10, "sampled_pairs": 3}
        asked.append(cross.asked[-1])
    assert asked[0] == asked[1] != asked[2]


def test_no_more_than_as_many_as_in_the_paper(monkeypatch):
    monkeypatch.setattr(efficiency, "SENTENCES", 4)
    assert evaluate_efficiency(SlowEncoder(), SlowCross(), TEXTS).counts["sentences"] == 4


def test_every_pair_can_be_drawn():
    pairs = _sample_pairs(50, 50 * 49 // 2, 0)
    assert sorted(map(tuple, pairs.tolist())) == [(a, b) for a in range(50) for b in range(a)]
    far = _sample_pairs(3_000_000, 100, 0)
    assert (far[:, 0] > far[:, 1]).all()
    assert far.min() >= 0
    assert far.max() < 3_000_000


@pytest.mark.parametrize("architecture", ["bert", "mpnet"])
def test_without_smart_batching_vectors_are_the_same(tmp_path, architecture):
    model = make_transformer(tmp_path / "model", architecture)
    encoder = SentenceEncoder.load(model, device="cpu")
    np.testing.assert_allclose(encode_in_order(encoder, TEXTS, 3), encoder.encode(TEXTS), atol=1e-5)
    evaluation = evaluate_efficiency(encoder, CrossEncoder.begin(model, device="cpu"), TEXTS, sampled_pairs=5)
    scores = evaluation.scores
    assert scores["smart_batching"] == scores["in_order_encode_seconds"] / scores["encode_seconds"] > 0


def test_heads_are_part_of_it(default_encoder):
    np.testing.assert_allclose(
        encode_in_order(default_encoder, TEXTS[:5]), default_encoder.encode(TEXTS[:5]), atol=1e-5
    )


def test_int8_is_not_compared_with_float32(tmp_path):
    encoder = SentenceEncoder.load(make_transformer(tmp_path / "model"), device="cpu", precision="int8")
    with pytest.raises(ModelError, match="load the encoder in float32"):
        encode_in_order(encoder, TEXTS)


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        (TEXTS, {"sentences": 17}, r"sentences is 17, but data has 16 distinct texts"),
        (TEXTS, {"sentences": 1}, "sentences is 1, but data has 16 distinct texts: use 2 to 16"),
        (["a", "a"], {}, "has 1 distinct"),
        ([], {}, "has 0 distinct"),
        (TEXTS, {"sampled_pairs": 0}, "sampled_pairs must be at least 1"),
    ],
)
def test_bad_input_is_refused(texts, options, message):
    with pytest.raises(DataError, match=message):
        evaluate_efficiency(SlowEncoder(), SlowCross(), texts, **options)
