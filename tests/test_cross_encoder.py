"""Pairs are scored as sentence-transformers scores them, from folders that are data and have a trained head."""

import itertools
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from sbert_beam import ModelError, TextError
from sbert_core.encoder.cross_encoder import CrossEncoder
from tests.damage import Payload
from tests.peers import assert_same, reference_of
from tests.tiny_models import NLI, edit_json, make_classifier, make_transformer

HEADLESS = "BertModel, which has no classification head: expected a cross-encoder.*ForSequenceClassification"


@pytest.fixture
def pairs(sentences) -> list[tuple[str, str]]:
    """Pairs of every length, some beyond the model's limit, with duplicates and empty texts."""
    return list(itertools.product(sentences, sentences))


@pytest.fixture
def folder(tmp_path) -> Path:
    return make_classifier(tmp_path)


@pytest.fixture
def nli(tmp_path) -> Path:
    return make_classifier(tmp_path, NLI)


@pytest.mark.parametrize("architecture", ["bert", "roberta", "distilbert", "deberta-v2"])
@pytest.mark.parametrize("labels", [("LABEL_0",), NLI])
def test_parity(tmp_path, pairs, architecture, labels):
    folder = make_classifier(tmp_path, labels, architecture)
    ours = CrossEncoder.load(folder, "cpu").predict(pairs)
    assert ours.shape == ((len(pairs),) if len(labels) == 1 else (len(pairs), 3))
    assert_same(ours, reference_of(folder).predict(pairs))
    assert ours.std(axis=0).min() > 0.02  # not one number over and over


def test_token_types_count(folder, pairs):
    model = CrossEncoder.load(folder, "cpu")
    scores = model.predict(pairs)
    model._uses_types = False
    assert not np.allclose(scores, model.predict(pairs), atol=1e-3)


@pytest.mark.parametrize("max_length", [5, 11, None])
def test_max_length(folder, pairs, max_length):
    model = CrossEncoder.load(folder, "cpu", max_length)
    assert model.max_length == (max_length or 24)
    assert_same(model.predict(pairs), reference_of(folder, max_length=max_length).predict(pairs))


@pytest.mark.parametrize("max_length", [-1, 0, 1, 4])
def test_max_length_too_small(folder, max_length):
    with pytest.raises(ModelError, match=f"max_length must be at least .*, got {max_length}"):
        CrossEncoder.load(folder, "cpu", max_length)


def test_max_length_beyond_the_position_table(folder):
    assert CrossEncoder.load(folder, "cpu", 1000).max_length == 40


def test_texts_are_cut_on_the_tokenizers_side(folder, pairs):
    edit_json(folder / "tokenizer_config.json", lambda config: config.update(truncation_side="left"))
    assert_same(CrossEncoder.load(folder, "cpu").predict(pairs), reference_of(folder).predict(pairs))


def test_left_padding(folder, pairs):
    right = CrossEncoder.load(folder, "cpu").predict(pairs)
    edit_json(folder / "tokenizer_config.json", lambda config: config.update(padding_side="left"))
    # BERT numbers positions from the padding on, so both must pad alike: everything in one batch.
    ours = CrossEncoder.load(folder, "cpu").predict(pairs, batch_tokens=10**6)
    assert_same(ours, reference_of(folder).predict(pairs, batch_size=len(pairs)))
    assert not np.allclose(ours, right, atol=1e-3)


@pytest.mark.parametrize("name", ["Sigmoid", "Identity"])
@pytest.mark.parametrize("labels", [("LABEL_0",), NLI])
@pytest.mark.parametrize("key", ["file", "sentence_transformers", "sbert_ce_default_activation_function"])
def test_activation_of_the_folder(tmp_path, pairs, name, labels, key):
    folder = make_classifier(tmp_path, labels)
    activation = getattr(torch.nn, name)()
    path = f"{type(activation).__module__}.{name}"
    if key == "file":
        reference = reference_of(folder, activation_fn=activation)
        reference.save_pretrained(str(folder))
    else:
        value = {"activation_fn": path, "version": "4.1"} if key == "sentence_transformers" else path
        edit_json(folder / "config.json", lambda config: config.update({key: value}))
        reference = reference_of(folder)
    model = CrossEncoder.load(folder, "cpu")
    assert model.activation == name.lower()
    assert_same(model.predict(pairs), reference.predict(pairs))


@pytest.mark.parametrize("path", ["torch.nn.Tanh", "evil.Sigmoid", "os.system", ["torch.nn.Sigmoid"]])
def test_other_activations_are_refused(folder, path):
    edit_json(folder / "config.json", lambda config: config.update(sentence_transformers={"activation_fn": path}))
    with pytest.raises(ModelError, match=r"asks for the activation .*expected torch\.nn's Sigmoid or Identity"):
        CrossEncoder.load(folder, "cpu")


def test_default_prompt(folder, pairs):
    reference = reference_of(folder, prompts={"query": "query: "}, default_prompt_name="query")
    reference.save_pretrained(str(folder.parent / "prompted"))
    plain, prompted = (CrossEncoder.load(path, "cpu") for path in (folder, folder.parent / "prompted"))
    assert_same(prompted.predict(pairs), reference.predict(pairs))
    assert not np.allclose(prompted.predict(pairs), plain.predict(pairs), atol=1e-3)
    assert prompted.fingerprint != plain.fingerprint


def test_lower_case(folder, pairs):
    reference_of(folder).save_pretrained(str(folder))
    edit_json(folder / "sentence_bert_config.json", lambda config: config.update(do_lower_case=True, max_seq_length=9))
    model = CrossEncoder.load(folder, "cpu")
    assert model.max_length == 9
    assert_same(model.predict([("THE FOX", "A Dog")]), model.predict([("the fox", "a dog")]))
    assert_same(model.predict(pairs), reference_of(folder).predict(pairs))


@pytest.mark.parametrize("batch_tokens", [1, 50, 700, 10**6])
def test_batches_do_not_matter(nli, pairs, batch_tokens):
    pairs = pairs[::3]
    model = CrossEncoder.load(nli, "cpu")
    assert_same(model.predict(pairs, batch_tokens=batch_tokens), model.predict(pairs))
    assert_same(model.score(pairs, batch_tokens=batch_tokens), model.score(pairs))


def test_batch_tokens_bounds_a_batch(folder, pairs, monkeypatch):
    model = CrossEncoder.load(folder, "cpu")
    shapes = []
    model._body.model.register_forward_pre_hook(
        lambda module, args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    model.predict(pairs, batch_tokens=100)
    assert len(shapes) > 5
    assert max(rows * length for rows, length in shapes) <= 100
    assert [length for _, length in shapes] == sorted((length for _, length in shapes), reverse=True)
    monkeypatch.setattr("sbert_core.encoder.cross_encoder._WINDOW", 30)
    assert_same(model.predict(pairs), reference_of(folder).predict(pairs))
    with pytest.raises(ModelError, match="batch_tokens must be at least 1, got 0"):
        model.predict(pairs, batch_tokens=0)


def test_order_does_not_matter(folder, pairs):
    model = CrossEncoder.load(folder, "cpu")
    shuffled = np.random.default_rng(2).permutation(len(pairs))
    assert_same(model.predict([pairs[at] for at in shuffled]), model.predict(pairs)[shuffled])
    # The two texts of a pair are not interchangeable, and neither is what goes into one of them.
    first, swapped = model.predict([("a fox", "the dog"), ("the dog", "a fox")])
    assert abs(first - swapped) > 1e-4


def test_each_distinct_pair_is_computed_once(folder):
    model = CrossEncoder.load(folder, "cpu")
    rows = []
    model._body.model.register_forward_pre_hook(
        lambda module, args, kwargs: rows.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    one, other = ("a fox", "the dog"), ("the dog", "a fox")
    scores = model.predict([one, other, one, list(one), one])
    assert sum(rows) == 2
    assert (scores[[2, 3, 4]] == scores[0]).all()
    assert scores[1] != scores[0]


def test_empty_input(folder, tmp_path):
    model, several = CrossEncoder.load(folder, "cpu"), CrossEncoder.load(make_classifier(tmp_path / "n", NLI), "cpu")
    for empty in (model.predict([]), model.score([]), several.score([])):
        assert empty.shape == (0,)
        assert empty.dtype == np.float32
    assert several.predict([]).shape == (0, 3)


def test_unusual_texts(folder):
    model = CrossEncoder.load(folder, "cpu")
    scores = model.predict(
        [("", ""), ("lone \ud800", "\ud83d\ude00"), ("lone \ufffd", "\U0001f600"), ("a" * 10**6, "b")]
    )
    assert np.isfinite(scores).all()
    assert scores[1] == scores[2]
    as_array = np.array([["a fox", "the dog"], ["one", ""]])
    assert_same(model.predict(as_array), model.predict([("a fox", "the dog"), ("one", "")]))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("ab", "pairs is a str"),
        (None, "pairs is a NoneType: pass a list of pairs"),
        ([("a", "b"), "ab"], r"pairs\[1\] is str, expected a pair"),
        ([("a", "b"), ("a", "b", "c")], r"pairs\[1\] is tuple, expected a pair"),
        ([("a", "b"), ("a", "b"), None], r"pairs\[2\] is NoneType, expected a pair"),
        ([("a", "b"), ("a", None)], r"pairs\[1\]\[1\] is NoneType, expected str"),
        ([(b"a", "b")], r"pairs\[0\]\[0\] is bytes, expected str"),
        ([("a", float("nan"))], r"pairs\[0\]\[1\] is float, expected str"),
    ],
)
def test_not_text(folder, nli, bad, message):
    with pytest.raises(TextError, match=message):
        CrossEncoder.load(folder, "cpu").predict(bad)
    with pytest.raises(TextError, match=message):
        CrossEncoder.load(nli, "cpu").score(bad)


def test_score_of_one_label_is_the_prediction(folder, pairs):
    model = CrossEncoder.load(folder, "cpu")
    assert_same(model.score(pairs), model.predict(pairs))


@pytest.mark.parametrize("name", ["entailment", "PARAPHRASE", "Duplicate", "equivalent"])
def test_score_is_the_probability_of_the_similar_label(tmp_path, pairs, name):
    folder = make_classifier(tmp_path, (f"not_{name}", name))
    expected = reference_of(folder).predict(pairs, apply_softmax=True)
    assert_same(CrossEncoder.load(folder, "cpu").score(pairs), expected[:, 1])


@pytest.mark.parametrize(
    "labels", [("LABEL_0", "LABEL_1"), ("not_duplicate", "same"), ("duplicate", "paraphrase", "x")]
)
def test_score_without_a_similar_label(tmp_path, labels):
    model = CrossEncoder.load(make_classifier(tmp_path, labels), "cpu")
    with pytest.raises(ModelError, match=f"the labels are {', '.join(labels)}: expected exactly one of entailment, "):
        model.score([])


def test_sentence_encoders_are_refused(tmp_path):
    with pytest.raises(ModelError, match=HEADLESS) as raised:
        CrossEncoder.load(make_transformer(tmp_path), "cpu")
    assert "\n" not in str(raised.value)
    with pytest.raises(ModelError, match=r"\['Transformer', 'Pooling', 'Normalize'\]: expected one Transformer with"):
        CrossEncoder.load("default", "cpu")


@pytest.mark.parametrize("architectures", [None, ["BertForSequenceClassification"]])
def test_a_head_is_never_made_up(tmp_path, architectures):
    folder = make_transformer(tmp_path)
    edit_json(folder / "config.json", lambda config: config.update(architectures=architectures))
    with pytest.raises(ModelError, match=r"lack 2 tensors of BertForSequenceClassification, 'classifier\.bias'"):
        CrossEncoder.load(folder, "cpu")


def test_folders_that_cannot_be_loaded(folder, tmp_path):
    with pytest.raises(ModelError, match="there is no model folder"):
        CrossEncoder.load(tmp_path / "none" / "such", "cpu")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match=r"no config\.json: it is not a model folder"):
        CrossEncoder.load(tmp_path / "empty", "cpu")
    edit_json(folder / "config.json", lambda config: config.update(vocab_size=7))
    with pytest.raises(ModelError, match="cannot be loaded as a sequence-classification model: ") as raised:
        CrossEncoder.load(folder, "cpu")
    assert "\n" not in str(raised.value)


def test_a_module_path_may_not_leave_the_folder(folder):
    reference_of(folder).save_pretrained(str(folder))
    edit_json(folder / "modules.json", lambda modules: modules[0].update(path="../encoder"))
    with pytest.raises(ModelError, match="leaves the model folder"):
        CrossEncoder.load(folder, "cpu")


def test_pickled_weights_are_refused_unopened(folder, tmp_path, pairs):
    expected = CrossEncoder.load(folder, "cpu").predict(pairs)
    weights = transformers.AutoModelForSequenceClassification.from_pretrained(folder).state_dict()
    (folder / "model.safetensors").unlink()
    torch.save(Payload(tmp_path / "mark"), folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"pytorch_model\.bin is a pickle.*allow_pickle=True"):
        CrossEncoder.load(folder, "cpu")
    assert not (tmp_path / "mark").exists()
    torch.save(weights, folder / "pytorch_model.bin")
    assert_same(CrossEncoder.load(folder, "cpu", allow_pickle=True).predict(pairs), expected)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_custom_code_is_refused_unrun(folder, tmp_path, name):
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'w')")
    auto_map = {"AutoModelForSequenceClassification": "evil.Model"}
    edit_json(folder / name, lambda config: config.update(auto_map=auto_map))
    with pytest.raises(ModelError, match=rf"{name} asks to run Python code.*allow_code=True"):
        CrossEncoder.load(folder, "cpu")
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("labels", [("LABEL_0",), NLI])
def test_round_trip_through_sentence_transformers(tmp_path, pairs, labels):
    folder = make_classifier(tmp_path, labels)
    reference_of(folder).save_pretrained(str(tmp_path / "st"))
    plain, saved = CrossEncoder.load(folder, "cpu"), CrossEncoder.load(tmp_path / "st", "cpu")
    assert_same(saved.predict(pairs), plain.predict(pairs))
    assert saved.labels == plain.labels == list(labels)
    assert saved.fingerprint == plain.fingerprint
    by_uri = CrossEncoder.load((tmp_path / "st").as_uri(), "cpu", cache_dir=tmp_path / "cache")
    assert by_uri.fingerprint == plain.fingerprint


def test_fingerprint_stays(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "elsewhere")
    first = CrossEncoder.load(folder, "cpu").fingerprint
    assert len(first) == 64
    assert CrossEncoder.load(tmp_path / "elsewhere", "cpu").fingerprint == first
    path = "torch.nn.modules.activation.Sigmoid"  # what it would be anyway
    edit_json(folder / "config.json", lambda config: config.update(sbert_ce_default_activation_function=path))
    assert CrossEncoder.load(folder, "cpu").fingerprint == first


def test_fingerprint_tells_models_apart(folder, tmp_path):
    found = [CrossEncoder.load(folder, "cpu").fingerprint, CrossEncoder.load(folder, "cpu", 9).fingerprint]
    found.append(CrossEncoder.load(make_classifier(tmp_path / "nli", NLI), "cpu").fingerprint)
    path = "torch.nn.modules.linear.Identity"
    edit_json(folder / "config.json", lambda config: config.update(sbert_ce_default_activation_function=path))
    found.append(CrossEncoder.load(folder, "cpu").fingerprint)
    deberta = make_classifier(tmp_path / "deberta", architecture="deberta-v2")
    for weight in ("pooler.dense.bias", "classifier.weight"):
        model = CrossEncoder.load(deberta, "cpu")
        with torch.no_grad():
            model._body.model.get_parameter(weight).add_(1)
        found.append(model.fingerprint)
    found.append(CrossEncoder.load(deberta, "cpu").fingerprint)
    assert len(set(found)) == len(found) == 7


def test_weights_take_no_gradient_and_no_dropout(folder, pairs):
    model = CrossEncoder.load(folder, "cpu")
    assert not model._body.training
    assert (model.predict(pairs) == model.predict(pairs)).all()
