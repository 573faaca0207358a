"""Differences that a cosine does not show: two texts that are nearly the same except for a number or a negation.

Each text is analysed once; pairs are then compared as arrays. Numbers are compared as the set of values that are
written in digits, in any script. Negation is compared in English only: a text counts as English if it has more function
words of English than of any other language below.
"""

import dataclasses
import re
import unicodedata
from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa
import regex

_HAS_DIGIT = re.compile(r"\d")
_FRACTION = regex.compile(r"\p{No}")  # also superscripts; NFKC alone would turn 2½ into 21/2
_OTHER_DIGIT = re.compile(r"(?![0-9])\d")
_CLOCK = re.compile(r"\b(\d{1,2})(?::(\d\d)(?![\d:]))?(?:(?:\.(\d\d))? ?([ap])\.?m\b)?")
_MONTH_NAMES = """
    jan january/feb february/mar march/apr april/may/jun june/jul july/aug august/sep sept september/oct october
    /nov november/dec december
"""
_MONTHS = {name: str(number) for number, names in enumerate(_MONTH_NAMES.split("/"), start=1) for name in names.split()}
_ANY_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_MONTH_BEFORE = re.compile(rf"\b({_ANY_MONTH})\b(?=\.?,? ?\d)")
_MONTH_AFTER = re.compile(rf"(?<=\d)(?:st|nd|rd|th)?(?: of)?[ -]({_ANY_MONTH})\b")
# Prefixes of words that multiply the number before them, and the power of ten.
_SCALES = {
    word: power
    for power, words in {
        3: "thousand",
        4: "万 萬 만",
        6: "million millon millón milion miljo milh миллион млн",
        8: "亿 億 억",
        9: "billion milliard miliard miljard миллиард млрд",
        12: "trillion",
    }.items()
    for word in words.split()
}
_SHORT_SCALES = {"k": 3, "mn": 6, "bn": 9, "mln": 6, "mld": 9}
_MONEY_SCALES = {"m": 6, "b": 9}  # without a currency before the number, they are metres and bytes
_CURRENCY = "$€£¥₹₩₽₺₫₴₦₱₪¢"
_NUMBER = re.compile(
    rf"""
    (?P<sign>(?<![\w.,)%])[-\u2212](?=[{_CURRENCY}.]?\d))?
    (?P<money>[{_CURRENCY}]\ ?)?
    (?:
      (?P<grouped>[1-9]\d{{0,2}}(?:(?P<mark>[,.'\u2019_\ ])\d{{3}})(?:(?P=mark)\d{{3}})*)(?!\d|(?P=mark)\d)
        (?:[.,](?P<cents>\d+))?
    | (?P<date>\d{{1,2}}\.\d{{1,2}}\.\d{{4}})(?![\d.]*\d)
    | (?P<plain>(?:(?<![\w.])\.)?\d+(?:[.,]\d+)*)
    )
    (?P<unit>\ ?[%{_CURRENCY}])?
    (?:[\ -]?(?P<scale>{"|".join(_SCALES)})|[\ ]?(?P<short>{"|".join(_SHORT_SCALES)}|[mb])\b)?
    """,
    re.VERBOSE,
)


def numbers_in(text: str) -> frozenset[str]:
    """The numbers that a text has in digits, without thousands separators.

    1,000 and 1000 are the same number, and so are 3.5 and 3,5, 5.0 and 5, 5kg and 5 kg, 2 million and 2,000,000, the
    parts of dates in any order, and digits of all scripts. Versions are not decimals: 3.10 is not 3.1. Number words,
    units, the order of numbers and the count of each are not compared.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _FRACTION.sub(lambda match: f" {match[0]} ", text))
        text = _OTHER_DIGIT.sub(lambda match: str(unicodedata.decimal(match[0])), text)
        text = text.replace("\u066b", ".").replace("\u066c", ",")
    if not _HAS_DIGIT.search(text):
        return frozenset()
    text = _CLOCK.sub(_hour_and_minute, text.lower())
    for pattern in (_MONTH_BEFORE, _MONTH_AFTER):
        text = pattern.sub(lambda match: f" {_MONTHS[match[1]]} ", text)
    return frozenset(value for match in _NUMBER.finditer(text) for value in _values(match))


def _hour_and_minute(match: re.Match[str]) -> str:
    """A time of day as the hour (0 to 23), and the minute if it is not 0; other numbers unchanged."""
    hour, minute, half = int(match[1]), match[2] or match[3], match[4]
    if not (match[2] or half):
        return match[0]
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    return f" {hour} {minute} " if minute and int(minute) else f" {hour} "


def _values(match: re.Match[str]) -> list[str]:
    """The numbers in one match; a date or a list has several."""
    if match["date"]:
        return [_plain(part) for part in match["date"].split(".")]
    if match["grouped"]:
        number = re.sub(r"\D", "", match["grouped"]) + (f".{match['cents']}" if match["cents"] else "")
        parts = [number]
    else:
        parts = [match["plain"]] if match["plain"].count(",") < 2 else match["plain"].split(",")
    values = [_plain(part, exact=not (match["money"] or match["unit"])) for part in parts]
    power = _SCALES.get(match["scale"]) or _SHORT_SCALES.get(match["short"])
    if match["money"]:
        power = power or _MONEY_SCALES.get(match["short"])
    if power and values[-1].count(".") < 2:
        values[-1] = _plain(format(Decimal(values[-1]).scaleb(power), "f"), exact=False)
    return [f"-{value}" if match["sign"] else value for value in values]


def _plain(number: str, exact: bool = True) -> str:
    """A number without insignificant zeros; `exact` keeps trailing zeros, as the number may be a version."""
    whole, *rest = number.replace(",", ".").split(".")
    whole = whole.lstrip("0") or "0"
    if len(rest) == 1 and not rest[0].strip("0"):
        return whole
    if len(rest) == 1 and not exact:
        rest = [rest[0].rstrip("0")]
    return ".".join([whole, *rest])


# Function words of English, and of languages that share some of them. Words of English only decide a tie.
_FUNCTION_WORDS = {
    "english": "a about after all also always am an and any are as at be because been before but by can cannot could "
    "did do does every for from get had has have he her his how i if in into is it its just longer may me more most "
    "must my need neither never no nobody none nor not nothing of off on only or our out over she should so some than "
    "that the their them then there these they this those through to too under up us very was we were what when where "
    "which while who whose why will with without would you your aren couldn didn doesn hasn haven isn ll shouldn ve "
    "wasn weren wouldn",
    "german": "aber als am an auch auf aus bei bin bis das dass dem den der des die du ein eine einen er es für hat "
    "ich ihr im in ist kann kein keine man mehr mein mit nach nicht noch nur oder sich sie sind so um und uns von vor "
    "war was wenn wie will wir wird zu zum zur über",
    "french": "a au aux avec c ce cette dans de des du elle en est et il ils j je l la le les leur ma mais me mes "
    "mon n ne nous on or ou où par pas plus pour qu que qui sa se ses si son sont sur tu un une vous y à été",
    "spanish": "a al como con cuando de del donde el ella en era es ese está este ha han has hay he la las le les lo "
    "los más me mi muy no nos o para pero por porque que qué se ser si sin son su sus también te tiene todo un una y "
    "ya yo",
    "italian": "a al alla anche che chi come con cosa da dei del della di dove e gli ha hanno ho i il in io l la le lo "
    "ma me mi mio no non o per più quando questo se si sono su suo tu un una è",
    "portuguese": "a ao as com como da das de do dos e ela ele em era essa este eu foi há isso isto já mais mas me meu "
    "muito na nas no nos não o os ou para pela pelo por que quem se sem ser seu sua também te tem um uma você à é",
    "dutch": "aan al als ben bij dan dat de deze die dit door een en er ga geen had heb hebben heeft het hij hoe ik in "
    "is je kan maar me met mijn naar niet nog of om onder ook op over te tot u uit van veel voor waar was wat we wel "
    "werd wij ze zich zij zijn",
    "scandinavian": "af alle at att av blev de dem den der det dig du eg en er et ett for fra från får för ha hade han "
    "har hun hva hvad hvor i ikke ikkje inte jag jeg kan med men mer mig min mitt må når när och og om på sig sin skal "
    "som så ta til till to under upp ut vad var vi vil är år å",
    "slavic": "a ale bi by być co czy da do gdy go i ich ili ja jak jako je jej jest jestem jsem k ke která který lub "
    "mam mi mnie moj my na nad ne není nie nije o od on ona oni po pod před przez pri są se si sie się so su sú ta tak "
    "tam te ten to tu ty u v ve w we z za ze że že",
}
_MIN_FUNCTION_SHARE = 0.15  # of the words of an English text are English function words
_WORD = re.compile(r"[^\W\d_]+")  # don't is two words
UNKNOWN, ENGLISH, OTHER = 0, 1, 2

_NEGATIONS = frozenset(
    """
    not no never none nobody nothing nowhere neither nor without cannot unable aint cant couldnt didnt doesnt dont
    hadnt hasnt havent isnt mustnt shouldnt wasnt werent wont wouldnt
    """.split()  # noqa: SIM905
)
# Phrases with a negation word that negate nothing.
_IDIOMS = re.compile(
    r"\bnot (?:only|just|merely|simply|to mention|least)\b|\bno (?:doubt|matter|wonder|problem|one's)\b|\bno\. ?\d"
    r"|\bno (?:more|less|fewer|later|earlier) than\b|\b(?:whether|if) or not\b|\bor not\b|\bwhy not\b"
    r"|\bnothing (?:but|less|more) |\byes or no\b|, (?:\w+n't|no|not) (?:it|he|she|they|you|we|i|that)\?"
    # At the start of a question, the negation is only a form of asking.
    r"|(?:^|[.?!,] *)(?:are|was|were|is|does|did|has|have|had|will|would|could|should|can|wo|ca)n't (?=[^.!]*\?)"
)


def _word_counters() -> dict[str, int]:
    """For each function word and negation, an integer of 32-bit fields; summed over a text, the fields are counts.

    The first fields count the function words of each language, the next those of English only, the last the negations.
    """
    languages: dict[str, list[int]] = {word: [] for word in _NEGATIONS}
    for field, words in enumerate(_FUNCTION_WORDS.values()):
        for word in words.split():
            languages.setdefault(word, []).append(field)
    own, negation = len(_FUNCTION_WORDS), len(_FUNCTION_WORDS) + 1
    return {
        word: sum(1 << 32 * field for field in [*found, *[own] * (found == [0]), *[negation] * (word in _NEGATIONS)])
        for word, found in languages.items()
    }


_WORD_COUNTERS = _word_counters()


def language_and_negations(text: str) -> tuple[int, int]:
    """The language of a text, and the number of English negations in it; idioms that negate nothing do not count.

    The language is OTHER if the text has more function words of another language, and UNKNOWN if there are too few.
    """
    text = text.replace("\u2019", "'").lower()
    words = _WORD.findall(text)
    total = sum([_WORD_COUNTERS.get(word, 0) for word in words])  # a list: faster than a generator
    counts = [total >> 32 * field & 0xFFFFFFFF for field in range(len(_FUNCTION_WORDS) + 2)]
    english, others, own, negations = counts[0], max(counts[1:-2]), counts[-2], counts[-1] + text.count("n't")
    if negations:
        negations -= len(_IDIOMS.findall(text))
    if others > english:
        return OTHER, negations
    wins = english > others or own
    return ENGLISH if wins and english >= _MIN_FUNCTION_SHARE * len(words) else UNKNOWN, negations


@dataclasses.dataclass(frozen=True, eq=False)
class Contrasts:
    """What is compared of n texts; built once, then used for any number of pairs of them."""

    numbers: np.ndarray  # (n,) int64: equal for texts with the same numbers
    languages: np.ndarray  # (n,) int8: UNKNOWN, ENGLISH or OTHER
    negated: np.ndarray  # (n,) bool

    @classmethod
    def of(cls, texts: Sequence[str]) -> "Contrasts":
        """Analyses each text."""
        keys: dict[frozenset[str], int] = {}
        numbers, languages = np.empty(len(texts), np.int64), np.empty(len(texts), np.int8)
        negated = np.empty(len(texts), bool)
        for place, text in enumerate(texts):
            numbers[place] = keys.setdefault(numbers_in(text), len(keys))
            languages[place], negations = language_and_negations(text)
            negated[place] = negations > 0
        return cls(numbers, languages, negated)

    def numbers_differ(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Whether (m,) the numbers of texts `first` (m,) and `second` (m,) differ; texts are given by their places."""
        return self.numbers[first] != self.numbers[second]

    def negation_differs(self, first: np.ndarray, second: np.ndarray) -> pa.BooleanArray:
        """Whether (m,) one text has a negation and the other has none; null unless the texts are English.

        They are if one is English and the other is English or UNKNOWN.
        """
        languages = self.languages[first], self.languages[second]
        is_english = (np.minimum(*languages) < OTHER) & (np.maximum(*languages) == ENGLISH)
        return pa.array(self.negated[first] != self.negated[second], mask=~is_english)
