"""Mining of duplicates beside sentence-transformers."""

import math

import numpy as np
import pytest
from sentence_transformers.sentence_transformer.evaluation import ParaphraseMiningEvaluator

from sbert_core.errors import DataError
from sbert_core.evaluation.mining_task import evaluate_mining
from tests.evaluation_peers import GivenVectors, draw


def make(rows: int = 60, seed: int = 0):
    """An encoder, texts by id, and gold pairs, some of which are near."""
    encoder, rng = draw(rows, seed=seed), np.random.default_rng(seed + 100)
    gold = [(f"i{row}", f"i{row + 1}") for row in range(0, rows // 2, 2)] + [("i1", "i40"), ("i41", "i1")]
    for row in range(0, rows // 2, 2):
        encoder.vectors[f"text {row + 1}"] = encoder.vectors[f"text {row}"] + rng.normal(size=8) * 0.7
    return encoder, {f"i{row}": f"text {row}" for row in range(rows)}, gold


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("options", [{}, {"top_k": 3}, {"max_pairs": 200}])
def test_figures_are_those_of_sentence_transformers(seed, options):
    encoder, texts, gold = make(seed=seed)
    found = evaluate_mining(encoder, texts, gold, name="here", model="fake", **options)
    peer = ParaphraseMiningEvaluator(texts, gold, write_csv=False, **options)(encoder)
    assert found.scores == pytest.approx(peer, abs=1e-6)
    assert (found.task, found.data, found.model, found.main) == ("mining", "here", "fake", "average_precision")
    assert (found.counts["rows"], found.counts["gold_pairs"]) == (60, 17)
    if not options:
        assert found.counts["mined_pairs"] == 60 * 59 // 2


def test_transitive():
    encoder, texts, gold = make()
    found = evaluate_mining(encoder, texts, gold, transitive=True)
    peer = ParaphraseMiningEvaluator(texts, gold, add_transitive_closure=True, write_csv=False)(encoder)
    assert found.scores == pytest.approx(peer, abs=1e-6)
    assert found.counts["gold_pairs"] == 14 + 6  # i0, i1, i40 and i41 are one group of six pairs
    assert found.scores != evaluate_mining(encoder, texts, gold).scores


def test_perfect_and_hopeless():
    vectors = {"a": [1, 0], "a too": [1, 0.01], "b": [0, 1], "c": [-1, -1]}
    encoder = GivenVectors({text: np.array(vector) for text, vector in vectors.items()})
    texts = {text: text for text in vectors}
    found = evaluate_mining(encoder, texts, [("a too", "a")])
    assert (found.scores["average_precision"], found.scores["f1"], found.counts["gold_pairs"]) == (1, 1, 1)
    hopeless = evaluate_mining(encoder, texts, [("a", "c")], max_pairs=1).scores
    assert (hopeless["average_precision"], hopeless["f1"]) == (0, 0)
    assert math.isnan(hopeless["threshold"])


def test_a_repeated_pair_counts_once():
    encoder, texts, gold = make()
    evaluation = evaluate_mining(encoder, texts, [*gold, *((second, first) for first, second in gold)])
    assert evaluation == evaluate_mining(encoder, texts, gold)


def test_bad_pairs():
    encoder, texts, gold = make()
    with pytest.raises(DataError, match=r"here: 'i99' of the gold pair \('i0', 'i99'\) is not the id of a text"):
        evaluate_mining(encoder, texts, [*gold, ("i0", "i99")], name="here")
    with pytest.raises(DataError, match=r"the gold pair \('i0', 'i0'\) is one text twice"):
        evaluate_mining(encoder, texts, [("i0", "i0")])
    with pytest.raises(DataError, match="data has no gold pairs"):
        evaluate_mining(encoder, texts, [])
    with pytest.raises(DataError, match="is not the id of a text"):
        evaluate_mining(encoder, {}, gold)
