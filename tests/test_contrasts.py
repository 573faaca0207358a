"""Numbers and negation by hand: a table of what differs, what does not, and what is not known."""

import numpy as np
import pytest

from sbert_core.neighbors.contrasts import Contrasts, numbers_in


def compare(first: str, second: str) -> tuple[bool, bool | None]:
    """Whether numbers differ, whether negation does; the same in both directions."""
    contrasts = Contrasts.of([first, second])
    one, two = np.array([0, 1]), np.array([1, 0])
    numbers, negation = contrasts.numbers_differ(one, two).tolist(), contrasts.negation_differs(one, two).to_pylist()
    assert numbers[0] == numbers[1]
    assert negation[0] == negation[1]
    return numbers[0], negation[0]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("1,000 users", "1000 users"),
        ("1.000 Nutzer", "1000 Nutzer"),
        ("1\u00a0000\u202f000 rows", "1,000,000 rows"),
        ("1'000", "1000"),
        ("1,234.56", "1.234,56"),
        ("3.5 hours", "3,5 hours"),
        (".5", "0.5"),
        ("5.0", "5"),
        ("$3.50", "$3.5"),
        ("3.50%", "3.5 %"),
        ("5kg", "5 kg"),
        ("the 1st", "the 1"),
        ("v1.2.3", "version 1.2.3"),
        ("2 million", "2,000,000"),
        ("£2.8bn", "2.8 billion pounds"),
        ("$5m", "5,000,000 dollars"),
        ("10k", "10,000"),
        ("2 Millionen", "2.000.000"),
        ("3万", "30000"),
        ("2020-05-01", "May 1, 2020"),
        ("1st of May 2020", "01.05.2020"),
        ("5/1/2020", "1 May 2020"),
        ("at 8:00", "at 8 am"),
        ("3 p.m.", "15:00"),
        ("08:30", "8:30"),
        ("from 5 to 10", "10 and 5"),
        ("2019-2020", "2019 to 2020"),
        ("7 times 7", "7"),
        ("\u0663\u066b\u0665", "3.5"),  # Arabic digits
        ("\u0967\u0968", "12"),  # Devanagari digits
        ("\uff11\uff12", "12"),  # full-width digits
        ("2\u00bd", "2 1/2"),
        ("m\u00b2", "m2"),
        ("H2O", "h2o"),
        ("done in 1999.", "1999: done"),
        ("it may be 5", "5 it is"),
        ("two dogs", "three dogs"),  # number words are words
        ("5 km", "5 miles"),  # units are words
        ("", "nothing"),
    ],
)
def test_same_numbers(first, second):
    assert compare(first, second)[0] is False


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("port 8080", "port 8081"),
        ("1,000", "10,000"),
        ("3.5", "35"),
        ("Python 3.10", "Python 3.1"),
        ("1.2.3", "1.2.4"),
        ("192.168.0.1", "192.168.0.10"),
        ("-5 degrees", "5 degrees"),
        ("2 million", "2 billion"),
        ("5 miljoen", "5 miljard"),
        ("MP3", "MP4"),
        ("April 5", "May 5"),
        ("8 am", "8 pm"),
        ("2019", "2020"),
        ("error 404", "error"),
        ("12 rows", "12 rows of 13"),
        ("\u0663", "\u0664"),
        ("5m", "5,000,000"),  # metres
    ],
)
def test_other_numbers(first, second):
    assert compare(first, second)[0] is True


def test_numbers_of_a_text():
    assert numbers_in("On 3 May 2021, 1,500 of 2.5 million (0.06%)") == {"3", "5", "2021", "1500", "2500000", "0.06"}
    assert numbers_in("no digits at all") == frozenset()


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("the door is open", "the door is not open", True),
        ("always lock the door", "never lock the door", True),
        ("I can open it", "I can't open it", True),
        ("I can open it", "I can\u2019t open it", True),
        ("you can open it", "you cannot open it", True),
        ("it works with a key", "it works without a key", True),
        ("the item is available", "the item is no longer available", True),
        ("there is a man in the room", "there is no man in the room", True),
        ("Payment failed", "Payment has not failed", True),  # the other text tells the language
        ("Tom is happy", "Tom is not happy", True),
        ("why is it working", "why isnt it working", True),
        ("the door is not open", "the door isn't open", False),
        ("nobody came to the party", "no one came to the party", False),
        ("the door is open", "the door is closed", False),  # antonyms are not negation
        ("it is fast", "it is not only fast", False),
        ("it is room 5", "it is No. 5", False),
        ("is it open or closed?", "isn't it open?", False),
        ("tell me if it is open", "tell me whether or not it is open", False),
        ("there is no doubt that it works", "it works", False),
        # Not English, or nothing that tells.
        ("la puerta est\u00e1 abierta", "la puerta no est\u00e1 abierta", None),
        ("la porta \u00e8 aperta", "la porta non \u00e8 aperta", None),
        ("die T\u00fcr ist offen", "die T\u00fcr ist nicht offen", None),
        (
            "dverie s\u00fa otvoren\u00e9",
            "\u0434\u0432\u0435\u0440\u044c \u043e\u0442\u043a\u0440\u044b\u0442\u0430",
            None,
        ),
        ("the door is open", "die T\u00fcr ist nicht offen", None),
        ("Payment failed", "Payment successful", None),
        ("\u9580\u304c\u958b\u3044\u3066\u3044\u308b", "\u9580\u304c\u958b\u3044\u3066\u3044\u306a\u3044", None),
        ("", "", None),
    ],
)
def test_negation(first, second, expected):
    assert compare(first, second)[1] is expected


def test_a_text_does_not_differ_from_itself():
    texts = ["the door is not open at 8:30", "Payment failed", "el n\u00famero 5", ""]
    contrasts, places = Contrasts.of(texts), np.arange(4)
    assert not contrasts.numbers_differ(places, places).any()
    assert contrasts.negation_differs(places, places).to_pylist() == [False, None, None, None]


def test_no_texts():
    none = np.empty(0, np.int64)
    assert Contrasts.of([]).numbers_differ(none, none).tolist() == []
    assert Contrasts.of([]).negation_differs(none, none).to_pylist() == []
