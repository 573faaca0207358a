"""Counts of terms, and c-TF-IDF by another derivation."""

import random
from collections import Counter

import numpy as np

from sbert_core.clusters.names.cluster_names import name_clusters
from sbert_core.clusters.names.term_counts import class_tf_idf, count_terms, merge_counts, trim_counts
from tests.cluster_texts import SHOP, counts_of


def test_counts_of_clusters():
    counts = count_terms(["a new card", "new", "?", "old"], np.array([3, 3, 5, -1]))
    assert counts == {3: Counter({"new": 2, "card": 1, "new card": 1}), 5: Counter(), -1: Counter(["old"])}
    assert all(type(cluster) is int for cluster in counts)


def test_batches_in_any_order():
    texts = [(text, label) for label, texts in SHOP.items() for text in texts]
    expected = counts_of(SHOP)
    for seed in range(5):
        random.Random(seed).shuffle(texts)
        parts = [count_terms(*zip(*texts[start : start + 4], strict=True)) for start in range(0, len(texts), 4)]
        merged = merge_counts(parts)
        assert merged == expected
        assert name_clusters(merged) == name_clusters(expected)
        assert trim_counts(merged, 5) == trim_counts(expected, 5)
        assert merge_counts([merge_counts(parts[:2]), merge_counts(parts[2:])]) == expected
        assert (class_tf_idf(merged).matrix != class_tf_idf(expected).matrix).nnz == 0


def test_merge_leaves_its_parts_alone():
    part = {1: Counter("ab")}
    merge_counts([part, part])
    assert part == {1: Counter("ab")}


def test_trim_drops_rare_terms_and_ties():
    counts = {0: Counter(a=3, b=1, c=1), 1: Counter(a=1, b=1, d=2)}
    assert trim_counts(counts, 4) == counts
    assert trim_counts(counts, 3) == {0: Counter(a=3, b=1), 1: Counter(a=1, b=1, d=2)}
    assert trim_counts(counts, 2) == {0: Counter(a=3), 1: Counter(a=1)}  # b and d come as often
    assert trim_counts(counts, 0) == {0: Counter(), 1: Counter()}


def test_class_tf_idf_is_that_of_bertopic():
    rng = np.random.default_rng(0)
    table = rng.poisson(0.7, (6, 40))
    table[:, table.sum(axis=0) == 0] = 1
    table[4] = 0  # a cluster without terms
    terms = [f"t{number:02d}" for number in range(40)]
    counts = {row - 1: Counter({t: int(n) for t, n in zip(terms, table[row], strict=True) if n}) for row in range(6)}
    found = class_tf_idf(counts)
    # sklearn's l1 norm and BERTopic's idf, term by term
    mean = int(np.mean([line.sum() for line in table]))
    expected = np.array(
        [
            [n / max(line.sum(), 1) * np.log(mean / table[:, column].sum() + 1) for column, n in enumerate(line)]
            for line in table
        ]
    )
    assert found.clusters == (-1, 0, 1, 2, 3, 4)
    assert list(found.terms) == sorted(terms)
    np.testing.assert_allclose(found.matrix.toarray(), expected, rtol=1e-14)


def test_counts_of_nothing():
    assert count_terms([], []) == {}
    assert merge_counts([]) == {}
    assert class_tf_idf({}).matrix.shape == (0, 0)
