import numpy as np
import pytest

from sbert_core.errors import DataError
from sbert_core.evaluation.edits import change_number, find_names, make_typo, negate, reorder_words, swap_entity
from sbert_core.evaluation.probes_task import PROBES, evaluate_probes, make_probes


@pytest.mark.parametrize(
    ("sentence", "edited"),
    [
        ("A man is playing a flute.", "A man is not playing a flute."),
        ("They have eaten all of it.", "They have not eaten all of it."),
        ("They have a house.", None),
        ("He does not like it.", "He does like it."),
        ("He can't see.", "He can see."),
        ("I won\u2019t go.", "I will go."),
        ("They didn't go.", "They did go."),
        ("Can't you see?", "Can you see?"),
        ("Don't open the door.", "Open the door."),
        ("Open a can of beans with the will to eat.", None),
        ("Is he here?", None),
        ("Dogs bark.", None),
        ("", None),
    ],
)
def test_negation(sentence, edited):
    assert negate(sentence) == edited


@pytest.mark.parametrize(
    ("sentence", "edited"),
    [
        ("He has 3 dogs and 4 cats.", "He has 6 dogs and 4 cats."),
        ("It was in 1999, he said.", "It was in 2002, he said."),
        ("1,000 people", "4,000 people"),
        ("It costs $3.50.", "It costs $6.50."),
        ("Agent 007", "Agent 010"),
        ("Two men met 5 women.", "Five men met 5 women."),
        ("twenty dogs", "four dogs"),
        ("The 3rd man took a B52 at 10:30 on 1/2.", None),
        ("one of them", None),
        ("", None),
    ],
)
def test_number_change(sentence, edited):
    assert change_number(sentence) == edited


@pytest.mark.parametrize(
    ("sentence", "edited"),
    [
        ("A man is playing a flute.", "A man is plaiyng a flute."),
        ("The kitten sleeps.", "The kitetn sleeps."),
        ("aaaaa kittens", "aaaaa kitetns"),
        ("McDonald's is near", None),
        ("a cat", None),
        ("", None),
    ],
)
def test_typo(sentence, edited):
    assert make_typo(sentence) == edited


@pytest.mark.parametrize(
    ("sentence", "edited"),
    [
        ("Dogs chase cats.", "Cats chase dogs."),
        ("A man is playing a flute.", "A flute is playing a man."),
        ("He can't see 3.5 of the people here", "He can't people 3.5 of the see here"),
        ("NASA saw it from space", "space saw it from NASA"),
        ("dogs like dogs", None),
        ("It is what it is.", None),
        ("", None),
    ],
)
def test_word_order(sentence, edited):
    assert reorder_words(sentence) == edited


@pytest.mark.parametrize(
    ("sentence", "names"),
    [
        ("The two dogs met Angela Merkel in Paris on Monday.", ["Angela Merkel", "Paris"]),
        ("Stocks Fall As Fed Raises Rates", []),
        ("It ended. Then all of it went on in Rome.", ["Rome"]),
        ("", []),
    ],
)
def test_names(sentence, names):
    assert find_names(sentence) == names


def test_entity_swap_takes_another_name():
    sentence = "He lives in Paris, not far from London."
    assert swap_entity(sentence, ["Paris", "London", "Rome"]) == "He lives in Rome, not far from London."
    assert swap_entity(sentence, ["Paris"]) is None
    assert swap_entity("He lives here.", ["Rome"]) is None


def test_names_come_from_the_sentences_that_follow():
    sentences = ["He lives in Paris now.", "Nothing here.", "She went to Rome again.", "We saw Oslo from above."]
    assert make_probes(sentences)["entity"] == [
        "He lives in Rome now.",
        None,
        "She went to Oslo again.",
        "We saw Paris from above.",
    ]
    assert list(make_probes([])) == list(PROBES)


class Letters:
    """Counts letters and the word `not`: blind to the order of words and letters."""

    def encode(self, texts) -> np.ndarray:
        return np.array([[text.count("a"), text.count("b"), 5 * text.split().count("not")] for text in texts], float)


def test_figures():
    evaluation = evaluate_probes(Letters(), ["aa is bbaba", "aab bb", "aa is bbaba"], name="some", model="letters")
    parts = {part.data: part for part in evaluation.parts}
    assert list(parts) == list(PROBES)
    assert parts["typo"].scores == {"cosine": pytest.approx(1)}
    assert parts["typo"].counts == {"sentences": 2, "used": 1, "not_applicable": 1}
    original, negated = np.array([4, 3, 0]), np.array([4, 3, 5])
    cosine = original @ negated / np.linalg.norm(original) / np.linalg.norm(negated)
    assert parts["negation"].scores == {"cosine": pytest.approx(cosine), "typo_nearer": 1}
    assert parts["negation"].counts == {"sentences": 2, "used": 1, "not_applicable": 1, "cases": 1}
    # Word order changes nothing here: that is not nearer.
    assert parts["word_order"].scores == {"cosine": pytest.approx(1), "typo_nearer": 0}
    assert parts["word_order"].counts["used"] == 2
    assert parts["number"].counts["used"] == 0
    assert np.isnan(parts["number"].score)
    assert evaluation.scores == {"typo_nearer": 0.5}
    assert evaluation.counts == {"sentences": 2, "cases": 2}


def test_a_real_model(default_encoder):
    sentences = [
        "A man is playing a large flute.",
        "Two dogs are running through the green field.",
        "He met Anna in Rome.",
    ]
    evaluation = evaluate_probes(default_encoder, sentences)
    assert evaluation.to_dict() == evaluate_probes(default_encoder, sentences).to_dict()
    for part in evaluation.parts:
        assert part.counts["used"] == 0 or 0.3 < part.score < 1


def test_sentences_that_cannot_be_edited_are_refused():
    with pytest.raises(DataError, match="none of the 2 sentences can be edited"):
        evaluate_probes(Letters(), ["ab", "猫"], name="x.tsv")
    with pytest.raises(DataError, match="none of the 0"):
        evaluate_probes(Letters(), [])
