"""How many words two texts share."""

import unicodedata
from collections.abc import Sequence

import numpy as np
import regex
from scipy import sparse

_WORD = regex.compile(r"[\p{L}\p{M}\p{N}_]+")  # \w would cut words of many scripts at their marks


def word_matrix(texts: Sequence[str]) -> sparse.csr_array:
    """The set of lower-cased words of each text, as a row of zeros and ones; a text without words has no ones."""
    vocabulary: dict[str, int] = {}
    columns: list[int] = []
    starts = [0]
    for text in texts:
        columns += {vocabulary.setdefault(word, len(vocabulary)) for word in _WORD.findall(_fold(text))}
        starts.append(len(columns))
    ones = np.ones(len(columns), np.int32)
    return sparse.csr_array((ones, columns, starts), shape=(len(starts) - 1, max(len(vocabulary), 1)))


def _fold(text: str) -> str:
    """The same for texts that look the same."""
    return unicodedata.normalize("NFC", text).lower()


def lexical_overlap(words: sparse.csr_array, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The Jaccard index (n,) of the words of texts `first` (n,) and `second` (n,): shared words of all words.

    Two texts without words share all they have: 1.
    """
    shared = np.asarray(words[first].multiply(words[second]).sum(axis=1)).ravel()
    sizes = np.diff(words.indptr)
    union = sizes[first] + sizes[second] - shared
    return np.divide(shared, union, out=np.ones(len(first), np.float32), where=union > 0, dtype=np.float32)
