"""Writes the demo corpus: support tickets of an invented online shop, and which of them say the same thing.

Run ``python demo/make_corpus.py``. It needs pyarrow only, and with the same pyarrow writes the same bytes every time.
"""

import random
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import tickets as en
import tickets_de_es_fr as intl

SEED = 20250901
SHARDS = 4
START = datetime(2025, 9, 1)
DAYS = 90
LANG_SHARES = {"de": 0.056, "es": 0.048, "fr": 0.041}  # The rest is English.
EXACT_COPIES = 0.02
NEAR_COPIES = 0.03
SHARE_IN_PAIRS = 0.25  # Of the rows that are no copies.

GREETINGS = {"en": en.GREETINGS, **intl.GREETINGS}
NAMES = {"en": en.NAMES, **intl.NAMES}
THANKS = {"en": en.THANKS, **intl.THANKS}
ANGER = {"en": en.ANGER, **intl.ANGER}
ORDER_NOTES = {"en": en.ORDER_NOTES, **intl.ORDER_NOTES}
SLOTS = {"en": en.SLOTS, **intl.SLOTS}
TICKETS = {"en": en.TICKETS, **intl.TICKETS}
OFF_TOPIC = {"en": en.OFF_TOPIC, **intl.OFF_TOPIC}

# First words that go lower-case after a greeting.
LOWERED_AFTER_GREETING = re.compile(
    "(?:Where|Can|Could|How|My|The|Please|Is|Do|Does|What|When|Why|Still|There|It's|It|You|This|Which|Any|Just|Are|"
    "Wo|Wann|Ich|Können|Kann|Wie|Die|Mir|Bitte|Warum|Mein|Meine|Das|Quiero|Necesito|Me|La|No|Llevo|Hace|He|"
    "Où|Je|J'ai|Il|Quand|Pouvez-vous|Ma|Mon|Le|Comment|Pourquoi|Vous) "
)
# Phrasings about one order rather than about the shop's rules.
ABOUT_AN_ORDER = re.compile(r"\b(my|order|parcel|item|mein|meine|mi|pedido|mon|ma|commande)\b", re.IGNORECASE)
SHORT_FORMS = {"please": "pls", "thanks": "thx", "because": "cause", "you": "u", "your": "ur", "and": "&"}
WEEKDAY_WEIGHTS = [1.5, 1.3, 1.1, 1.0, 1.0, 0.7, 0.6]
HOUR_WEIGHTS = [1, 0.5, 0.3, 0.2, 0.2, 0.5, 1.5, 3, 5, 7, 8, 8, 7, 7, 7, 7, 6, 6, 6, 7, 8, 7, 4, 2]


@dataclass(frozen=True)
class Intent:
    """Something a customer may want, in one language, with the ways to word it."""

    topic: str
    name: str
    lang: str
    phrasings: tuple[str, ...]

    @property
    def heated(self) -> bool:
        """Whether a customer with this intent may be angry."""
        return f"{self.topic}.{self.name}" in en.HEATED_INTENTS


@dataclass(eq=False)
class Row:
    """A ticket; its id is given once all are made."""

    text: str
    topic: str
    lang: str
    created_at: datetime
    id: str = ""


def slot_names(phrasing: str) -> frozenset[str]:
    """The slots of a phrasing."""
    return frozenset(re.findall(r"\{(\w+)\}", phrasing))


def draw_slots(names: Iterable[str], lang: str, rng: random.Random) -> dict[str, str]:
    """Values for these slots, fitting each other where they must."""
    values: dict[str, str] = {}
    for name in sorted(names):
        if name == "no":
            values[name] = str(rng.randrange(4_100_000, 4_900_000))
        elif name in SLOTS[lang]:
            values[name] = rng.choice(SLOTS[lang][name])
        elif name not in values:
            group = next(group for group in en.JOINT_SLOTS if name in group)
            values.update(zip(group, rng.choice(en.JOINT_SLOTS[group]), strict=True))
    return values


def fill(phrasing: str, values: dict[str, str], rng: random.Random) -> str:
    """The phrasing with its choices made and its slots filled."""
    text = re.sub(r"\[([^\]]*)\]", lambda match: rng.choice(match[1].split("|")), phrasing)
    text = re.sub(r"\s+([.,])", r"\1", re.sub(r"  +", " ", text))
    return text.format_map(values).strip()


def with_typo(text: str, rng: random.Random) -> str:
    """The text with one slip of the fingers in a word of at least four letters, or unchanged if it has none."""
    words = [match for match in re.finditer(r"[^\W\d_]{4,}", text) if not match[0].isupper()]
    if not words:
        return text
    word = rng.choice(words)
    at = rng.randrange(word.start() + 1, word.end() - 1)
    slips = [text[:at] + text[at + 1 :], text[: at + 1] + text[at:]]  # A letter left out; a letter typed twice.
    if text[at] != text[at + 1]:
        slips += [text[:at] + text[at + 1] + text[at] + text[at + 2 :]] * 2  # Two letters swapped.
    return rng.choice(slips)


def with_other_marks(text: str, rng: random.Random) -> str:
    """The text with another end or another first letter."""
    bare = text.rstrip(" .!?")
    return rng.choice([bare, bare + rng.choice(["!", "...", "??", " ?"]), text[0].swapcase() + text[1:]])


def ended(text: str) -> str:
    """The text with a mark at its end, so that a sentence can follow."""
    return text if text[-1] in ".!?,:)" else text + "."


def casual(text: str, lang: str, rng: random.Random) -> str:
    """The text as typed on a phone in a hurry: lower-case, few marks, some short forms."""
    words = [word if re.match(r"[A-Z]{3,}\d|[A-Z]{5,}", word) else word.lower() for word in text.split(" ")]
    if lang == "en":
        words = [SHORT_FORMS[word] if word in SHORT_FORMS and rng.random() < 0.2 else word for word in words]
    text = " ".join(words)
    if lang == "en" and rng.random() < 0.4:
        text = text.replace("'", "")
    if lang == "es" and rng.random() < 0.8:
        text = text.replace("¿", "")
    if text.endswith(".") or rng.random() < 0.35:
        text = text[:-1] if text[-1] in ".?!" else text
    elif text.endswith("?") and rng.random() < 0.2:
        text += "?"
    return text.strip()


def polite(text: str, lang: str, rng: random.Random) -> str:
    """The text with a greeting, a word of thanks, or both."""
    greeted, thanked = rng.choice([(True, False), (False, True), (True, True)])
    if thanked:
        text = f"{ended(text)} {rng.choice(THANKS[lang]).format(name=rng.choice(NAMES[lang]))}"
    if greeted:
        if LOWERED_AFTER_GREETING.match(text) and rng.random() < 0.7:
            text = text[0].lower() + text[1:]
        text = f"{rng.choice(GREETINGS[lang])} {text}"
    return text


def angry(text: str, lang: str, rng: random.Random) -> str:
    """The text with louder marks, an outburst, or both."""
    kind = rng.random()
    if kind < 0.12 and len(text) < 60:
        return text.rstrip(".").upper()
    if kind < 0.6 and text[-1] in ".!?":
        text = text.rstrip(".!? ") + rng.choice(["??", "?!"] if text[-1] == "?" else ["!", "!!", "!!!"])
    if kind > 0.3:
        outburst = rng.choice(ANGER[lang])
        text = f"{outburst} {text}" if rng.random() < 0.25 else f"{ended(text)} {outburst}"
    return text


def voiced(text: str, intent: Intent, rng: random.Random, *, to_the_point: bool) -> str:
    """The text in the voice of some customer; one who is to the point adds nothing to what is said."""
    voice = rng.random()
    if voice < 0.22:
        text = casual(text, intent.lang, rng)
    elif voice < 0.38:
        text = polite(text, intent.lang, rng)
    elif to_the_point:
        pass
    elif voice < 0.50 and intent.heated:
        text = angry(text, intent.lang, rng)
    elif 0.5 <= voice < 0.54 and intent.lang == "en":
        asides = en.ASIDES_HEATED if intent.heated else en.ASIDES
        text = f"{ended(text)} {rng.choice(asides)}"
    if rng.random() < (0.04 if to_the_point else 0.09):
        text = with_typo(text, rng)
    return text


def with_order_note(text: str, number: str, lang: str, rng: random.Random) -> str:
    """The text with the number of the order before or after it."""
    note = rng.choice(ORDER_NOTES[lang]).format(no=number)
    if note[0] == "(":
        end = re.search(r"\s?[.?!]*$", text)
        return f"{text[: end.start()]} {note}{end[0]}" if end else f"{text} {note}"
    return f"{note.rstrip('.')}: {text}" if rng.random() < 0.2 else f"{ended(text)} {note}"


class Corpus:
    """The rows and pairs made so far."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.rows: list[Row] = []
        self.pairs: list[tuple[Row, Row]] = []
        self._seen: set[str] = set()
        self._texts: set[str] = set()
        self._uses: Counter[tuple[str, str]] = Counter()

    def moment(self) -> datetime:
        """A time within the period, more often on weekdays and by day."""
        days = [START + timedelta(days=day) for day in range(DAYS)]
        day = self.rng.choices(days, [WEEKDAY_WEIGHTS[day.weekday()] for day in days])[0]
        hour = self.rng.choices(range(24), HOUR_WEIGHTS)[0]
        return day + timedelta(hours=hour, seconds=self.rng.randrange(3600))

    def is_new(self, text: str) -> bool:
        """Whether no row says this yet, marks and case aside."""
        return re.sub(r"\W+", " ", text).strip().lower() not in self._seen

    def add(self, text: str, topic: str, lang: str, created_at: datetime | None = None) -> Row:
        """Adds a row and returns it."""
        row = Row(text, topic, lang, created_at or self.moment())
        self.rows.append(row)
        self._texts.add(text)
        self._seen.add(re.sub(r"\W+", " ", text).strip().lower())
        return row

    def word(
        self, intent: Intent, phrasing: str, values: dict[str, str], order: str | None, *, to_the_point: bool
    ) -> str | None:
        """A new text for this phrasing, or None when none was found."""
        for _ in range(20):
            text = fill(phrasing, values, self.rng)
            if order is not None:
                text = with_order_note(text, order, intent.lang, self.rng)
            text = voiced(text, intent, self.rng, to_the_point=to_the_point)
            if self.is_new(text) and len(text.split()) <= 30:
                self._uses[intent.lang, phrasing] += 1
                return text
        return None

    def least_used(self, intent: Intent, phrasings: Iterable[str]) -> list[str]:
        """The phrasings, those used least first, ties in random order."""
        return sorted(phrasings, key=lambda phrasing: (self._uses[intent.lang, phrasing], self.rng.random()))

    def order_note(self, intent: Intent, phrasing: str) -> str | None:
        """The number of the order, if the customer gives one beside the phrasing."""
        about_an_order = intent.heated or ABOUT_AN_ORDER.search(phrasing) is not None
        if intent.topic not in en.TOPICS_WITH_ORDER or not about_an_order or "{no}" in phrasing:
            return None
        return draw_slots(["no"], intent.lang, self.rng)["no"] if self.rng.random() < 0.18 else None

    def add_single(self, intent: Intent) -> bool:
        """Adds a row of this intent; returns whether it could."""
        phrasing = self.least_used(intent, intent.phrasings)[0]
        values = draw_slots(slot_names(phrasing), intent.lang, self.rng)
        text = self.word(intent, phrasing, values, self.order_note(intent, phrasing), to_the_point=False)
        if text is None:
            self._uses[intent.lang, phrasing] += 1  # Used up: leave it to others for a while.
            return False
        self.add(text, intent.topic, intent.lang)
        return True

    def add_pair(self, intent: Intent) -> bool:
        """Adds two rows that say the same thing in different words; returns whether it could."""
        first = self.least_used(intent, intent.phrasings)[0]
        names = slot_names(first)
        if not names:
            return False  # Nothing says that two such rows are about the same case.
        others = [other for other in intent.phrasings if other != first and slot_names(other) == names]
        if not others:
            return False
        values = draw_slots(names, intent.lang, self.rng)
        order = self.order_note(intent, first)
        second = self.least_used(intent, others)[0]
        texts = [self.word(intent, phrasing, values, order, to_the_point=True) for phrasing in (first, second)]
        if texts[0] is None or texts[1] is None:
            return False
        row_a, row_b = (self.add(text, intent.topic, intent.lang) for text in texts if text is not None)
        self.pairs.append((row_a, row_b))
        return True

    def add_tickets(self, topic: str, lang: str, count: int) -> None:
        """Adds this many rows of a topic in a language, some of them in pairs."""
        intents = [Intent(topic, name, lang, tuple(texts)) for name, texts in TICKETS[lang][topic].items()]
        weights = [len(intent.phrasings) * self.rng.uniform(0.6, 1.5) for intent in intents]
        left = count
        pairs = round(count * SHARE_IN_PAIRS / 2)
        for _ in range(100 * count):
            if not left:
                return
            intent = self.rng.choices(intents, weights)[0]
            if pairs and left >= 2 and self.add_pair(intent):
                pairs -= 1
                left -= 2
            elif self.add_single(intent):
                left -= 1
        raise RuntimeError(f"not enough material for {count} rows of {topic} in {lang}")

    def add_off_topic(self, lang: str, count: int) -> None:
        """Adds this many rows that belong to no topic."""
        for text in self.rng.sample(OFF_TOPIC[lang], count):
            self.add(casual(text, lang, self.rng) if self.rng.random() < 0.2 else text, "other", lang)

    def add_copies(self, topic: str, exact: int, near: int) -> None:
        """Adds copies of rows of a topic, as customers make who write again a little later."""
        end = START + timedelta(days=DAYS)
        originals = [row for row in self.rows if row.topic == topic]
        for number, row in enumerate(self.rng.sample(originals, exact + near)):
            text = row.text
            while number >= exact and text in self._texts:
                change = with_typo if self.rng.random() < 0.6 else with_other_marks
                text = change(row.text, self.rng).strip()
            later = row.created_at + timedelta(seconds=int(self.rng.expovariate(1 / 20_000)) + 40)
            self.add(text, topic, row.lang, later if later < end else row.created_at)


def make_corpus() -> Corpus:
    """The corpus: rows in the order of their creation, with ids, and pairs of them."""
    corpus = Corpus(random.Random(SEED))
    for topic, count in en.TOPIC_ROWS.items():
        exact, near = round(count * EXACT_COPIES), round(count * NEAR_COPIES)
        base = count - exact - near
        per_lang = {lang: round(base * share) for lang, share in LANG_SHARES.items()}
        per_lang["en"] = base - sum(per_lang.values())
        for lang, rows in per_lang.items():
            if topic == "other":
                corpus.add_off_topic(lang, rows)
            else:
                corpus.add_tickets(topic, lang, rows)
        corpus.add_copies(topic, exact, near)
    corpus.rows.sort(key=lambda row: (row.created_at, row.text))
    for number, row in enumerate(corpus.rows):
        row.id = f"t{number:06d}"
    return corpus


def write_corpus(corpus: Corpus, folder: Path) -> None:
    """Writes the shards of rows, shuffled, and the pairs."""
    rows = corpus.rng.sample(corpus.rows, len(corpus.rows))
    schema = pa.schema(
        [
            ("id", pa.string()),
            ("text", pa.string()),
            ("topic", pa.string()),
            ("lang", pa.string()),
            ("created_at", pa.timestamp("s")),
        ]
    )
    (folder / "sentences").mkdir(exist_ok=True)
    for shard in range(SHARDS):
        part = rows[shard::SHARDS]
        columns = {name: [getattr(row, name) for row in part] for name in schema.names}
        path = folder / "sentences" / f"part-{shard:05d}.parquet"
        pq.write_table(pa.table(columns, schema=schema), path, compression="zstd")
    pairs = sorted((min(a.id, b.id), max(a.id, b.id)) for a, b in corpus.pairs)
    table = pa.table({"id_a": [a for a, _ in pairs], "id_b": [b for _, b in pairs]})
    pq.write_table(table, folder / "gold_pairs.parquet", compression="zstd")


def main() -> None:
    """Writes the corpus next to this file and prints what it holds."""
    corpus = make_corpus()
    write_corpus(corpus, Path(__file__).resolve().parent)
    print(f"{len(corpus.rows)} rows, {len(corpus.pairs)} pairs")
    for key in ("topic", "lang"):
        print(*Counter(getattr(row, key) for row in corpus.rows).most_common())


if __name__ == "__main__":
    main()
