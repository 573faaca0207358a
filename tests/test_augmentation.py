"""Steps change words and nothing else, draw from the given generator only, and never leave a text empty."""

import json
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from sbert_core.errors import DataError, ModelError
from sbert_core.training.augmentation import (
    Augmenter,
    back_translate,
    delete_words,
    read_synonyms,
    replace_synonyms,
    seq2seq_translator,
    swap_words,
)
from tests.tiny_models import make_tokenizer, make_transformer, perturb

TEXTS = [
    "Where is my parcel, please? I've paid 3.50 for it!",
    "Wo ist mein Paket?",
    "我今天收到了包裹。",
    "ฉันรักภาษาไทย",
    "コンピューターが壊れた",
    "한국어 문장입니다 그렇죠",
    "one",
    "🙂 !!",
]
SYNONYMS = {
    "parcel": ["package"],
    "Ice cream": ["gelato"],
    "ice": ["frost"],
    "where": ["at what place"],
    "今天": ["今日"],
}
STEPS = {
    "delete": delete_words(0.4),
    "swap": swap_words(2),
    "replace": replace_synonyms(
        SYNONYMS | {"one": ["1", "single"], "is": ["be", "was"], "ist": ["war", "bleibt"]}, 0.6
    ),
}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def signs(text: str) -> list[str]:
    """The characters of a text but its spaces, in order."""
    return sorted(text.replace(" ", ""))


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_functions_of_the_generator(step):
    results = [step(TEXTS, rng(seed)) for seed in range(20)]
    assert results[3] == step(TEXTS, rng(3))
    assert len({tuple(result) for result in results}) > 5
    assert all(len(result) == len(TEXTS) and all(text.strip() for text in result) for result in results)
    assert step([], rng()) == []
    assert step(["", " "], rng()) == ["", " "]
    assert pickle.loads(pickle.dumps(step))(TEXTS, rng(3)) == results[3]


def test_delete():
    kept = delete_words(0.5)(["Where is my parcel, please? I've paid 3.50!"] * 200, rng())
    words = ["Where", "is", "my", "parcel", "please", "I've", "paid", "3.50"]
    for text in kept:
        found = re.findall(r"[\w'.]*\w", text)
        assert [word for word in words if word in found] == found  # some words, in their order, none cut
        assert found
        assert "  " not in text
        assert " ," not in text
        assert "?" in text
        assert text.endswith("!")
    shares = [np.mean([word in text for text in kept]) for word in words]
    assert np.allclose(shares, 0.5, atol=0.12)


def test_delete_none_or_all():
    assert delete_words(0)(TEXTS, rng()) == TEXTS
    assert delete_words(1)(TEXTS, rng()) == TEXTS
    assert delete_words(0.5)(["one"] * 50, rng()) == ["one"] * 50


def test_characters_where_there_are_no_spaces():
    assert {"我今天到了包裹。", "我今天收到了包裹。"} <= set(delete_words(0.1)(["我今天收到了包裹。"] * 200, rng()))
    thai = delete_words(0.2)(["ฉันรักภาษาไทย"] * 50, rng())
    assert not any(re.match("[\u0e31\u0e34-\u0e3a\u0e47-\u0e4e]", text) for text in thai)  # no vowel without its letter
    swapped = set(swap_words()(["コンピューターが壊れた"] * 200, rng()))
    assert "がコンピューター壊れた" in swapped
    assert all("コンピューター" in text for text in swapped)


@pytest.mark.parametrize("n", [1, 3])
def test_swap(n):
    for text in TEXTS:
        for swapped in swap_words(n)([text] * 20, rng()):
            assert signs(swapped) == signs(text)
            assert len(swapped) == len(text)
    assert set(swap_words()(["a, b"] * 5, rng())) == {"b, a"}
    assert set(swap_words()(["a b c"] * 99, rng())) == {"b a c", "c b a", "a c b"}
    assert set(swap_words(2)(["a, b"] * 5, rng())) == {"a, b"}
    assert swap_words()(["one", "🙂 !!"], rng()) == ["one", "🙂 !!"]


def test_synonyms():
    texts = ["Where is my PARCEL?", "ice  cream, ice-cold ice", "parcels", "我今天收到"]
    assert replace_synonyms(SYNONYMS, 1)(texts, rng()) == [
        "At what place is my Package?",
        "gelato, ice-cold frost",
        "parcels",
        "我今日收到",
    ]
    assert replace_synonyms(SYNONYMS, 0)(texts, rng()) == texts
    some = replace_synonyms({"a": ["b", "c"]}, 0.5)(["a"] * 400, rng())
    assert np.allclose([some.count(word) / 400 for word in "abc"], [0.5, 0.25, 0.25], atol=0.08)


def test_back_translation():
    seen = []

    def translate(texts: list[str]) -> list[str]:
        seen.append(texts)
        return [text.upper() for text in texts]

    assert back_translate(translate)(["a", "b"], rng()) == ["A", "B"]
    assert back_translate(translate)([], rng()) == []
    assert seen == [["a", "b"]]
    for wrong in (lambda texts: texts[1:], lambda texts: [None] * len(texts)):
        with pytest.raises(DataError, match=r"back-translation of 2 texts gave .*: expected as many texts"):
            back_translate(wrong)(["a", "b"], rng())


def upper(texts: list[str], generator: np.random.Generator) -> list[str]:
    return [text.upper() for text in texts]


def test_augmenter_takes_a_part_of_chosen_columns():
    views = [["a"] * 1000, ["b"] * 1000, ["c"] * 1000]
    augment = Augmenter((upper,), 0.3, (0, 2))
    first, second, third = augment(views, rng())
    assert (first.count("A"), third.count("C")) == (pytest.approx(300, abs=50), pytest.approx(300, abs=50))
    assert second == views[1]
    assert views[0] == ["a"] * 1000  # what it was given is not changed
    assert [text == "A" for text in first] != [text == "C" for text in third]
    assert augment(views, rng()) == [first, second, third] != augment(views, rng(1))


def test_augmenter_applies_steps_in_turn():
    augment = Augmenter((swap_words(), upper), probability=1)
    assert augment([["a b"], ["c, d"]], rng()) == [["B A"], ["D, C"]]
    assert Augmenter((upper,), probability=0)([["a"]], rng()) == [["a"]]
    assert augment([[], []], rng()) == [[], []]


def test_nothing_becomes_empty():
    blank = back_translate(lambda texts: [" " for _ in texts])
    assert Augmenter((blank, upper), probability=1)([["a"]], rng()) == [["A"]]


def test_bad_options():
    with pytest.raises(DataError, match="an augmenter has no edits"):
        Augmenter(())
    with pytest.raises(DataError, match=r"probability must be from 0 to 1, got 1.5"):
        Augmenter((upper,), 1.5)
    for columns in ((2,), (-1,)):
        with pytest.raises(DataError, match=r"but there are 2: count them from 0"):
            Augmenter((upper,), 1, columns)([["a"], ["b"]], rng())
    with pytest.raises(DataError, match=r"p must be from 0 to 1, got -0.1"):
        delete_words(-0.1)
    with pytest.raises(DataError, match="swaps must be a whole number from 1 to 1000, got 0"):
        swap_words(0)
    with pytest.raises(DataError, match="p must be from 0 to 1, got nan"):
        replace_synonyms(SYNONYMS, np.nan)
    for wrong in ({}, {"a": []}):
        with pytest.raises(DataError, match="the synonyms are empty"):
            replace_synonyms(wrong)


def test_read_synonyms(tmp_path):
    (tmp_path / "a.tsv").write_text("\ufeffparcel\tpackage\tpacket\n\nbuy\tpurchase\nparcel\tbox\n", encoding="utf-8")
    (tmp_path / "a.json").write_text(json.dumps({"parcel": ["package", "packet", "box"], "buy": ["purchase"]}))
    expected = {"parcel": ["package", "packet", "box"], "buy": ["purchase"]}
    assert read_synonyms(tmp_path / "a.tsv") == read_synonyms(str(tmp_path / "a.json")) == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", b"a\tb\nword\n", r"a.tsv, line 1 \(counted from 0\) is 'word': expected a word and its synonyms"),
        ("a.tsv", b"a\t\tb\n", r"line 0 \(counted from 0\) is 'a\\t\\tb'"),
        ("a.tsv", b"\tb\n", r"line 0 \(counted from 0\)"),
        ("a.tsv", b"\n", "a.tsv has no synonyms in it"),
        ("a.tsv", b"\xff\tb\n", "a.tsv cannot be read: 'utf-8' codec"),
        ("a.json", b"{}", "a.json has no synonyms in it"),
        ("a.json", b"{", "a.json is not JSON"),
        ("a.json", b'["a"]', r"a.json holds \['a'\]: expected an object"),
        ("a.json", b'{"a": "b"}', "the synonyms of 'a' are 'b', expected a list of texts"),
        ("a.json", b'{"a": []}', r"the synonyms of 'a' are \[\], expected"),
        ("a.json", b'{"a": ["b", 3]}', r"the synonyms of 'a' are \['b', 3\], expected"),
        ("a.json", b'{" ": ["b"]}', "the synonyms of ' ' are"),
        ("a.txt", b"a\tb\n", "a.txt has an unknown suffix: expected .json or .tsv"),
    ],
)
def test_bad_synonyms(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_synonyms(tmp_path / name)


def test_no_synonyms(tmp_path):
    with pytest.raises(DataError, match=r"no.tsv cannot be read: .*No such file"):
        read_synonyms(tmp_path / "no.tsv")


def make_seq2seq(folder: Path, seed: int = 0) -> Path:
    """Writes a random T5 that translates into nonsense."""
    tokenizer = make_tokenizer()
    config = transformers.T5Config(
        vocab_size=len(tokenizer), d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0
    )
    torch.manual_seed(seed)
    model = transformers.T5ForConditionalGeneration(config)
    perturb(model)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.slow
def test_seq2seq_models_there_and_back(tmp_path):
    forward, back = make_seq2seq(tmp_path / "there"), make_seq2seq(tmp_path / "back", seed=1)
    translate = seq2seq_translator(forward, back, device="cpu")
    texts = ["A man is playing the flute.", "the quick fox", "x" * 500] * 12  # more than are translated at a time
    translated = translate(texts)
    assert len(translated) == 36
    assert translated[:3] == translated[-3:] == translate(texts[:3])
    assert translate([]) == []
    between = texts[1]
    for folder in (forward, back):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model = transformers.T5ForConditionalGeneration.from_pretrained(folder)
        ids = model.generate(
            **tokenizer([between], truncation=True, return_tensors="pt"), do_sample=False, max_new_tokens=24
        )
        between = tokenizer.decode(ids[0], skip_special_tokens=True)
    assert translated[1] == between
    assert Augmenter((back_translate(translate),), 1)([texts[1:2]], rng()) == [[between]]


def test_seq2seq_models_that_are_none(tmp_path):
    good = make_seq2seq(tmp_path / "good")
    with pytest.raises(ModelError, match="there is no model folder"):
        seq2seq_translator(good, tmp_path / "no")
    with pytest.raises(ModelError, match="bert is not a translation model: "):
        seq2seq_translator(make_transformer(tmp_path / "bert"), good)
    (good / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="is not a complete model folder"):
        seq2seq_translator(good, good)
    (good / "pytorch_model.bin").write_bytes(b"a pickle")
    with pytest.raises(ModelError, match="is a pickle, which can run code"):
        seq2seq_translator(good, good)


def test_seq2seq_weights_that_are_not_all_there(tmp_path):
    folder = make_seq2seq(tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    del weights["decoder.final_layer_norm.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match="model: the weights lack 1 tensors of T5ForConditionalGeneration"):
        seq2seq_translator(folder, folder)
