"""Pairs are scored as sentence-transformers scores them, from folders that are data and have a trained head."""

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import sentence_transformers
import torch
import transformers

from sbert_beam import ModelError, TextError
from sbert_core.encoder.cross_encoder import CrossEncoder
from sbert_core.encoder.tokenization import MAX_ENCODINGS
from tests.damage import Payload
from tests.peers import assert_same, reference_of
from tests.tiny_models import NLI, edit_json, make_classifier, make_transformer

NO_HEAD = "BertModel, which has no classification head: expected a cross-encoder.*ForSequenceClassification"


def save(reference: sentence_transformers.CrossEncoder, folder: Path) -> None:
    reference.save_pretrained(str(folder), create_model_card=False)  # a card takes longer than the model


@pytest.fixture
def pairs(sentences) -> list[tuple[str, str]]:
    """Pairs of every length, some beyond the model's limit, with duplicates and empty texts."""
    return list(itertools.product(sentences, sentences))


@pytest.fixture
def folder(tmp_path) -> Path:
    """A model that the test may change."""
    return make_classifier(tmp_path)


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory) -> Path:
    """A model with one label that no test changes."""
    return make_classifier(tmp_path_factory.mktemp("one_label"))


@pytest.fixture(scope="module")
def model(shared_folder) -> CrossEncoder:
    return CrossEncoder.load(shared_folder, "cpu")


@pytest.fixture(scope="module")
def nli_model(tmp_path_factory) -> CrossEncoder:
    return CrossEncoder.load(make_classifier(tmp_path_factory.mktemp("nli"), NLI), "cpu")


@pytest.fixture
def input_shapes(model) -> Iterator[list[tuple[int, int]]]:
    """Records the shape (n, length) of each batch that the model computes."""
    shapes: list[tuple[int, int]] = []
    handle = model.model.register_forward_pre_hook(
        lambda module, args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    yield shapes
    handle.remove()


@pytest.mark.parametrize(
    ("architecture", "labels"),
    [("bert", ("LABEL_0",)), ("bert", NLI), ("roberta", ("LABEL_0",)), ("distilbert", NLI), ("deberta-v2", NLI)],
)
def test_parity(tmp_path, pairs, architecture, labels):
    folder = make_classifier(tmp_path, labels, architecture)
    ours = CrossEncoder.load(folder, "cpu").predict(pairs)
    assert ours.shape == ((len(pairs),) if len(labels) == 1 else (len(pairs), 3))
    assert_same(ours, reference_of(folder).predict(pairs))
    assert ours.std(axis=0).min() > 0.02  # not one number over and over


def test_token_types_have_an_effect(folder, pairs):
    scores = CrossEncoder.load(folder, "cpu").predict(pairs)
    names = ["input_ids", "attention_mask"]
    edit_json(folder / "tokenizer_config.json", lambda config: config.update(model_input_names=names))
    without_types = CrossEncoder.load(folder, "cpu").predict(pairs)
    assert_same(without_types, reference_of(folder).predict(pairs))
    assert not np.allclose(scores, without_types, atol=1e-3)


@pytest.mark.parametrize("max_length", [5, 11, None])
def test_max_length(shared_folder, pairs, max_length):
    model = CrossEncoder.load(shared_folder, "cpu", max_length)
    assert model.max_length == (max_length or 24)
    assert_same(model.predict(pairs), reference_of(shared_folder, max_length=max_length).predict(pairs))


@pytest.mark.parametrize("max_length", [-1, 0, 1, 4])
def test_max_length_too_small(shared_folder, max_length):
    with pytest.raises(ModelError, match=f"max_length must be at least .*, got {max_length}"):
        CrossEncoder.load(shared_folder, "cpu", max_length)


def test_max_length_beyond_the_position_table(shared_folder):
    assert CrossEncoder.load(shared_folder, "cpu", 1000).max_length == 40


def test_texts_are_truncated_on_the_tokenizers_side(folder, pairs):
    edit_json(folder / "tokenizer_config.json", lambda config: config.update(truncation_side="left"))
    assert_same(CrossEncoder.load(folder, "cpu").predict(pairs), reference_of(folder).predict(pairs))


def test_left_padding(folder, model, pairs):
    right = model.predict(pairs)
    edit_json(folder / "tokenizer_config.json", lambda config: config.update(padding_side="left"))
    # BERT numbers positions from the padding on, so the padding must be equal: all pairs in one batch.
    ours = CrossEncoder.load(folder, "cpu").predict(pairs, batch_tokens=10**6)
    assert_same(ours, reference_of(folder).predict(pairs, batch_size=len(pairs)))
    assert not np.allclose(ours, right, atol=1e-3)


# Each way to store an activation, with one that is not the default for these labels; once with the default.
@pytest.mark.parametrize(
    ("name", "labels", "key"),
    [
        ("Identity", ("LABEL_0",), "file"),
        ("Identity", ("LABEL_0",), "sentence_transformers"),
        ("Identity", ("LABEL_0",), "sbert_ce_default_activation_function"),
        ("Sigmoid", NLI, "file"),
        ("Sigmoid", ("LABEL_0",), "sentence_transformers"),
        ("Sigmoid", NLI, "sbert_ce_default_activation_function"),
    ],
)
def test_activation_of_the_folder(tmp_path, pairs, name, labels, key):
    folder = make_classifier(tmp_path, labels)
    activation = getattr(torch.nn, name)()
    path = f"{type(activation).__module__}.{name}"
    if key == "file":
        reference = reference_of(folder, activation_fn=activation)
        save(reference, folder)
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


def test_default_prompt(shared_folder, model, tmp_path, pairs):
    reference = reference_of(shared_folder, prompts={"query": "query: "}, default_prompt_name="query")
    save(reference, tmp_path)
    prompted = CrossEncoder.load(tmp_path, "cpu")
    scores = prompted.predict(pairs)
    assert_same(scores, reference.predict(pairs))
    assert not np.allclose(scores, model.predict(pairs), atol=1e-3)
    assert prompted.fingerprint != model.fingerprint


def test_lower_case(folder, pairs):
    save(reference_of(folder), folder)
    edit_json(folder / "sentence_bert_config.json", lambda config: config.update(do_lower_case=True, max_seq_length=9))
    model = CrossEncoder.load(folder, "cpu")
    assert model.max_length == 9
    assert_same(model.predict([("THE FOX", "A Dog")]), model.predict([("the fox", "a dog")]))
    assert_same(model.predict(pairs), reference_of(folder).predict(pairs))


@pytest.mark.parametrize("batch_tokens", [1, 50, 10**6])
def test_batches_do_not_matter(nli_model, pairs, batch_tokens):
    sample = pairs[::3]
    assert_same(nli_model.predict(sample, batch_tokens=batch_tokens), nli_model.predict(sample))
    assert_same(nli_model.score(sample, batch_tokens=batch_tokens), nli_model.score(sample))


def test_batch_tokens_limit_a_batch(model, pairs, input_shapes):
    model.predict(pairs, batch_tokens=100)
    assert len(input_shapes) > 5
    assert max(rows * length for rows, length in input_shapes) <= 100
    lengths = [length for _, length in input_shapes]
    assert lengths == sorted(lengths, reverse=True)
    with pytest.raises(ModelError, match="batch_tokens must be at least 1, got 0"):
        model.predict(pairs, batch_tokens=0)


def test_more_pairs_than_are_tokenized_at_a_time(model):
    texts = ["".join(letters) for letters in itertools.product("abcdefgh", repeat=2)]
    pairs = [*itertools.product(texts, texts), ("fox", "dog")]
    assert len(pairs) == MAX_ENCODINGS + 1
    scores = model.predict(pairs)
    for rows in (slice(0, 50), slice(-50, None)):
        assert_same(scores[rows], model.predict(pairs[rows]))
    assert len(model.count_tokens(pairs)) == len(pairs)


def test_order_does_not_matter(model, pairs):
    shuffled = np.random.default_rng(2).permutation(len(pairs))
    assert_same(model.predict([pairs[row] for row in shuffled]), model.predict(pairs)[shuffled])
    # The two texts of a pair are not interchangeable.
    first, swapped = model.predict([("a fox", "the dog"), ("the dog", "a fox")])
    assert abs(first - swapped) > 1e-4


def test_each_distinct_pair_is_computed_once(model, input_shapes):
    one, other = ("a fox", "the dog"), ("the dog", "a fox")
    scores = model.predict([one, other, one, list(one), one])
    assert sum(rows for rows, _ in input_shapes) == 2
    assert (scores[[2, 3, 4]] == scores[0]).all()
    assert scores[1] != scores[0]


def test_empty_input(model, nli_model):
    for empty in (model.predict([]), model.score([]), nli_model.score([])):
        assert empty.shape == (0,)
        assert empty.dtype == np.float32
    assert nli_model.predict([]).shape == (0, 3)


def test_unusual_texts(model):
    scores = model.predict(
        [("", ""), ("lone \ud800", "\ud83d\ude00"), ("lone \ufffd", "\U0001f600"), ("a" * 10**5, "b")]
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
def test_not_text(model, nli_model, bad, message):
    with pytest.raises(TextError, match=message):
        model.predict(bad)
    with pytest.raises(TextError, match=message):
        nli_model.score(bad)


def test_score_of_one_label_is_the_prediction(model, pairs):
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
    with pytest.raises(ModelError, match=NO_HEAD) as raised:
        CrossEncoder.load(make_transformer(tmp_path), "cpu")
    assert "\n" not in str(raised.value)
    with pytest.raises(ModelError, match=r"\['Transformer', 'Pooling', 'Normalize'\]: expected one Transformer with"):
        CrossEncoder.load("default", "cpu")


@pytest.mark.parametrize("architectures", [None, ["BertForSequenceClassification"]])
def test_a_model_without_a_trained_head_is_refused(tmp_path, architectures):
    folder = make_transformer(tmp_path)
    edit_json(folder / "config.json", lambda config: config.update(architectures=architectures))
    with pytest.raises(
        ModelError, match=r"lack 2 tensors of BertForSequenceClassification, for example 'classifier\.bias'"
    ):
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
    save(reference_of(folder), folder)
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
    save(reference_of(folder), tmp_path / "st")
    plain, saved = CrossEncoder.load(folder, "cpu"), CrossEncoder.load(tmp_path / "st", "cpu")
    assert_same(saved.predict(pairs), plain.predict(pairs))
    assert saved.labels == plain.labels == list(labels)
    assert saved.fingerprint == plain.fingerprint
    by_uri = CrossEncoder.load((tmp_path / "st").as_uri(), "cpu", cache_dir=tmp_path / "cache")
    assert by_uri.fingerprint == plain.fingerprint


def test_fingerprint_does_not_depend_on_place_and_format(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "elsewhere")
    first = CrossEncoder.load(folder, "cpu").fingerprint
    assert len(first) == 64
    assert CrossEncoder.load(tmp_path / "elsewhere", "cpu").fingerprint == first
    path = "torch.nn.modules.activation.Sigmoid"  # the default
    edit_json(folder / "config.json", lambda config: config.update(sbert_ce_default_activation_function=path))
    assert CrossEncoder.load(folder, "cpu").fingerprint == first


def test_different_models_have_different_fingerprints(folder, model, nli_model, tmp_path):
    found = [model.fingerprint, CrossEncoder.load(folder, "cpu", 9).fingerprint, nli_model.fingerprint]
    path = "torch.nn.modules.linear.Identity"
    edit_json(folder / "config.json", lambda config: config.update(sbert_ce_default_activation_function=path))
    found.append(CrossEncoder.load(folder, "cpu").fingerprint)
    deberta = make_classifier(tmp_path / "deberta", architecture="deberta-v2")
    for weight in ("pooler.dense.bias", "classifier.weight"):
        changed = CrossEncoder.load(deberta, "cpu")
        with torch.no_grad():
            changed.model.get_parameter(weight).add_(1)
        found.append(changed.fingerprint)
    found.append(CrossEncoder.load(deberta, "cpu").fingerprint)
    assert len(set(found)) == len(found) == 7


def test_predictions_use_no_dropout(model, pairs):
    assert not model.model.training
    assert (model.predict(pairs) == model.predict(pairs)).all()
