"""How often terms occur in clusters: counting, merging, trimming, and c-TF-IDF."""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

import numpy as np
from scipy import sparse

from sbert_core.clusters.names.words import split_terms

TINY = np.finfo(np.float64).tiny  # keeps divisions by a sum of zero finite

Key = TypeVar("Key", bound=Hashable)  # a cluster, or a cluster and a period


@dataclasses.dataclass(frozen=True)
class TermMatrix:
    """A `matrix` (clusters, terms) of counts or weights; `clusters` and `terms` name its rows and columns, sorted."""

    matrix: sparse.csr_array
    clusters: tuple[int, ...]
    terms: tuple[str, ...]


def count_terms(texts: Iterable[str], labels: Iterable[int]) -> dict[int, Counter[str]]:
    """How often each term occurs in the texts of each cluster; empty for a cluster whose texts have no terms."""
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    for text, label in zip(texts, labels, strict=True):
        counts[int(label)].update(split_terms(text))
    return dict(counts)


def merge_counts(parts: Iterable[Mapping[Key, Mapping[str, int]]]) -> dict[Key, Counter[str]]:
    """The sum of the counts of several batches, in any order.

    Counts are exact. They take 0.1 kB for each different term of each cluster, 2 to 15 of those per text; a corpus
    with too many merges them in buckets of terms.
    """
    merged: dict[Key, Counter[str]] = defaultdict(Counter)
    for part in parts:
        for key, counter in part.items():
            merged[key].update(counter)
    return dict(merged)


def trim_counts(counts: Mapping[Key, Counter[str]], max_terms: int) -> dict[Key, Counter[str]]:
    """The counts of at most `max_terms` terms, the most frequent; terms as frequent as a dropped one are dropped too.

    Trim once, after merging: the result then does not depend on the order of batches, and a term that is rare in one
    batch but frequent in all is kept.
    """
    totals: Counter[str] = Counter()
    for counter in counts.values():
        totals.update(counter)
    max_dropped = sorted(totals.values(), reverse=True)[max_terms] if len(totals) > max_terms else 0
    return {
        key: Counter({term: count for term, count in counter.items() if totals[term] > max_dropped})
        for key, counter in counts.items()
    }


def count_matrix(counts: Mapping[int, Counter[str]]) -> TermMatrix:
    """The counts as a matrix."""
    clusters = tuple(sorted(counts))
    terms = tuple(sorted(set().union(*counts.values())))
    column = {term: index for index, term in enumerate(terms)}
    columns = [column[term] for cluster in clusters for term in counts[cluster]]
    values = [count for cluster in clusters for count in counts[cluster].values()]
    starts = np.cumsum([0] + [len(counts[cluster]) for cluster in clusters])
    matrix = sparse.csr_array((np.asarray(values, np.float64), columns, starts), shape=(len(clusters), len(terms)))
    matrix.sort_indices()
    return TermMatrix(matrix, clusters, terms)


def class_tf_idf(counts: Mapping[int, Counter[str]]) -> TermMatrix:
    """BERTopic's c-TF-IDF: a term's share of its cluster, times log(1 + mean cluster size / the term's frequency).

    As in BERTopic, sizes are in terms, the mean is rounded down, and noise is a cluster like any other.
    """
    counted = count_matrix(counts)
    weighted = row_shares(counted.matrix) @ sparse.diags_array(inverse_frequencies(counted.matrix))
    return dataclasses.replace(counted, matrix=weighted)


def row_shares(matrix: sparse.csr_array) -> sparse.csr_array:
    """Each row divided by its sum; a row of zeros stays as it is."""
    sums = np.repeat(np.maximum(matrix.sum(axis=1), TINY), np.diff(matrix.indptr))
    return sparse.csr_array((matrix.data / sums, matrix.indices, matrix.indptr), shape=matrix.shape)


def inverse_frequencies(matrix: sparse.csr_array) -> np.ndarray:
    """The IDF (terms,) of c-TF-IDF, from a matrix of counts."""
    return np.log1p(int(matrix.sum() / max(matrix.shape[0], 1)) / matrix.sum(axis=0))
