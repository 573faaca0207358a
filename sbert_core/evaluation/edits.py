"""Rule-based edits of English sentences: one that keeps the meaning, four that change it.

Each takes a sentence and returns it edited, or None if its rule does not apply. They are deterministic.
"""

import re
from collections.abc import Iterator, Sequence

_WORD = re.compile(r"[A-Za-z]+(?:['\u2019-][A-Za-z]+)*")
_DENIED = {"can't": "can", "cannot": "can", "won't": "will", "shan't": "shall", "ain't": "is"}
_FORBIDDEN = re.compile(r"(?:Don['\u2019]t|Do not) (\w)")
_NOT = re.compile(r"\b(?:((?:ca|wo|sha|ai)n['\u2019]t|cannot)|([a-z]+)n['\u2019]t|not )", re.IGNORECASE)
_AUXILIARY = re.compile(
    r"\b(?P<verb>am|is|are|was|were|will|would|can|could|shall|should|must|may|might"
    r"|(?:has|have|had)(?= (?:been|\w+ed|\w+en)\b))\b(?= \w)"
)
_DETERMINERS = {
    "a",
    "an",
    "the",
    "my",
    "your",
    "his",
    "her",
    "its",
    "our",
    "their",
    "this",
    "that",
    "no",
    "any",
    "each",
}

# A number of its own: not 3rd, not B52, not the 5 of 3.5. Of 1,000 it is the 1.
_NUMBER = re.compile(r"(?<![\w.,:/-])\d{1,9}(?![\w:/-])")
_NUMBER_TEXT = (
    "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen "
    "nineteen twenty"
)
_NUMBER_WORDS = _NUMBER_TEXT.split()
_NUMBER_WORD = re.compile(rf"\b(?:{'|'.join(_NUMBER_WORDS)})\b", re.IGNORECASE)
_NUMBER_CHANGE = 3  # a year stays a year, and a small number does not become its neighbour

_NAME = re.compile(r"(?<=[a-z,;] )(?:[A-Z][a-z]{2,})(?: [A-Z][a-z]{2,})*\b(?!['\u2019-])")
_NO_NAMES_TEXT = (
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday January February March April May June July August "
    "September October November December Mr Mrs Miss Sir Lord President Minister Prime Senator King Queen"
)
_NO_NAMES = set(_NO_NAMES_TEXT.split())

_FUNCTION_TEXT = (
    "a about above after again all also am an and any are as at be because been before being below between both but by "
    "can cannot could did do does down during each few for from had has have he her here hers him his how i if in into "
    "is it its just may me might more most must my no nor not of off on once one only or other our out over own same "
    "shall she should so some such than that the their them then there these they this those through to too under "
    "until up us very was we were what when where which while who whom why will with would you your"
)
_FUNCTION_WORDS = {*_FUNCTION_TEXT.split(), *_NUMBER_WORDS}


def negate(sentence: str) -> str | None:
    """Adds `not` after the first auxiliary, or removes the first `not` if there is one."""
    forbidden = _FORBIDDEN.match(sentence)
    if forbidden:
        return forbidden[1].upper() + sentence[forbidden.end() :]
    denied = _NOT.search(sentence)
    if denied:
        irregular, stem = denied.groups()
        kept = _match_case(irregular, _DENIED[irregular.lower().replace("\u2019", "'")]) if irregular else stem or ""
        return sentence[: denied.start()] + kept + sentence[denied.end() :]
    for verb in _AUXILIARY.finditer(sentence):
        before = _WORD.findall(sentence[: verb.start()])
        # "a can", "the will": nouns. At the beginning: a question, in which `not` has another place.
        if before and before[-1].lower() not in _DETERMINERS:
            return f"{sentence[: verb.end()]} not{sentence[verb.end() :]}"
    return None


def change_number(sentence: str) -> str | None:
    """Adds three to the first number, in digits or as a word from two to twenty."""
    digits, word = _NUMBER.search(sentence), _NUMBER_WORD.search(sentence)
    if digits and (not word or digits.start() < word.start()):
        changed = str(int(digits[0]) + _NUMBER_CHANGE).zfill(len(digits[0]))
        return sentence[: digits.start()] + changed + sentence[digits.end() :]
    if not word:
        return None
    at = _NUMBER_WORDS.index(word[0].lower())
    changed = _NUMBER_WORDS[(at + _NUMBER_CHANGE) % len(_NUMBER_WORDS)]
    return sentence[: word.start()] + _match_case(word[0], changed) + sentence[word.end() :]


def find_names(sentence: str) -> list[str]:
    """Capitalised words within a sentence that is not a headline, except days, months and titles."""
    words = _WORD.findall(sentence)
    if 2 * sum(word[0].isupper() for word in words) > len(words):
        return []
    return [name for name in _NAME.findall(sentence) if not _NO_NAMES & set(name.split())]


def swap_entity(sentence: str, names: Sequence[str]) -> str | None:
    """Replaces the first name of the sentence by the first of `names` that it does not contain."""
    found = find_names(sentence)
    other = next((name for name in names if name not in sentence), None)
    return sentence.replace(found[0], other, 1) if found and other else None


def make_typo(sentence: str) -> str | None:
    """Swaps two letters in the middle of the longest word (the first of these; five lower-case letters or more)."""
    words = sorted(_lower_words(sentence), key=lambda word: -len(word[0]))
    for word in words:
        letters, middle = word[0], len(word[0]) // 2
        # From the middle outwards; the first and the last letter are kept.
        for at in sorted(range(1, len(letters) - 2), key=lambda place: (abs(place - middle), place)):
            if letters[at] != letters[at + 1]:
                start = word.start() + at
                return sentence[:start] + letters[at + 1] + letters[at] + sentence[start + 2 :]
    return None


def reorder_words(sentence: str) -> str | None:
    """Swaps the first and the last word that are not function words: dog bites man, man bites dog."""
    words = [word for word in _WORD.finditer(sentence) if word[0].isalpha() and word[0].lower() not in _FUNCTION_WORDS]
    if len(words) < 2 or words[0][0].lower() == words[-1][0].lower():
        return None
    first, last = words[0], words[-1]
    opens = not _WORD.search(sentence[: first.start()])
    # The capital at the beginning of the sentence stays there.
    moved, opening = first[0], last[0]
    if opens and first[0].istitle():
        moved, opening = first[0].lower(), last[0][0].upper() + last[0][1:]
    return sentence[: first.start()] + opening + sentence[first.end() : last.start()] + moved + sentence[last.end() :]


def _lower_words(sentence: str) -> Iterator[re.Match[str]]:
    return re.finditer(r"(?<![\w'\u2019-])[a-z]{5,}(?![\w'\u2019-])", sentence)


def _match_case(pattern: str, word: str) -> str:
    """The word, capitalised if `pattern` is."""
    return word.capitalize() if pattern[0].isupper() else word
