"""Which terms say nothing about a cluster: function words, and stop words that are learned from the corpus."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import regex

from sbert_core.clusters.names.function_words import FUNCTION_WORDS
from sbert_core.clusters.names.term_counts import count_matrix
from sbert_core.clusters.names.words import is_unspaced

MIN_COUNT = 10  # occurrences of a stop word
MIN_SHARE = 1 / 2000  # of all occurrences of terms
MAX_DIVERGENCE = 0.15  # of a stop word, as a share of log(clusters)
MAX_KANA_SHARE = 0.1  # of the terms of unspaced scripts, in a corpus that is not Japanese

_HIRAGANA = regex.compile(r"\p{Hiragana}")
_CHINESE_GRAMMAR = regex.compile(r"[一个了们和在就得把是有正的着给被这那都\p{Hiragana}]")


def common_terms(counts: Mapping[int, Counter[str]]) -> frozenset[str]:
    """The stop words of a corpus: frequent terms whose share hardly differs between clusters.

    Such a term says little about its cluster: the divergence of p(cluster | term) from p(cluster) is a small share of
    its maximum, log(clusters). Few clusters are weak evidence, so the limit is lower with fewer clusters.
    """
    counted = count_matrix({cluster: counter for cluster, counter in counts.items() if counter})
    n_clusters = len(counted.clusters)
    if n_clusters < 2:
        return frozenset()
    totals, sizes = counted.matrix.sum(axis=0), counted.matrix.sum(axis=1)
    frequent = np.flatnonzero(totals >= max(MIN_COUNT, n_clusters, sizes.sum() * MIN_SHARE))
    table = counted.matrix[:, frequent].toarray()  # (clusters, frequent terms)
    shares = table / totals[frequent]
    lift = shares / (sizes / sizes.sum())[:, None]
    divergence = np.sum(shares * np.log(lift, out=np.zeros_like(lift), where=lift > 0), axis=0)
    divergence -= (np.count_nonzero(table, axis=0) - 1) / (2 * totals[frequent])  # the divergence expected by chance
    max_divergence = MAX_DIVERGENCE * math.log(n_clusters) * (n_clusters - 1) / (n_clusters + 3)
    return frozenset(counted.terms[index] for index in frequent[divergence < max_divergence])


def is_topical(
    terms: Sequence[str], counts: Mapping[int, Counter[str]], stop_words: frozenset[str] = frozenset()
) -> np.ndarray:
    """Which terms (n,) contain no function word, no word of `stop_words`, and no grammatical character.

    `counts` show whether the corpus is Japanese, where characters of Chinese grammar are parts of other words.
    """
    excluded = stop_words | FUNCTION_WORDS
    kana = sum(counter[term] for counter in counts.values() for term in counter if _HIRAGANA.match(term))
    unspaced = sum(counter[term] for counter in counts.values() for term in counter if is_unspaced(term))
    grammar = _CHINESE_GRAMMAR if 10 * kana < unspaced else _HIRAGANA
    return np.array([excluded.isdisjoint((term, *term.split())) and not grammar.search(term) for term in terms], bool)
