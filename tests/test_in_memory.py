"""The same neighbours and paraphrases as sentence-transformers, and what each option does."""

import numpy as np
import pytest
import torch
from sentence_transformers.util import paraphrase_mining_embeddings, semantic_search

from sbert_core.errors import DataError
from sbert_core.neighbors.in_memory import Neighbors, find_neighbors, mine_paraphrases
from sbert_core.neighbors.pairs import Pairs


def clustered(n: int, seed: int = 0, dim: int = 32) -> np.ndarray:
    """Vectors of any length around a few centres that are the same for each seed."""
    centers = np.random.default_rng(99).normal(size=(40, dim))
    rng = np.random.default_rng(seed)
    rows = centers[rng.integers(0, 40, n)] + rng.uniform(0.1, 1, (n, 1)) * rng.normal(size=(n, dim))
    return (rows * rng.uniform(0.5, 3, (n, 1))).astype(np.float32)


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    first, second = (rows.astype(np.float64) for rows in (first, second))
    return (first @ second.T) / np.linalg.norm(first, axis=1)[:, None] / np.linalg.norm(second, axis=1)


def listed(pairs: Pairs) -> list[tuple[int, int]]:
    return list(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))


def counts_of(pairs: Pairs) -> int:
    return np.unique(np.concatenate([pairs.first, pairs.second]), return_counts=True)[1].max()


def assert_same_bytes(first: Pairs, second: Pairs) -> None:
    for name in ("first", "second", "scores"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes()


def assert_same_hits(ours: Neighbors, theirs: list[list[dict]]) -> None:
    """Equal, but for neighbours whose scores differ by no more than the rounding."""
    indices = np.array([[hit["corpus_id"] for hit in hits] for hits in theirs])
    np.testing.assert_allclose(ours.scores, [[hit["score"] for hit in hits] for hits in theirs], atol=1e-6)
    assert ours.indices.shape == indices.shape
    assert (ours.indices != indices).mean() < 1e-3


VECTORS = clustered(1000)
OTHERS = clustered(300, seed=1)
FEW = VECTORS[:300]


def test_search_in_a_corpus_like_sentence_transformers():
    theirs = semantic_search(torch.from_numpy(OTHERS), torch.from_numpy(VECTORS), top_k=12)
    ours = find_neighbors(OTHERS, 12, corpus=VECTORS)
    assert ours.indices.dtype == np.int64
    assert ours.scores.dtype == np.float32
    assert_same_hits(ours, theirs)


def test_neighbors_like_sentence_transformers():
    theirs = semantic_search(torch.from_numpy(VECTORS), torch.from_numpy(VECTORS), top_k=11)
    ours = find_neighbors(VECTORS, 10)
    expected = [[hit for hit in hits if hit["corpus_id"] != row] for row, hits in enumerate(theirs)]
    assert_same_hits(ours, expected)


@pytest.mark.parametrize("options", [{"top_k": 5}, {"top_k": 100}, {"top_k": 5, "max_pairs": 1000}])
def test_paraphrases_like_sentence_transformers(options):
    theirs = paraphrase_mining_embeddings(torch.from_numpy(VECTORS), **options)
    ours = mine_paraphrases(VECTORS, **options)
    expected = {(first, second): score for score, first, second in theirs}
    found = dict(zip(listed(ours), ours.scores.tolist(), strict=True))
    assert len(found) == len(ours)
    assert len(found.keys() ^ expected.keys()) <= len(expected) / 1000  # where rounding decides who is the k-th
    assert max(abs(found[pair] - expected[pair]) for pair in found.keys() & expected.keys()) < 1e-6
    assert (np.diff(ours.scores) <= 0).all()
    assert (ours.first < ours.second).all()


def test_k_and_min_score_of_neighbors():
    many, few = find_neighbors(FEW, 20), find_neighbors(FEW, 4)
    np.testing.assert_array_equal(few.indices, many.indices[:, :4])
    near = find_neighbors(FEW, 20, min_score=0.7)
    kept = many.scores >= 0.7
    assert 0 < kept.sum() < kept.size
    np.testing.assert_array_equal(near.indices, np.where(kept, many.indices, -1))
    np.testing.assert_array_equal(near.scores, np.where(kept, many.scores, np.nan))
    assert find_neighbors(FEW).indices.shape == (300, 32)


def test_min_score_of_pairs():
    everything, near = mine_paraphrases(FEW), mine_paraphrases(FEW, min_score=0.7)
    assert 0 < len(near) < len(everything)
    assert_same_bytes(near, everything[everything.scores >= 0.7])


def test_top_k_of_pairs():
    found = find_neighbors(FEW, 3).indices
    expected = {(min(row, other), max(row, other)) for row, others in enumerate(found.tolist()) for other in others}
    assert set(listed(mine_paraphrases(FEW, top_k=3))) == expected
    assert len(mine_paraphrases(FEW, top_k=1000)) == 300 * 299 // 2


@pytest.mark.parametrize("max_pairs", [0, 1, 77])
def test_max_pairs(max_pairs):
    assert_same_bytes(mine_paraphrases(FEW, max_pairs=max_pairs), mine_paraphrases(FEW)[:max_pairs])
    assert len(mine_paraphrases(FEW, max_pairs=max_pairs)) == max_pairs


def test_mutual():
    found = [set(row) for row in find_neighbors(FEW, 3).indices.tolist()]
    plain, mutual = mine_paraphrases(FEW, top_k=3), mine_paraphrases(FEW, top_k=3, mutual=True)
    assert 0 < len(mutual) < len(plain)
    assert listed(mutual) == [(a, b) for a, b in listed(plain) if b in found[a] and a in found[b]]


def test_strict():
    plain, strict = mine_paraphrases(FEW, top_k=3), mine_paraphrases(FEW, top_k=3, strict=True)
    assert counts_of(plain) > 3
    assert counts_of(strict) == 3
    assert set(listed(strict)) < set(listed(plain))
    assert listed(strict)[0] == listed(plain)[0]
    assert_same_bytes(mine_paraphrases(FEW, top_k=3, strict=True, max_pairs=50), strict[:50])


def test_margin():
    means = find_neighbors(FEW, 6).scores.astype(np.float64).mean(axis=1)
    plain, margin = mine_paraphrases(FEW, top_k=6), mine_paraphrases(FEW, top_k=6, margin=True)
    assert set(listed(margin)) == set(listed(plain))
    assert listed(margin) != listed(plain)
    assert (np.diff(margin.scores) <= 0).all()
    expected = cosines(FEW, FEW)[margin.first, margin.second] / (means[margin.first] + means[margin.second]) * 2
    np.testing.assert_allclose(margin.scores, expected, atol=1e-4)


def test_min_score_is_of_the_cosine():
    near = mine_paraphrases(FEW, top_k=6, margin=True, min_score=0.7)
    assert set(listed(near)) == set(listed(mine_paraphrases(FEW, top_k=6, min_score=0.7)))


@pytest.mark.parametrize("mutual", [False, True])
def test_corpus(mutual):
    others = OTHERS[:200]
    forward = find_neighbors(FEW, 4, corpus=others).indices.tolist()
    back = find_neighbors(others, 4, corpus=FEW).indices.tolist()
    one_way = {(row, other) for row, found in enumerate(forward) for other in found}
    other_way = {(row, other) for other, found in enumerate(back) for row in found}
    pairs = mine_paraphrases(FEW, top_k=4, mutual=mutual, corpus=others)
    assert set(listed(pairs)) == (one_way & other_way if mutual else one_way | other_way)
    assert one_way != other_way
    np.testing.assert_allclose(pairs.scores, cosines(FEW, others)[pairs.first, pairs.second], atol=1e-5)
    assert (np.diff(pairs.scores) <= 0).all()


def test_margin_in_a_corpus():
    others = OTHERS[:200]
    first = find_neighbors(FEW, 4, corpus=others).scores.mean(axis=1)
    second = find_neighbors(others, 4, corpus=FEW).scores.mean(axis=1)
    pairs = mine_paraphrases(FEW, top_k=4, margin=True, corpus=others)
    expected = cosines(FEW, others)[pairs.first, pairs.second] / (first[pairs.first] + second[pairs.second]) * 2
    np.testing.assert_allclose(pairs.scores, expected, atol=1e-4)


def test_strict_in_a_corpus():
    pairs = mine_paraphrases(np.eye(2), top_k=1, min_score=0.5, strict=True, corpus=np.eye(2)[::-1])
    assert listed(pairs) == [(0, 1), (1, 0)]


def test_copies_are_neighbors_by_number():
    vectors = np.repeat(np.eye(3), 4, axis=0)
    found = find_neighbors(vectors, 3, min_score=0.5)
    assert found.indices[5].tolist() == [4, 6, 7]
    assert found.indices[0].tolist() == [1, 2, 3]
    assert (found.scores == 1).all()
    assert listed(mine_paraphrases(vectors[:4])) == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]


def test_more_neighbors_than_rows():
    found = find_neighbors(FEW[:3], 5)
    assert (found.indices[:, 2:] == -1).all()
    assert np.isnan(found.scores[:, 2:]).all()
    assert (found.indices[:, :2] >= 0).all()


def test_rows_of_zeros_have_no_neighbors_and_are_none():
    vectors = FEW[:50].copy()
    vectors[[0, 7, 49]] = 0
    not_zero = np.flatnonzero(vectors.any(axis=1))
    found = find_neighbors(vectors, 5)
    np.testing.assert_array_equal(found.indices[not_zero], not_zero[find_neighbors(vectors[not_zero], 5).indices])
    assert (found.indices[[0, 7, 49]] == -1).all()
    assert np.isnan(found.scores[[0, 7, 49]]).all()
    pairs = mine_paraphrases(vectors)
    assert not {0, 7, 49} & {*pairs.first.tolist(), *pairs.second.tolist()}
    in_corpus = mine_paraphrases(FEW[:5], corpus=vectors)
    assert set(in_corpus.second.tolist()) == set(not_zero.tolist())


@pytest.mark.parametrize("vectors", [np.empty((0, 4)), np.ones((1, 4)), np.zeros((3, 4))])
def test_nothing_to_compare(vectors):
    found = find_neighbors(vectors, 2)
    assert found.indices.tolist() == [[-1, -1]] * len(vectors)
    assert found.scores.shape == (len(vectors), 2)
    assert np.isnan(found.scores).all()
    for options in ({}, {"mutual": True}, {"strict": True}, {"margin": True}):
        assert len(mine_paraphrases(vectors, **options)) == 0


@pytest.mark.parametrize("corpus", [np.empty((0, 4)), np.zeros((3, 4))])
def test_an_empty_corpus(corpus):
    assert find_neighbors(np.ones((2, 4)), 1, corpus=corpus).indices.tolist() == [[-1], [-1]]
    assert len(mine_paraphrases(np.ones((2, 4)), corpus=corpus)) == 0
    assert find_neighbors(corpus, 1, corpus=np.ones((2, 4))).indices.tolist() == [[-1]] * len(corpus)


def test_one_row_in_a_corpus_of_one_row():
    assert listed(mine_paraphrases(np.ones((1, 4)), corpus=np.ones((1, 4)))) == [(0, 0)]


@pytest.mark.parametrize("find", [find_neighbors, mine_paraphrases])
def test_wrong_input(find):
    with pytest.raises(DataError, match="4 and 3 dimensions"):
        find(np.ones((2, 4)), corpus=np.ones((2, 3)))
    with pytest.raises(DataError, match=r"shape \(4,\)"):
        find(np.ones(4))
    with pytest.raises(DataError, match=r"shape \(1, 2, 4\)"):
        find(np.ones((2, 4)), corpus=np.ones((1, 2, 4)))
    with pytest.raises(DataError, match=r"row 1 .*not finite"):
        find(np.array([[1, 2], [np.nan, 2]]))


@pytest.mark.parametrize("k", [0, -3])
def test_k_is_at_least_one(k):
    with pytest.raises(DataError, match=f"at least 1, got {k}"):
        find_neighbors(FEW, k)
    with pytest.raises(DataError, match=f"at least 1, got {k}"):
        mine_paraphrases(FEW, top_k=k)


OPTIONS = [
    {},
    {"min_score": 0.5},
    {"mutual": True, "margin": True},
    {"strict": True, "max_pairs": 200},
    {"corpus": OTHERS[:150], "margin": True},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_a_second_run_gives_the_same_bytes(options):
    assert_same_bytes(mine_paraphrases(FEW, top_k=7, **options), mine_paraphrases(FEW, top_k=7, **options))


@pytest.mark.parametrize(
    "options", [{key: value for key, value in case.items() if key != "corpus"} for case in OPTIONS]
)
@pytest.mark.parametrize("corpus", [False, True])
def test_blocks_have_no_effect(options, corpus):
    rng = np.random.default_rng(5)
    vectors = rng.choice(np.float32([-0.25, 0.25]), (80, 16))[rng.integers(0, 80, 260)]  # products without rounding
    vectors[[3, 200]] = 0
    if corpus:
        options = {**options, "corpus": vectors[90:200][::-1]}
    whole, found = (
        mine_paraphrases(vectors, top_k=5, **options),
        find_neighbors(vectors, 5, corpus=options.get("corpus")),
    )
    assert len(whole) > 100
    for block_rows in (259, 64, 17):
        assert_same_bytes(mine_paraphrases(vectors, top_k=5, block_rows=block_rows, **options), whole)
        again = find_neighbors(vectors, 5, corpus=options.get("corpus"), block_rows=block_rows)
        np.testing.assert_array_equal(again.indices, found.indices)
        np.testing.assert_array_equal(again.scores, found.scores)


def test_progress():
    shares = []
    find_neighbors(FEW, 3, progress=shares.append, block_rows=100)
    np.testing.assert_allclose(shares, np.arange(1, 7) / 6)  # three blocks: six block pairs
    shares.clear()
    mine_paraphrases(FEW, corpus=FEW[:101], progress=shares.append, block_rows=100)
    np.testing.assert_allclose(shares, np.arange(1, 7) / 6)
