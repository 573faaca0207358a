"""The best terms of one cluster, so that no two of them are forms of the same word."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from sbert_core.clusters.names.words import CHARACTER, is_unspaced, share_word

MIN_PHRASE_SHARE = 0.5  # of a word's occurrences that are in a phrase: the phrase then replaces the word
MIN_JOIN_RATIO = 0.5  # of the counts of two pairs of characters that may be one word
SAFE_JOIN_RATIO = 0.9  # of these counts: the pairs are one word, whatever other pairs their character is in
MIN_JOIN_SHARE = 0.6  # of all pairs with a character that the two pairs are, at a lower ratio
MAX_JOINED_PAIRS = 7


class WeightedTerm(NamedTuple):
    """The weight of a term in a cluster, and how often it occurs there."""

    weight: float
    occurrences: int


def choose_terms(
    weights: np.ndarray, terms: Sequence[str], counter: Mapping[str, int], max_terms: int
) -> tuple[str, ...]:
    """At most `max_terms` terms of a cluster with the highest weights (n,), best first.

    `terms` (n,) are sorted; equal weights are ordered by term. Of terms that share a word, in any form, one is chosen:
    the best, or a phrase that most of its occurrences are in.
    """
    order = np.lexsort((np.arange(len(weights)), -weights))[: 5 * max_terms + 20]
    found = {
        terms[index]: WeightedTerm(float(weights[index]), counter[terms[index]])
        for index in order
        if weights[index] > 0
    }
    # Two words that stand side by side once do so by chance.
    found = {term: each for term, each in found.items() if each.occurrences > 1 or " " not in term}
    found = _join_pairs(found, counter)
    chosen: list[str] = []
    for term in sorted(found, key=lambda term: (-found[term].weight, term)):
        similar = [other for other in chosen if share_word(term, other)]
        if not similar:
            if not _crosses_words(term, chosen):
                chosen.append(term)
        elif all(_is_better_phrase(term, other, found) for other in similar):
            chosen[chosen.index(similar[0])] = term  # "credit card" says more than "card"
            chosen = [other for other in chosen if other not in similar]
    return tuple(chosen[:max_terms])


def _join_pairs(found: dict[str, WeightedTerm], counter: Mapping[str, int]) -> dict[str, WeightedTerm]:
    """Joins pairs of characters to longer words.

    Pairs ab and bc are joined to abc if the rarer one occurs at least half as often as the other, and either almost as
    often, or both are the majority of the pairs that end and start with b.
    """
    characters = {term: CHARACTER.findall(term) for term in counter if is_unspaced(term)}
    next_pair = _next_pairs(found, counter, characters)
    joined = dict(found)
    for head in next_pair.keys() - next_pair.values():
        chain = [head]
        while chain[-1] in next_pair and len(chain) < MAX_JOINED_PAIRS:
            chain.append(next_pair[chain[-1]])
        parts = [joined.pop(pair) for pair in chain]
        word = head + "".join(characters[pair][-1] for pair in chain[1:])
        joined[word] = WeightedTerm(max(part.weight for part in parts), min(part.occurrences for part in parts))
    return joined


def _next_pairs(
    found: Mapping[str, WeightedTerm], counter: Mapping[str, int], characters: Mapping[str, list[str]]
) -> dict[str, str]:
    """For pairs of characters the pair that continues the same word."""
    ends, starts = defaultdict[str, Counter[str]](Counter), defaultdict[str, Counter[str]](Counter)
    for pair in (term for term in characters if len(characters[term]) == 2):
        first, last = characters[pair]
        starts[first][pair] = ends[last][pair] = counter[pair]
    next_pair: dict[str, str] = {}
    for character in ends.keys() & starts.keys():
        before, after = (
            max(pairs, key=lambda pair: (counter[pair], pair)) for pairs in (ends[character], starts[character])
        )
        share = min(counter[before] / ends[character].total(), counter[after] / starts[character].total())
        ratio = min(counter[before], counter[after]) / max(counter[before], counter[after])
        is_one_word = ratio > MIN_JOIN_RATIO and (share > MIN_JOIN_SHARE or ratio > SAFE_JOIN_RATIO)
        if found.keys() >= {before, after} and is_one_word:
            next_pair[before] = after
    return next_pair


def _crosses_words(term: str, chosen: Sequence[str]) -> bool:
    """Whether characters look like the end of one chosen word and the beginning of the next."""
    if not is_unspaced(term) or len(characters := CHARACTER.findall(term)) < 2:
        return False
    words = [CHARACTER.findall(other) for other in chosen if is_unspaced(other)]
    before = [len(word) for word in words if word[-1] == characters[0]]
    after = [len(word) for word in words if word[0] == characters[-1]]
    return bool(before and after) or max(before + after, default=0) > 2  # a long word is better evidence


def _is_better_phrase(term: str, other: str, found: Mapping[str, WeightedTerm]) -> bool:
    """Whether a term contains another one, and enough of its occurrences."""
    contains = other in term if is_unspaced(term) else " " in term and " " not in other
    return contains and found[term].occurrences > found[other].occurrences * MIN_PHRASE_SHARE
