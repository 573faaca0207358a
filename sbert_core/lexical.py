"""How many words two texts share."""

import re
from collections.abc import Sequence

import numpy as np
from scipy import sparse

_WORD = re.compile(r"\w+")


def word_matrix(texts: Sequence[str]) -> sparse.csr_array:
    """The set of lower-cased words of each text, as a row of zeros and ones; texts without words have no entry."""
    vocabulary: dict[str, int] = {}
    columns: list[int] = []
    starts = [0]
    for text in texts:
        columns += {vocabulary.setdefault(word, len(vocabulary)) for word in _WORD.findall(text.lower())}
        starts.append(len(columns))
    ones = np.ones(len(columns), np.int32)
    return sparse.csr_array((ones, columns, starts), shape=(len(starts) - 1, max(len(vocabulary), 1)))


def lexical_overlap(words: sparse.csr_array, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The Jaccard index (n,) of the words of texts `first` (n,) and `second` (n,): shared words of all words."""
    shared = np.asarray(words[first].multiply(words[second]).sum(axis=1)).ravel()
    sizes = np.diff(words.indptr)
    union = sizes[first] + sizes[second] - shared
    return np.divide(shared, union, out=np.ones(len(first), np.float32), where=union > 0, dtype=np.float32)
