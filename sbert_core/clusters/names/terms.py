"""Names for clusters: the terms that set each one apart, and the texts that show it best."""

import dataclasses
import itertools
import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import regex
from scipy import sparse

NOISE = -1  # the label of texts in no cluster: counted as background, never named

_SCRIPTS = ("Han", "Hiragana", "Thai", "Lao", "Khmer", "Myanmar")  # without spaces; Katakana words end with it
UNSPACED = "".join(rf"\p{{{script}}}" for script in _SCRIPTS)
_RUN = regex.compile(
    "(?P<paired>" + "|".join(rf"[\p{{{name}}}--\p{{N}}][[\p{{{name}}}\p{{M}}ー]--\p{{N}}]*" for name in _SCRIPTS) + ")"
    rf"|(?P<word>[\p{{Katakana}}ー]+|(?:[[\p{{L}}\p{{M}}\p{{N}}]--[\p{{Katakana}}ー{UNSPACED}]]"
    # \u200c is part of words in Persian, the apostrophe of комп'ютер and don't; elsewhere it is a border: l'adresse
    r"|(?<=\p{L})[\u200c\u200d](?=\p{L})|(?<=\p{Cyrillic})'(?=\p{Cyrillic})|(?<=n)'(?=t\b))+)"
    r"|(?P<gap>(?<=\p{L})'(?:s|re|ve|ll|d|m)\b|[ '-])|.",
    regex.VERSION1 | regex.DOTALL,
)
SIGN = regex.compile(r"[เ-ไເ-ໄ]?\X[\p{M}ะาำະາຳ]*")  # a consonant of Thai or Lao with the vowels before and after it
_LETTERS = regex.compile(r"\p{L}.*\p{L}|[\uac00-\ud7a3]", regex.DOTALL)  # one letter says nothing, one syllable may
_HANGUL = regex.compile(r"[\uac00-\ud7a3]+")
_HIRAGANA = regex.compile(r"\p{Hiragana}")
_PAIRED = regex.compile(f"[{UNSPACED}]")

_TINY = np.finfo(np.float64).tiny
_FREQUENT = 1 / 2000  # of all terms
_EVEN = 0.15  # of the most a term can tell of its cluster
_MOST, _ALIKE = 0.6, 0.9  # of the pairs with a character, of each other: two pairs are one word
_NEARLY = 0.5  # of a word's occurrences, and more, are in a pair: the pair is its better name
_REST = 1e-6  # puts terms a cluster has no more of than others behind those it has

# Never a topic. What a corpus says in every cluster is learned (`common_terms`); these are known even if it has one
# cluster, or one cluster per language. Words that are a topic in another language (war, hat, van) are left to learning.
_FUNCTION_WORDS = frozenset(
    """
    about also am an and any are as at be been but by can can't could did didn't do does doesn't don't for from had has
    hasn't have haven't he her his how if in into is isn't it its just me more my no not of on only or other our she
    should so some than that the their them then there these they this those to too very was wasn't we were what when
    where which who why will with won't would wouldn't you your
    aber als auch auf aus bei bis das dass dem den der des die doch ein eine einem einen einer eines er es für habe
    haben ich ihr ihre ihren im ist kann kein keine mein meine meinem meinen meiner mich mir mit nach nicht noch nur
    oder sein sich sie sind um und uns vom von vor warum wenn werden wie wir wird wo wurde wurden zu zum zur über
    al algo como con cuando cuál cómo de del donde dónde el ella en es ese esta este está ha han hay la las le les lo
    los mi mis muy más ni nos para pero por porque que qué se ser si sobre su sus también te tengo un una uno ya yo
    ai au aux avec ce ces cette dans des du elle est et il ils je leur ma mais mes moi mon ne nous ont ou où par pas
    pour pourquoi qu quand qui sa ses sont suis sur ta tes toi ton tu une votre vous été être
    che da dei della di gli ho non per sono è as dos em na não os um uma aan dat een er het ik niet op ook te voor zijn
    бы был была были было быть вам вас во вот все вы да для до его ее если есть еще ещё же за из или им их как которые
    кто ли меня мне мой мою моя мы на не нет но об он она они от по после при со так то только ты уже что чтобы это где
    jak jest mam mój nie się że 것 것은 것을 그 더 두 등 및 수 이 있는 있다 있습니다 한 할
    一个 一些 什么 他们 他的 你的 可以 如果 怎么 我们 我的 是否 没有
    """.split()  # noqa: RUF001, SIM905
)
_CHINESE_GRAMMAR = regex.compile(r"[一个了们和在就得把是有正的着给被这那都\p{Hiragana}]")

_Terms = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class ClusterTerms:
    """What cluster `cluster` is about: its best terms, best first, and a name no other cluster has."""

    cluster: int
    terms: _Terms
    name: str


@dataclasses.dataclass(frozen=True)
class TermMatrix:
    """A `matrix` (clusters, terms) of counts or weights; sorted `clusters` and `terms` name rows and columns."""

    matrix: sparse.csr_array
    clusters: tuple[int, ...]
    terms: _Terms


def split_terms(text: str) -> list[str]:
    """The lower-case words of a text and its pairs of neighbours; pairs of characters where no spaces are written.

    Single letters and numbers are no terms, nor is a pair with a function word or with a punctuation mark inside.
    """
    text = unicodedata.normalize("NFKC", text).replace("\u2019", "'").lower().replace("i\u0307", "i")
    text = text.replace("\u0e4d\u0e32", "\u0e33").replace("\u0ecd\u0eb2", "\u0eb3")  # NFKC takes a vowel apart
    terms: list[str] = []
    before = ""
    for run in _RUN.finditer(text):
        if run["paired"]:
            signs = SIGN.findall(run[0])
            terms += [first + second for first, second in itertools.pairwise(signs)] or signs
            before = ""
        elif run["word"]:
            word = run[0]
            known = _LETTERS.search(word) is not None
            topical = known and word not in _FUNCTION_WORDS
            terms += [word] * known + [f"{before} {word}"] * bool(topical and before)
            before = word if topical else ""
        elif not run["gap"]:
            before = ""
    return terms


def count_terms(texts: Iterable[str], labels: Iterable[int]) -> dict[int, Counter[str]]:
    """How often each term occurs in the texts of each cluster; empty for a cluster whose texts have none."""
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    for text, label in zip(texts, labels, strict=True):
        counts[int(label)].update(split_terms(text))
    return dict(counts)


def merge_counts(parts: Iterable[Mapping[int, Counter[str]]]) -> dict[int, Counter[str]]:
    """The sum of the counts of batches, in whatever order they come.

    Counts are exact, 0.1 kB for each different term of each cluster, 2 to 15 of those per text. Where that is too much,
    sum ((cluster, term), count) pairs by key in a shuffle, and trim what comes out.
    """
    merged: dict[int, Counter[str]] = defaultdict(Counter)
    for part in parts:
        for cluster, counter in part.items():
            merged[cluster].update(counter)
    return dict(merged)


def trim_counts(counts: Mapping[int, Counter[str]], limit: int) -> dict[int, Counter[str]]:
    """The counts of at most `limit` terms, the most frequent: those as frequent as a dropped one are dropped too.

    The same for every order of batches if done once, on merged counts; a part's rare term may be a frequent one.
    """
    totals: Counter[str] = Counter()
    for counter in counts.values():
        totals.update(counter)
    floor = sorted(totals.values(), reverse=True)[limit] if len(totals) > limit else 0
    return {
        cluster: Counter({term: count for term, count in counter.items() if totals[term] > floor})
        for cluster, counter in counts.items()
    }


def _count_matrix(counts: Mapping[int, Counter[str]]) -> TermMatrix:
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

    Sizes are in terms, the mean is rounded down, and noise is a cluster like any other, all as in BERTopic.
    """
    counted = _count_matrix(counts)
    return dataclasses.replace(counted, matrix=_shares(counted.matrix) @ sparse.diags_array(_idf(counted.matrix)))


def _shares(matrix: sparse.csr_array) -> sparse.csr_array:
    """Each row divided by its sum; a row of zeros stays one."""
    sizes = np.repeat(np.maximum(matrix.sum(axis=1), _TINY), np.diff(matrix.indptr))
    return sparse.csr_array((matrix.data / sizes, matrix.indices, matrix.indptr), shape=matrix.shape)


def _idf(matrix: sparse.csr_array) -> np.ndarray:
    return np.log1p(int(matrix.sum() / max(matrix.shape[0], 1)) / matrix.sum(axis=0))


def common_terms(counts: Mapping[int, Counter[str]]) -> frozenset[str]:
    """The stop words of a corpus: frequent terms whose share hardly differs from cluster to cluster.

    That is, a term that tells little of its cluster: the divergence of p(cluster | term) from p(cluster) is a small
    part of log(clusters). Few clusters are weak evidence, so the fewer, the evener a stop word must be.
    """
    counted = _count_matrix({cluster: counter for cluster, counter in counts.items() if counter})
    clusters = len(counted.clusters)
    if clusters < 2:
        return frozenset()
    totals, sizes = counted.matrix.sum(axis=0), counted.matrix.sum(axis=1)
    frequent = np.flatnonzero(totals >= max(10, clusters, sizes.sum() * _FREQUENT))
    table = counted.matrix[:, frequent].toarray()  # (clusters, frequent terms)
    shares = table / totals[frequent]
    lift = shares / (sizes / sizes.sum())[:, None]
    divergence = np.sum(shares * np.log(lift, out=np.zeros_like(lift), where=lift > 0), axis=0)
    divergence -= (np.count_nonzero(table, axis=0) - 1) / (2 * totals[frequent])  # what chance alone would give
    allowed = _EVEN * math.log(clusters) * (clusters - 1) / (clusters + 3)
    return frozenset(counted.terms[index] for index in frequent[divergence < allowed])


def name_clusters(counts: Mapping[int, Counter[str]], top: int = 10) -> list[ClusterTerms]:
    """The best terms of every cluster but noise, in order of cluster, and names that differ.

    Terms are ranked by what their c-TF-IDF in the cluster is above that of the whole corpus. A name is the three best,
    more if another cluster has those, and at last the number of the cluster.
    """
    counted = _count_matrix(counts)
    shares, idf = _shares(counted.matrix), _idf(counted.matrix)
    overall = counted.matrix.sum(axis=0) / max(counted.matrix.sum(), 1)
    topical = _topical(counts, counted.terms, common_terms(counts) | _FUNCTION_WORDS)
    sayable = _topical(counts, counted.terms, _FUNCTION_WORDS)
    found: dict[int, _Terms] = {}
    for cluster, start, end in zip(counted.clusters, shares.indptr, shares.indptr[1:], strict=False):
        if cluster != NOISE:
            columns, share = shares.indices[start:end], shares.data[start:end]
            above = np.maximum(share - overall[columns], 0) + _REST * share
            ranks = (above * idf[columns] * topical[columns], share * sayable[columns])
            best = next((rank for rank in ranks if rank.any()), share)  # stop words are better than nothing
            found[cluster] = _best_terms(best, [counted.terms[c] for c in columns], counts[cluster], top)
    return [ClusterTerms(cluster, found[cluster], name) for cluster, name in _distinct_names(found).items()]


def _topical(counts: Mapping[int, Counter[str]], terms: _Terms, stop: frozenset[str]) -> np.ndarray:
    """Which terms (n,) hold no word of `stop`, nor what pairs of characters carry of grammar."""
    kana = sum(counter[term] for counter in counts.values() for term in counter if _HIRAGANA.match(term))
    paired = sum(counter[term] for counter in counts.values() for term in counter if _PAIRED.match(term))
    grammar = _CHINESE_GRAMMAR if 10 * kana < paired else _HIRAGANA  # in Japanese they are parts of other words
    return np.array([stop.isdisjoint((term, *term.split())) and not grammar.search(term) for term in terms], bool)


def _distinct_names(found: Mapping[int, Sequence[str]]) -> dict[int, str]:
    names = {cluster: ", ".join(terms[:3]) or f"cluster {cluster}" for cluster, terms in found.items()}
    for length in range(4, max(map(len, found.values()), default=0) + 1):
        used = Counter(names.values())
        names = {c: name if used[name] == 1 else ", ".join(found[c][:length]) for c, name in names.items()}
    used = Counter(names.values())
    return {cluster: name if used[name] == 1 else f"{name}, {cluster}" for cluster, name in names.items()}


def _best_terms(weights: np.ndarray, terms: Sequence[str], counter: Counter[str], top: int) -> _Terms:
    """The `top` heaviest terms of a cluster, each standing for its other forms and for the words it holds."""
    order = np.lexsort((np.arange(len(weights)), -weights))[: 5 * top + 20]  # terms are sorted: ties by term
    heavy = {terms[index]: (float(weights[index]), counter[terms[index]]) for index in order if weights[index] > 0}
    heavy = {term: found for term, found in heavy.items() if found[1] > 1 or " " not in term}  # one pair is chance
    heavy = _join_pairs(heavy, counter)
    chosen: list[str] = []
    for term in sorted(heavy, key=lambda term: (-heavy[term][0], term)):
        same = [other for other in chosen if _same(term, other)]
        if not same:
            if not _straddles(term, chosen):
                chosen.append(term)
        elif all(_holds(term, other) and heavy[term][1] > heavy[other][1] * _NEARLY for other in same):
            chosen[chosen.index(same[0])] = term  # credit card says more than card
            chosen = [other for other in chosen if other not in same]
    return tuple(chosen[:top])


def _join_pairs(heavy: dict[str, tuple[float, int]], counter: Counter[str]) -> dict[str, tuple[float, int]]:
    """Joins pairs of characters to longer words: ab and bc, if most b are in both, or both come as often."""
    signs = {term: SIGN.findall(term) for term in counter if _PAIRED.match(term)}
    ends, starts = defaultdict[str, Counter[str]](Counter), defaultdict[str, Counter[str]](Counter)
    for pair in (term for term in signs if len(signs[term]) == 2):
        starts[signs[pair][0]][pair] = ends[signs[pair][1]][pair] = counter[pair]
    after: dict[str, str] = {}
    for sign in ends.keys() & starts.keys():
        sides = ends[sign], starts[sign]
        first, second = (max(side, key=lambda pair: (counter[pair], pair)) for side in sides)
        often = min(counter[first] / sides[0].total(), counter[second] / sides[1].total())
        alike = min(counter[first], counter[second]) / max(counter[first], counter[second])
        if heavy.keys() >= {first, second} and alike > _NEARLY and (often > _MOST or alike > _ALIKE):
            after[first] = second
    joined = dict(heavy)
    for head in after.keys() - after.values():
        chain = [head]
        while chain[-1] in after and len(chain) < 7:
            chain.append(after[chain[-1]])
        parts = [joined.pop(pair) for pair in chain]
        word = head + "".join(signs[pair][-1] for pair in chain[1:])
        joined[word] = (max(weight for weight, _ in parts), min(size for _, size in parts))
    return joined


def _straddles(term: str, chosen: Sequence[str]) -> bool:
    """Whether characters look like the end of one word and the beginning of the next."""
    if not _PAIRED.match(term) or len(signs := SIGN.findall(term)) < 2:
        return False
    words = [SIGN.findall(other) for other in chosen if _PAIRED.match(other)]
    after, before = ([len(w) for w in words if w[-1] == signs[0]], [len(w) for w in words if w[0] == signs[-1]])
    return bool(after and before) or max(after + before, default=0) > 2  # a long word says more of its borders


def _holds(term: str, other: str) -> bool:
    return other in term if _PAIRED.match(term) else " " in term and " " not in other


def _same(first: str, second: str) -> bool:
    """Whether two terms share a word, in any form."""
    if _PAIRED.match(first) or _PAIRED.match(second):
        return first in second or second in first
    return any(_same_word(one, two) for one in first.split() for two in second.split())


def _same_word(first: str, second: str) -> bool:
    """Whether two words look like forms of one: the same beginning and short endings."""
    short, long = sorted((first, second), key=len)
    shared = next((place for place, letter in enumerate(short) if letter != long[place]), len(short))
    if _HANGUL.fullmatch(first) and _HANGUL.fullmatch(second):
        return short == long or (shared >= 2 and len(long) - shared <= 2)  # particles
    if shared < 4:
        return short == long or (shared == len(short) == 3 and long[3:] in ("s", "es", "e", "n", "en"))
    return len(short) - shared <= 1 and len(long) - shared <= 3


def terms_over_time(counts: Mapping[tuple[int, Any], Counter[str]], top: int = 5) -> dict[tuple[int, Any], _Terms]:
    """The best terms of every (cluster, period) but noise: the mean of the cluster's weights then and over all time.

    As BERTopic's topics over time: c-TF-IDF with the frequencies of all time, and rows that add up to one.
    """
    whole: dict[int, Counter[str]] = defaultdict(Counter)
    for (cluster, _), counter in counts.items():
        whole[cluster].update(counter)
    counted = _count_matrix(whole)
    column = {term: index for index, term in enumerate(counted.terms)}
    idf, always = _idf(counted.matrix), _shares(class_tf_idf(whole).matrix)
    topical = _topical(whole, counted.terms, common_terms(whole) | _FUNCTION_WORDS)
    best: dict[tuple[int, Any], _Terms] = {}
    for cluster, period in sorted(key for key in counts if key[0] != NOISE):
        mean = always[[counted.clusters.index(cluster)]].toarray()[0]
        columns = [column[term] for term in counts[cluster, period]]
        then = np.array(list(counts[cluster, period].values())) * idf[columns]
        mean[columns] += then / max(then.sum(), _TINY)  # twice the mean ranks as the mean
        best[cluster, period] = _best_terms(mean * topical, counted.terms, whole[cluster], top)
    return best
