"""Texts to terms: words, pairs of words, and pairs of characters in scripts that are written without spaces."""

import itertools
import unicodedata

import regex

from sbert_core.clusters.names.function_words import FUNCTION_WORDS

UNSPACED_SCRIPTS = ("Han", "Hiragana", "Thai", "Lao", "Khmer", "Myanmar")  # a run of Katakana is one word
UNSPACED_CLASS = "".join(rf"\p{{{script}}}" for script in UNSPACED_SCRIPTS)
"""What stands inside [] in a regular expression for any character of these scripts."""

_RUN = regex.compile(
    "(?P<unspaced>"
    + "|".join(rf"[\p{{{name}}}--\p{{N}}][[\p{{{name}}}\p{{M}}ー]--\p{{N}}]*" for name in UNSPACED_SCRIPTS)
    + ")"
    rf"|(?P<word>[\p{{Katakana}}ー]+|(?:[[\p{{L}}\p{{M}}\p{{N}}]--[\p{{Katakana}}ー{UNSPACED_CLASS}]]"
    # \u200c is part of Persian words, the apostrophe of комп'ютер and don't; elsewhere it ends a word: l'adresse
    r"|(?<=\p{L})[\u200c\u200d](?=\p{L})|(?<=\p{Cyrillic})'(?=\p{Cyrillic})|(?<=n)'(?=t\b))+)"
    r"|(?P<gap>(?<=\p{L})'(?:s|re|ve|ll|d|m)\b|[ '-])|.",
    regex.VERSION1 | regex.DOTALL,
)

CHARACTER = regex.compile(r"[เ-ไເ-ໄ]?\X[\p{M}ะาำະາຳ]*")
"""One character as readers see it; in Thai and Lao a consonant with the vowels before and after it."""

_TWO_LETTERS = regex.compile(r"\p{L}.*\p{L}|[\uac00-\ud7a3]", regex.DOTALL)  # a Hangul syllable can be a word
_HANGUL = regex.compile(r"[\uac00-\ud7a3]+")
_UNSPACED = regex.compile(f"[{UNSPACED_CLASS}]")


def split_terms(text: str) -> list[str]:
    """The terms of a text: its lower-case words and pairs of adjacent words.

    In scripts without spaces the terms are pairs of adjacent characters. Single letters and numbers are no terms,
    nor are pairs that contain a function word or a punctuation mark.
    """
    terms: list[str] = []
    previous = ""  # the word before, if it can be the first of a pair
    for run in _RUN.finditer(_normalize(text)):
        if run["unspaced"]:
            characters = CHARACTER.findall(run[0])
            terms += [first + second for first, second in itertools.pairwise(characters)] or characters
            previous = ""
        elif run["word"]:
            word = run[0]
            is_term = _TWO_LETTERS.search(word) is not None
            is_topical = is_term and word not in FUNCTION_WORDS
            if is_term:
                terms.append(word)
            if is_topical and previous:
                terms.append(f"{previous} {word}")
            previous = word if is_topical else ""
        elif not run["gap"]:
            previous = ""
    return terms


def _normalize(text: str) -> str:
    """The text in NFKC and lower case, with one kind of apostrophe."""
    text = unicodedata.normalize("NFKC", text).replace("\u2019", "'").lower().replace("i\u0307", "i")
    return text.replace("\u0e4d\u0e32", "\u0e33").replace("\u0ecd\u0eb2", "\u0eb3")  # NFKC splits these vowels


def is_unspaced(term: str) -> bool:
    """Whether a term is of a script that is written without spaces."""
    return _UNSPACED.match(term) is not None


def share_word(first: str, second: str) -> bool:
    """Whether two terms have a word in common, in any of its forms."""
    if is_unspaced(first) or is_unspaced(second):
        return first in second or second in first
    return any(_is_same_word(one, two) for one in first.split() for two in second.split())


def _is_same_word(first: str, second: str) -> bool:
    """Whether two words look like forms of one: the same beginning and short endings."""
    short, long = sorted((first, second), key=len)
    shared = next((place for place, letter in enumerate(short) if letter != long[place]), len(short))
    if _HANGUL.fullmatch(first) and _HANGUL.fullmatch(second):
        return short == long or (shared >= 2 and len(long) - shared <= 2)  # particles
    if shared < 4:
        return short == long or (shared == len(short) == 3 and long[3:] in ("s", "es", "e", "n", "en"))
    return len(short) - shared <= 1 and len(long) - shared <= 3
