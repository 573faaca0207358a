"""One policy of pairs, whether they are merged at once or in buckets."""

import numpy as np
import pytest

from sbert_core.errors import DataError
from sbert_core.neighbors.candidates import pack
from sbert_core.neighbors.pair_policy import PairPolicy
from sbert_core.neighbors.pairs import Pairs, mean_scores, pairs_of

K = 4


def random_candidates(n_rows: int = 60) -> np.ndarray:
    """The K nearest of each row by random symmetric scores."""
    scores = np.random.default_rng(0).random((n_rows, n_rows)).astype(np.float32)
    scores = np.maximum(scores, scores.T)
    np.fill_diagonal(scores, -1)
    nearest = np.argsort(-scores, axis=1)[:, :K]
    return pack(np.take_along_axis(scores, nearest, axis=1), nearest.astype(np.uint32))


CANDIDATES = random_candidates()
ORDINALS = np.arange(len(CANDIDATES), dtype=np.uint32)
MEANS = mean_scores(CANDIDATES)


def listed(pairs: Pairs) -> list[tuple[int, int, float]]:
    return list(zip(pairs.first.tolist(), pairs.second.tolist(), pairs.scores.tolist(), strict=True))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"min_score": 0.98},
        {"max_pairs": 10},
        {"mutual": True, "max_pairs": 10},
        {"strict": True, "max_pairs": 10},
        {"margin": True, "max_pairs": 10},
        {"max_lexical_overlap": 0.5, "max_pairs": 10},
    ],
)
def test_buckets_have_no_effect(settings):
    policy = PairPolicy(**settings)
    pairs = policy.pairs_of_rows(CANDIDATES, ORDINALS)
    overlap_of = np.random.default_rng(1).random((60, 60))
    results = []
    for buckets in ([pairs], [pairs[pairs.first % 3 == bucket] for bucket in range(3)]):
        scored = policy.score([policy.merge([bucket]) for bucket in buckets], MEANS, MEANS)
        overlaps = overlap_of[scored.pairs.first, scored.pairs.second]
        keep = policy.select(scored.pairs, K, one_corpus=True, overlaps=overlaps)
        results.append(scored[keep])
    assert 0 < len(results[0].pairs) <= policy.max_pairs
    assert listed(results[0].pairs) == listed(results[1].pairs)
    assert results[0].cosines.tolist() == results[1].cosines.tolist()


def test_the_minimum_score_is_a_cosine_also_with_margin():
    assert PairPolicy(min_score=0.5).min_neighbor_score == 0.5
    assert PairPolicy(min_score=0.5, margin=True).min_neighbor_score == -np.inf
    pairs = PairPolicy(min_score=0.98, margin=True).pairs_of_rows(CANDIDATES, ORDINALS)
    assert listed(pairs) == [pair for pair in listed(pairs_of(CANDIDATES, ORDINALS)) if pair[2] >= np.float32(0.98)]


def test_cosines_stay_beside_margins():
    policy = PairPolicy(margin=True)
    scored = policy.score([policy.merge([policy.pairs_of_rows(CANDIDATES, ORDINALS)])], MEANS, MEANS)
    expected = scored.cosines / ((MEANS[scored.pairs.first] + MEANS[scored.pairs.second]) / 2)
    np.testing.assert_allclose(scored.pairs.scores, expected, rtol=1e-6)
    assert (np.diff(scored.pairs.scores) <= 0).all()


@pytest.mark.parametrize("settings", [{"max_pairs": -1}, {"max_lexical_overlap": 2.0}, {"max_lexical_overlap": -0.1}])
def test_impossible_settings(settings):
    (name,) = settings
    with pytest.raises(DataError, match=name):
        PairPolicy(**settings)
