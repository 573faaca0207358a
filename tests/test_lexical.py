"""Shared words by hand."""

import numpy as np
import pytest

from sbert_core.neighbors.lexical import lexical_overlap, word_matrix


def overlap(first: str, second: str) -> float:
    return lexical_overlap(word_matrix([first, second]), np.array([0]), np.array([1]))[0].item()


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("the cat sat", "the cat ran", 2 / 4),
        ("the cat sat", "sat the cat", 1),
        ("a b c", "d e", 0),
        ("a b", "b c d e", 1 / 5),
        ("one", "one two three four", 1 / 4),
        ("the the the cat", "the cat cat", 1),  # sets: how often does not count
        ("A Man", "a mAN", 1),
        ("well, done!", "Well (done)", 1),
        ("snake_case 42", "42", 1 / 2),
        ("don't", "don", 1 / 2),
        ("ÜBER Straße", "über straße", 1),
        ("где моя посылка", "ГДЕ посылка", 2 / 3),
        ("東京 大阪", "大阪 京都", 1 / 3),
        ("", "", 1),
        ("?!", " \n", 1),
        ("", "word", 0),
        ("word", "...", 0),
    ],
)
def test_by_hand(first, second, expected):
    assert overlap(first, second) == pytest.approx(expected, rel=1e-6)
    assert overlap(second, first) == pytest.approx(expected, rel=1e-6)


def test_many_pairs_against_sets():
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{word}" for word in rng.integers(0, 12, rng.integers(0, 9))) for _ in range(60)]
    first, second = rng.integers(0, 60, 500), rng.integers(0, 60, 500)
    words = [set(text.split()) for text in texts]
    expected = [
        len(words[a] & words[b]) / len(words[a] | words[b]) if words[a] | words[b] else 1
        for a, b in zip(first, second, strict=True)
    ]
    found = lexical_overlap(word_matrix(texts), first, second)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_ranks_can_be_indices():
    words = word_matrix(["a b", "", "b c"])
    found = lexical_overlap(words, np.array([0, 1, 2], np.uint32), np.array([2, 1, 2], np.uint32))
    np.testing.assert_allclose(found, [1 / 3, 1, 1], rtol=1e-6)


def test_matrix_of_ones():
    words = word_matrix(["b a b", "", "A c"])
    assert words.shape == (3, 3)
    assert words.toarray().sum(axis=1).tolist() == [2, 0, 2]
    assert words.toarray().max() == 1


@pytest.mark.parametrize("texts", [[], [""], ["", "!"]])
def test_no_words(texts):
    words = word_matrix(texts)
    assert words.shape[0] == len(texts)
    assert words.nnz == 0
    assert lexical_overlap(words, np.empty(0, np.int64), np.empty(0, np.int64)).tolist() == []
