"""How many words two texts share."""

import unicodedata
from collections.abc import Sequence

import numpy as np
import regex
from scipy import sparse

_WORD = regex.compile(r"[\p{L}\p{M}\p{N}_]+")  # \w would split words of many scripts at combining marks


def word_matrix(texts: Sequence[str]) -> sparse.csr_array:
    """The set of lower-case words of each text, as a row of zeros and ones (n, words)."""
    vocabulary: dict[str, int] = {}
    columns: list[int] = []
    starts = [0]
    for text in texts:
        columns += {vocabulary.setdefault(word, len(vocabulary)) for word in _WORD.findall(_normalize(text))}
        starts.append(len(columns))
    ones = np.ones(len(columns), np.int32)
    return sparse.csr_array((ones, columns, starts), shape=(len(starts) - 1, max(len(vocabulary), 1)))


def _normalize(text: str) -> str:
    """The same string for texts that look the same, in lower case."""
    return unicodedata.normalize("NFC", text).lower()


def lexical_overlap(words: sparse.csr_array, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The Jaccard index (n,) of the words of texts `first` (n,) and `second` (n,), as rows of a word matrix.

    That is the number of shared words divided by the number of all words; 1 for two texts without words.
    """
    n_shared = np.asarray(words[first].multiply(words[second]).sum(axis=1)).ravel()
    n_words = np.diff(words.indptr)
    n_union = n_words[first] + n_words[second] - n_shared
    return np.divide(n_shared, n_union, out=np.ones(len(first), np.float32), where=n_union > 0, dtype=np.float32)
