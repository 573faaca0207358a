"""The best k candidates of each row against a plain sort."""

import numpy as np
import pytest
import torch

from sbert_core.neighbors import topk as topk_module
from sbert_core.neighbors.candidates import EMPTY, ordinals_of, pack, scores_of
from sbert_core.neighbors.topk import TopK
from sbert_core.neighbors.unit_vectors import Block, unit_rows


def candidates_of(scores, ordinals) -> np.ndarray:
    return pack(np.array(scores, np.float32), np.array(ordinals, np.uint32))


def collector(candidates: np.ndarray, n_rows: int, k: int, min_score: float = -np.inf) -> TopK:
    """A collector whose rows are [1], and whose source has the vector [score] at the number of each candidate."""
    scores = np.zeros((ordinals_of(candidates).max(initial=0) + 1, 1), np.float32)
    scores[ordinals_of(candidates), 0] = scores_of(candidates)
    topk = TopK(n_rows, k, min_score)
    assert topk.open_source(block_of(np.ones((n_rows, 1), np.float32)), block_of(scores)) == 0
    return topk


def block_of(vectors: np.ndarray, first_ordinal: int = 0) -> Block:
    ordinals = np.arange(first_ordinal, first_ordinal + len(vectors), dtype=np.uint32)
    return Block(torch.from_numpy(vectors), ordinals)


def random_candidates(seed: int, rows: int, count: int, levels: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n,) and candidates (n,) with few different scores; the ordinals of a row differ."""
    rng = np.random.default_rng(seed)
    scores = (np.linspace(-1, 1, levels) * 2**20).round().astype(np.float32) / 2**20
    scores = scores[rng.integers(0, levels, count)]
    return rng.integers(0, rows, count), pack(scores, rng.permutation(count).astype(np.uint32))


def brute_force(rows, candidates, count: int, k: int, min_score: float = -np.inf) -> np.ndarray:
    """The best (score descending, ordinal ascending) of each row, by Python's sort."""
    result = np.zeros((count, k), np.uint64)
    for row in range(count):
        own = candidates[rows == row]
        own = own[scores_of(own) >= np.float32(min_score)]
        order = sorted(range(len(own)), key=lambda n: (-scores_of(own)[n], ordinals_of(own)[n]))
        result[row, : min(k, len(own))] = own[order[:k]]
    return result


def add_in_pieces(topk: TopK, rows: np.ndarray, candidates: np.ndarray, size: int, seed: int = 0) -> None:
    """Adds pieces of `size` in a random order, without candidates below the thresholds."""
    order = np.random.default_rng(seed).permutation(len(rows))
    for start in range(0, len(rows), size):
        piece = order[start : start + size]
        piece = piece[np.argsort(rows[piece], kind="stable")]
        piece = piece[scores_of(candidates[piece]) >= topk.thresholds[rows[piece]]]
        topk.add(rows[piece], candidates[piece])


@pytest.mark.parametrize("k", [1, 8, 9, 40, 300])
@pytest.mark.parametrize("size", [3, 100, 5000])
def test_equals_a_plain_sort(k, size):
    rows, candidates = random_candidates(k, rows=13, count=2000, levels=9)
    topk = collector(candidates, 13, k)
    add_in_pieces(topk, rows, candidates, size)
    np.testing.assert_array_equal(topk.candidates(), brute_force(rows, candidates, 13, k))


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_pieces_does_not_matter(seed):
    rows, candidates = random_candidates(1, rows=5, count=3000, levels=4)
    topk = collector(candidates, 5, 10)
    add_in_pieces(topk, rows, candidates, 1 + 50 * seed, seed)
    np.testing.assert_array_equal(topk.candidates(), brute_force(rows, candidates, 5, 10))


@pytest.mark.parametrize("k", [1, 20, 500])
def test_thousands_of_candidates_for_one_row(k):
    rows, candidates = random_candidates(2, rows=3, count=9000, levels=200)
    rows = np.where(rows == 2, 1, rows)  # row 2 has none
    order = np.argsort(rows, kind="stable")
    topk = collector(candidates, 3, k)
    topk.add(rows[order], candidates[order])
    np.testing.assert_array_equal(topk.candidates(), brute_force(rows, candidates, 3, k))
    assert (topk.candidates()[2] == EMPTY).all()


@pytest.mark.parametrize("ascending", [True, False])
def test_sorted_input(ascending):
    candidates = np.sort(random_candidates(3, 1, 4000, levels=1000)[1])[:: 1 if ascending else -1]
    topk = collector(candidates, 1, 5)
    topk.add(np.zeros(4000, np.int64), candidates)
    np.testing.assert_array_equal(topk.candidates()[0], np.sort(candidates)[::-1][:5])


@pytest.mark.parametrize("min_score", [-0.5, 0.25, 1])
def test_min_score(min_score):
    rows, candidates = random_candidates(4, rows=4, count=1500, levels=9)
    topk = collector(candidates, 4, 30, min_score)
    assert (topk.thresholds == min_score).all()
    add_in_pieces(topk, rows, candidates, 64)
    expected = brute_force(rows, candidates, 4, 30, min_score)
    np.testing.assert_array_equal(topk.candidates(), expected)
    np.testing.assert_array_equal(scores_of(expected)[expected != EMPTY] >= min_score, True)


def test_min_score_applies_to_all_candidates():
    candidates = candidates_of([0.1, 0.7], [0, 1])
    topk = collector(candidates, 1, 5, 0.5)
    topk.add(np.zeros(2, np.int64), candidates)
    assert ordinals_of(topk.candidates()[0, :1]).tolist() == [1]
    assert (topk.candidates()[0, 1:] == EMPTY).all()


@pytest.mark.parametrize("k", [1, 6, 50])
def test_thresholds_rise_and_never_exceed_the_kth_score(k):
    rows, candidates = random_candidates(5, rows=4, count=4000, levels=50)
    topk = collector(candidates, 4, k)
    for start in range(0, 4000, 400):
        piece = np.arange(start, start + 400)
        piece = piece[np.argsort(rows[piece], kind="stable")]
        before = topk.thresholds.copy()
        topk.add(rows[piece], candidates[piece])
        seen = brute_force(rows[: start + 400], candidates[: start + 400], 4, k)[:, -1]
        kth = np.where(seen == EMPTY, -np.inf, scores_of(seen))
        assert (topk.thresholds >= before).all()
        assert (topk.thresholds <= kth).all()
    assert (topk.thresholds > -np.inf).all()  # enough candidates to fill the buffer of each row
    assert topk.common_threshold is None


def test_the_common_threshold_is_kept_until_one_rises():
    candidates = candidates_of(np.linspace(0.25, 1, 101), np.arange(101))
    topk = collector(candidates, 2, 1, 0.25)
    topk.add(np.array([0, 1]), candidates[[50, 100]])
    assert topk.common_threshold == 0.25
    topk.add(np.zeros(100, np.int64), candidates[:100])
    assert topk.common_threshold is None
    assert topk.thresholds[0] > 0.25
    assert topk.thresholds[1] == 0.25


def test_nothing_added():
    topk = TopK(3, 2)
    topk.add(np.empty(0, np.int64), np.empty(0, np.uint64))
    assert topk.candidates().tolist() == [[0, 0]] * 3
    assert TopK(0, 2).candidates().shape == (0, 2)


NEAR = (np.linspace(0.5, 0.501, 400) * 2**26).round().astype(np.float32) / np.float32(2**26)  # scores
SEEDS = range(3)


def add_with_errors(topk: TopK, scores: np.ndarray, numbers: np.ndarray, seed: int, share: float) -> None:
    """Adds candidates of one row in a random order with products that are wrong by a share of the tolerance."""
    rng = np.random.default_rng(seed)
    for number in rng.permutation(len(scores)):
        error = share * topk.tolerance * rng.uniform(-1, 1)
        topk.add(np.zeros(1, np.int64), candidates_of([scores[number] + error], [numbers[number]]))


@pytest.mark.parametrize("k", [1, 7, 40])
@pytest.mark.parametrize("seed", SEEDS)
def test_errors_of_products_have_no_effect(k, seed):
    """The dimension is such that the tolerance spans dozens of candidates, more than the spare slots of small k."""
    own, vectors = np.zeros((1, 1000), np.float32), np.zeros((400, 1000), np.float32)
    own[0, 0], vectors[:, 0] = 1, NEAR
    topk = TopK(1, k)
    topk.open_source(block_of(own), block_of(vectors))
    assert (np.abs(NEAR - NEAR[200]) < topk.tolerance).sum() > 40
    add_with_errors(topk, NEAR, np.arange(400), seed, 0.98)
    assert ordinals_of(topk.candidates()[0]).tolist() == list(range(399, 399 - k, -1))
    assert scores_of(topk.candidates()[0]).tolist() == NEAR[::-1][:k].tolist()


def test_min_score_is_that_of_the_exact_score():
    scores = np.float32([0.5 - 2**-25, 0.5, 0.5 + 2**-24])
    topk = collector(candidates_of(scores, [0, 1, 2]), 1, 5, 0.5)
    topk.add(np.zeros(3, np.int64), candidates_of([0.5 + 2**-24, 0.5 - 2**-25, 0.5 - 2**-25], [0, 1, 2]))
    assert scores_of(topk.candidates()[0, :3]).tolist()[:2] == [0.5 + 2**-24, 0.5]
    assert (topk.candidates()[0, 2:] == EMPTY).all()


@pytest.mark.parametrize("max_source_rows", [1, 25, 10_000])
def test_sources_are_scored_before_they_are_released(monkeypatch, max_source_rows):
    monkeypatch.setattr(topk_module, "MAX_SOURCE_ROWS", max_source_rows)
    rows = unit_rows(np.random.default_rng(0).normal(size=(61, 5)))[0]
    own, sources = block_of(rows[:1]), [block_of(rows[start : start + 10], start) for start in range(1, 61, 10)]
    topk = TopK(1, 4)
    for source in sources:
        first = topk.open_source(own, source)
        products = source.vectors.numpy() @ rows[0]
        topk.add(np.zeros(10, np.int64), pack(products, first + np.arange(10)))
    best = np.argsort(-(rows[1:].astype(float) @ rows[0]))[:4] + 1
    assert ordinals_of(topk.candidates()[0]).tolist() == best.tolist()


def test_a_collector_can_change_its_block():
    rows = unit_rows(np.random.default_rng(0).normal(size=(3, 5)))[0]
    topk = TopK(1, 2)
    for own in (rows[:1], rows[1:2]):
        first = topk.open_source(block_of(own), block_of(rows[2:], 2))
        topk.add(np.zeros(1, np.int64), candidates_of(own[0] @ rows[2], [first]).reshape(1))
    assert scores_of(topk.candidates()[0]) == pytest.approx(sorted((rows[:2] @ rows[2]).tolist(), reverse=True))
