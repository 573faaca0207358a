"""Names of clusters: the terms that distinguish each one from the others."""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from sbert_core.clusters.names.best_terms import choose_terms
from sbert_core.clusters.names.stop_words import common_terms, is_topical
from sbert_core.clusters.names.term_counts import TINY, class_tf_idf, count_matrix, inverse_frequencies, row_shares
from sbert_core.clusters.noise import NOISE

NAME_TERMS = 3
COMMON_TERM_WEIGHT = 1e-6  # of terms that a cluster has no more of than others: behind those it has more of

ClusterPeriod = tuple[int, str]


@dataclasses.dataclass(frozen=True)
class ClusterTerms:
    """The best terms of a cluster, best first, and a name that no other cluster has."""

    cluster: int
    terms: tuple[str, ...]
    name: str


def name_clusters(counts: Mapping[int, Counter[str]], max_terms: int = 10) -> list[ClusterTerms]:
    """The best terms of each cluster except noise, and distinct names, in the order of clusters.

    Terms are weighted by how far their c-TF-IDF in the cluster exceeds that of the whole corpus. A name is the three
    best terms, more if another cluster has the same three, and finally the number of the cluster. A cluster that has
    only stop words is named by these.
    """
    counted = count_matrix(counts)
    shares, idf = row_shares(counted.matrix), inverse_frequencies(counted.matrix)
    overall = counted.matrix.sum(axis=0) / max(counted.matrix.sum(), 1)
    topical = is_topical(counted.terms, counts, common_terms(counts))
    no_function_words = is_topical(counted.terms, counts)
    chosen: dict[int, tuple[str, ...]] = {}
    for cluster, start, end in zip(counted.clusters, shares.indptr, shares.indptr[1:], strict=False):
        if cluster == NOISE:
            continue
        columns, share = shares.indices[start:end], shares.data[start:end]
        excess = np.maximum(share - overall[columns], 0) + COMMON_TERM_WEIGHT * share
        preferred = (excess * idf[columns] * topical[columns], share * no_function_words[columns])
        weights = next((each for each in preferred if each.any()), share)
        chosen[cluster] = choose_terms(weights, [counted.terms[c] for c in columns], counts[cluster], max_terms)
    return [ClusterTerms(cluster, chosen[cluster], name) for cluster, name in _distinct_names(chosen).items()]


def _distinct_names(chosen: Mapping[int, Sequence[str]]) -> dict[int, str]:
    names = {cluster: ", ".join(terms[:NAME_TERMS]) or f"cluster {cluster}" for cluster, terms in chosen.items()}
    for length in range(NAME_TERMS + 1, max(map(len, chosen.values()), default=0) + 1):
        used = Counter(names.values())
        names = {c: name if used[name] == 1 else ", ".join(chosen[c][:length]) for c, name in names.items()}
    used = Counter(names.values())
    return {cluster: name if used[name] == 1 else f"{name}, {cluster}" for cluster, name in names.items()}


def terms_over_time(
    counts: Mapping[ClusterPeriod, Counter[str]], max_terms: int = 5
) -> dict[ClusterPeriod, tuple[str, ...]]:
    """The best terms of each cluster in each period, without noise.

    As BERTopic's topics over time: the mean of a term's weights in the period and over all time. Weights are c-TF-IDF
    with the frequencies of all time, divided by their sum.
    """
    all_time: dict[int, Counter[str]] = defaultdict(Counter)
    for (cluster, _), counter in counts.items():
        all_time[cluster].update(counter)
    counted = count_matrix(all_time)
    column = {term: index for index, term in enumerate(counted.terms)}
    idf, overall = inverse_frequencies(counted.matrix), row_shares(class_tf_idf(all_time).matrix)
    topical = is_topical(counted.terms, all_time, common_terms(all_time))
    best: dict[ClusterPeriod, tuple[str, ...]] = {}
    for cluster, period in sorted(key for key in counts if key[0] != NOISE):
        weights = overall[[counted.clusters.index(cluster)]].toarray()[0]
        columns = [column[term] for term in counts[cluster, period]]
        in_period = np.array(list(counts[cluster, period].values())) * idf[columns]
        weights[columns] += in_period / max(in_period.sum(), TINY)  # the sum orders terms as the mean does
        best[cluster, period] = choose_terms(weights * topical, counted.terms, all_time[cluster], max_terms)
    return best
