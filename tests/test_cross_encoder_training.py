"""Training of cross-encoders: reproducible, and the written model is the trained one."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import scipy.stats
import sentence_transformers
import sklearn.metrics
import torch
import torch.nn.functional as F
import transformers

from sbert_beam import CrossEncoder, DataError, ModelError, SentenceEncoder, TextError
from sbert_core.data.examples import Examples
from sbert_core.encoder.model_folder import check_model_target
from sbert_core.training.cross_encoder_training import train_cross_encoder
from tests.peers import assert_same, reference_of
from tests.tiny_models import NLI, TEXTS, WORDS, edit_json, make_classifier, make_transformer

pytestmark = pytest.mark.slow  # seconds in all

QUICK = {"epochs": 2, "batch_size": 8, "learning_rate": 3e-3, "device": "cpu", "progress": False}


def make_examples(n: int = 64, seed: int = 0, kind: str = "score") -> Examples:
    """Pairs whose label depends on their first word."""
    rng = np.random.default_rng(seed)
    marks = rng.integers(3 if kind == "class" else 2, size=n)
    first = [f"{('fox', 'parcel', 'flute')[mark]} {' '.join(rng.choice(WORDS, rng.integers(1, 6)))}" for mark in marks]
    second = [" ".join(rng.choice(WORDS, rng.integers(1, 6))) for _ in range(n)]
    labels = marks.astype(np.int64)
    if kind == "score":
        labels = (0.1 + 0.8 * marks).astype(np.float32)
    return Examples((first, second), labels, ("fox", "parcel", "flute") if kind == "class" else (), "some.tsv")


def pairs_of(examples: Examples) -> list[tuple[str, str]]:
    return list(zip(*examples.texts, strict=True))


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(folder / "model.safetensors")


@pytest.fixture
def folder(tmp_path) -> Path:
    return make_transformer(tmp_path / "encoder")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["score", "binary", "class"])
def test_the_written_model_is_the_trained_one(folder, tmp_path, kind, sentences):
    data, dev = make_examples(128, 0, kind), make_examples(40, 1, kind)
    done = train_cross_encoder(folder, data, tmp_path / "out", kind=kind, dev=dev, **(QUICK | {"epochs": 5}))
    model = CrossEncoder.load(tmp_path / "out", "cpu")
    predicted = model.predict(pairs_of(dev))
    assert (predicted.shape, model.activation) == (((40, 3), "identity") if kind == "class" else ((40,), "sigmoid"))
    metric, expected = {
        "score": ("spearman", lambda: scipy.stats.spearmanr(predicted, dev.labels).statistic),
        "binary": ("average_precision", lambda: sklearn.metrics.average_precision_score(dev.labels, predicted)),
        "class": ("accuracy", lambda: (predicted.argmax(axis=1) == dev.labels).mean()),
    }[kind]
    assert done["metric"] == metric
    assert done["steps"] == 5 * 16
    assert len(done["epochs"]) == 5
    assert done["best"] == max(report[metric] for report in done["epochs"])
    assert done["best"] == pytest.approx(expected(), abs=1e-6)
    assert done["best"] > 0.6
    assert done["epochs"][-1]["loss"] < done["epochs"][0]["loss"]
    pairs = [(first, second) for first in sentences for second in sentences]
    assert_same(model.predict(pairs), reference_of(tmp_path / "out").predict(pairs))
    assert model.labels == (["fox", "parcel", "flute"] if kind == "class" else ["LABEL_0"])


@pytest.mark.parametrize("architecture", ["roberta", "distilbert", "mpnet", "deberta-v2"])
def test_architectures(tmp_path, architecture):
    folder = make_transformer(tmp_path / "encoder", architecture)
    train_cross_encoder(folder, make_examples(16), tmp_path / "out", **QUICK)
    model, pairs = CrossEncoder.load(tmp_path / "out", "cpu"), pairs_of(make_examples(20, 1))
    assert_same(model.predict(pairs), reference_of(tmp_path / "out").predict(pairs))
    before, after = weights_of(folder), weights_of(tmp_path / "out")
    moved = [name for name in after for old in before if name.endswith(old) and not (after[name] == before[old]).all()]
    assert len(moved) > 10  # not the head alone


def test_one_step_by_hand(folder, tmp_path):
    data = make_examples(8)
    config = folder / "config.json"
    edit_json(config, lambda c: c.update(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
    options = QUICK | {"epochs": 1, "warmup": 0, "learning_rate": 1e-3, "seed": 5}
    done = train_cross_encoder(folder, data, tmp_path / "out", **options)
    torch.manual_seed(5)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(*data.texts, padding=True, truncation=True, return_tensors="pt")
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = {name: inputs[name] for name in names if name in tokenizer.model_input_names}
    probability = torch.sigmoid(model(**inputs).logits[:, 0])
    labels = torch.from_numpy(data.labels)
    loss = -(labels * probability.log() + (1 - labels) * (1 - probability).log()).mean()
    assert done["epochs"] == [{"loss": pytest.approx(loss.item(), abs=1e-5)}]
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    after = weights_of(tmp_path / "out")
    for name, weight in model.named_parameters():
        if weight.grad is not None:
            decayed = weight * (1 - 1e-3 * 0.01) if weight.ndim > 1 else weight
            expected = decayed - 1e-3 * weight.grad / (weight.grad.abs() + 1e-8)  # Adam's first step
            clear = weight.grad.abs() > 1e-6
            torch.testing.assert_close(after[name][clear], expected[clear].detach(), atol=2e-5, rtol=0)


def test_the_loss_of_classes(folder, tmp_path):
    data = make_examples(8, kind="class")
    edit_json(folder / "config.json", lambda c: c.update(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
    done = train_cross_encoder(folder, data, tmp_path / "out", kind="class", **(QUICK | {"epochs": 1}))
    torch.manual_seed(0)
    model = CrossEncoder.begin(folder, data.classes, "cpu")
    expected = F.cross_entropy(torch.from_numpy(model.predict(pairs_of(data))), torch.from_numpy(data.labels))
    assert done["epochs"][0]["loss"] == pytest.approx(expected.item(), abs=1e-5)
    assert done["best"] is None


def test_seeds(folder, tmp_path):
    torch.manual_seed(1)
    state = torch.get_rng_state()
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        train_cross_encoder(folder, make_examples(), tmp_path / name, seed=seed, **QUICK)
    assert (torch.get_rng_state() == state).all()
    first, same, other = (weights_of(tmp_path / name) for name in "abc")
    assert first.keys() == same.keys()
    assert all((first[name] == same[name]).all() for name in first)
    assert not (first["classifier.weight"] == other["classifier.weight"]).all()


def test_the_best_epoch_is_kept(folder, tmp_path):
    dev = dataclasses.replace(make_examples(40, 1), labels=np.random.default_rng(2).random(40))
    last_is_best = []
    for labels in (dev.labels, 1 - dev.labels):  # what is best by one is worst by the other
        each = dataclasses.replace(dev, labels=labels)
        done = train_cross_encoder(folder, make_examples(), tmp_path / "out", dev=each, **(QUICK | {"epochs": 4}))
        values = [report["spearman"] for report in done["epochs"]]
        assert done["best"] == max(values)
        scores = CrossEncoder.load(tmp_path / "out", "cpu").predict(pairs_of(dev))
        assert scipy.stats.spearmanr(scores, labels).statistic == pytest.approx(done["best"], abs=1e-6)
        last_is_best.append(values[-1] == max(values))
    assert not all(last_is_best)


def test_classes_of_dev_data_are_matched_by_name(folder, tmp_path):
    data, dev = make_examples(kind="class"), make_examples(40, 1, "class")
    turned = dataclasses.replace(dev, labels=2 - dev.labels, classes=("flute", "parcel", "fox"))
    results = [
        train_cross_encoder(folder, data, tmp_path / "out", kind="class", dev=each, **QUICK) for each in (dev, turned)
    ]
    assert results[0] == results[1]
    unknown = dataclasses.replace(dev, classes=("fox", "parcel", "dog"))
    with pytest.raises(
        DataError, match=r"some\.tsv has the class 'dog', which the training data does not have: use fox, parcel"
    ):
        train_cross_encoder(folder, data, tmp_path / "out", kind="class", dev=unknown, **QUICK)


def test_classes_without_names(folder, tmp_path):
    data = dataclasses.replace(make_examples(kind="class"), classes=())
    train_cross_encoder(folder, data, tmp_path / "out", kind="class", **QUICK)
    assert CrossEncoder.load(tmp_path / "out", "cpu").labels == ["LABEL_0", "LABEL_1", "LABEL_2"]


def test_sentence_encoders_can_be_trained(folder, tmp_path):
    SentenceEncoder.load(folder, device="cpu", normalize=True, max_tokens=11).save(tmp_path / "st")
    edit_json(tmp_path / "st" / "sentence_bert_config.json", lambda config: config.update(do_lower_case=True))
    train_cross_encoder(tmp_path / "st", make_examples(16), tmp_path / "out", **QUICK)
    model = CrossEncoder.load(tmp_path / "out", "cpu")
    assert model.max_length == 11
    pairs = [("THE FOX", "A DOG"), *zip(TEXTS[::2], TEXTS[1::2], strict=True)]
    assert_same(model.predict(pairs), reference_of(tmp_path / "out").predict(pairs))


@pytest.mark.slow
def test_the_default_model_gets_a_head():
    torch.manual_seed(0)
    model = CrossEncoder.begin("default", device="cpu", max_length=32)
    assert (model.labels, model.max_length, model.activation) == (["LABEL_0"], 32, "sigmoid")
    vectors = SentenceEncoder.load("default", device="cpu").parts.body.model.state_dict()
    assert (
        model.model.state_dict()["bert.embeddings.LayerNorm.weight"] == vectors["embeddings.LayerNorm.weight"]
    ).all()
    assert model.predict([("a fox", "the dog")]).shape == (1,)


def test_max_tokens(folder, tmp_path):
    train_cross_encoder(folder, make_examples(16), tmp_path / "out", max_tokens=9, **QUICK)
    assert CrossEncoder.load(tmp_path / "out", "cpu").max_length == 9
    assert sentence_transformers.CrossEncoder(str(tmp_path / "out"), device="cpu").max_seq_length == 9


def test_heads_of_cross_encoders(tmp_path):
    folder = make_classifier(tmp_path, NLI)
    edit_json(folder / "config.json", lambda c: c.update(sentence_transformers={"activation_fn": "torch.nn.Sigmoid"}))
    head = weights_of(folder)["classifier.weight"]
    kept = CrossEncoder.begin(folder, ("a", "b", "c"), "cpu")
    assert (kept.model.classifier.weight.detach() == head).all()
    assert (kept.labels, kept.activation) == (["a", "b", "c"], "identity")
    assert not hasattr(kept.model.config, "sentence_transformers")
    assert CrossEncoder.begin(folder, ("LABEL_0",), "cpu").model.classifier.weight.shape == (1, 32)


def test_an_output_is_replaced_as_a_whole(folder, tmp_path):
    out = tmp_path / "a" / "out"
    train_cross_encoder(folder, make_examples(16), out, **QUICK)
    before = weights_of(out)
    (out / "stale.txt").write_text("old")
    train_cross_encoder(folder, make_examples(16), out, seed=1, **QUICK)
    assert not (out / "stale.txt").exists()
    assert not (weights_of(out)["classifier.weight"] == before["classifier.weight"]).all()
    with pytest.raises(DataError, match="the loss is "):
        train_cross_encoder(folder, make_examples(64), out, warmup=0, **(QUICK | {"learning_rate": 1e30}))
    assert CrossEncoder.load(out, "cpu").predict([("a", "b")]).shape == (1,)
    assert [path.name for path in out.parent.iterdir()] == ["out"]
    assert out.stat().st_mode & 0o777 == out.parent.stat().st_mode & 0o777


def test_saved_as_loaded(tmp_path, sentences):
    folder = make_classifier(tmp_path, NLI)
    reference_of(
        folder,
        prompts={"query": "query: "},
        default_prompt_name="query",
        activation_fn=torch.nn.Sigmoid(),
        max_length=13,
    ).save_pretrained(str(tmp_path / "st"))
    model = CrossEncoder.load(tmp_path / "st", "cpu")
    model.save(tmp_path / "ours")
    again = CrossEncoder.load(tmp_path / "ours", "cpu")
    assert again.fingerprint == model.fingerprint
    assert (again.activation, again.prompt, again.max_length) == ("sigmoid", "query: ", 13)
    pairs = [(first, second) for first in sentences for second in sentences]
    assert_same(again.predict(pairs), model.predict(pairs))
    assert_same(again.predict(pairs), reference_of(tmp_path / "ours").predict(pairs))


def test_logits(tmp_path):
    model = CrossEncoder.load(make_classifier(tmp_path), "cpu")
    pairs = list(zip(TEXTS[::2], TEXTS[1::2], strict=True))
    logits = model.predict(pairs, logits=True)
    np.testing.assert_allclose(1 / (1 + np.exp(-logits)), model.predict(pairs), atol=1e-6)
    with_gradient = model.logits(pairs)
    assert with_gradient.requires_grad
    np.testing.assert_allclose(with_gradient[:, 0].detach().numpy(), logits, atol=1e-5)
    assert model.count_tokens([("a dog", "fox"), ("", "")]).tolist() == [
        len(model._tokenizer.encode(*pair)) for pair in (("a dog", "fox"), ("", ""))
    ]
    assert model.count_tokens([]).shape == (0,)


def test_an_output_that_is_not_a_model(folder, tmp_path):
    (tmp_path / "letters").mkdir()
    check_model_target(tmp_path / "letters")
    (tmp_path / "letters" / "dear.txt").write_text("Dear all")
    for target in (tmp_path / "letters", tmp_path / "letters" / "dear.txt"):
        with pytest.raises(ModelError, match="exists and is not a model folder: choose another"):
            train_cross_encoder(folder, make_examples(), target, **QUICK)
    assert (tmp_path / "letters" / "dear.txt").read_text() == "Dear all"


def test_loss_that_is_not_finite(folder, tmp_path):
    with pytest.raises(
        DataError, match=r"some\.tsv: the loss is (nan|inf) in step 1 with rows \d+(, \d+){7} \(counted"
    ) as raised:
        train_cross_encoder(folder, make_examples(), tmp_path / "out", warmup=0, **(QUICK | {"learning_rate": 1e30}))
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("score", {"labels": None}, "some.tsv has no labels: expected one score per pair"),
        ("score", {"labels": np.zeros((64, 3), np.float32)}, "has vectors as labels: expected one score per pair"),
        ("score", {"labels": np.arange(64) / 62}, "the label of row 63 is 1.01.*, expected a score from 0 to 1: scale"),
        ("score", {"labels": np.full(64, np.nan)}, "the label of row 0 is nan, expected a score from 0 to 1"),
        ("binary", {"labels": np.array([1] * 63 + [0.5])}, r"the label of row 63 is 0\.5, expected 0 or 1"),
        ("class", {"labels": np.full(64, 0.5)}, "labels are float64, expected whole numbers of classes"),
        ("class", {"labels": np.arange(64) - 1}, "the label of row 0 is -1, expected a class"),
        ("class", {"labels": np.arange(64), "classes": ("a", "b")}, "of row 2 is 2, expected a class from 0 to 1"),
        ("class", {"labels": np.zeros(64, int)}, "some.tsv has a single class: expected two or more"),
        ("square", {}, "a cross-encoder cannot be trained on 'square': use score, class, binary"),
        ("score", {"texts": (["a"] * 64,)}, "some.tsv has 1 text columns: a cross-encoder needs 2 and a label"),
        ("score", {"texts": ([], []), "labels": np.empty(0)}, "some.tsv has no rows"),
    ],
)
def test_bad_examples(folder, tmp_path, kind, changes, message):
    bad = dataclasses.replace(make_examples(), **changes)
    with pytest.raises(DataError, match=message):
        train_cross_encoder(folder, bad, tmp_path / "out", kind=kind, **QUICK)
    if kind != "square" and "single" not in message:
        good = make_examples(kind=kind)
        with pytest.raises(DataError, match=message):
            train_cross_encoder(folder, good, tmp_path / "out", kind=kind, dev=bad, **QUICK)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"warmup": 1.5}, r"warmup must be a share of all steps, from 0 to 1, got 1\.5"),
        ({"batch_size": 0}, "a batch must have at least 1 row, got 0"),
        ({"learning_rate": 0}, "learning_rate must be above 0"),
        ({"max_tokens": 0}, "max_length must be at least 1, got 0"),
    ],
)
def test_bad_options(folder, tmp_path, options, message):
    with pytest.raises((DataError, ModelError), match=message):
        train_cross_encoder(folder, make_examples(), tmp_path / "out", **(QUICK | options))


def test_bad_texts(folder, tmp_path):
    bad = dataclasses.replace(make_examples(2), texts=(["a", "b"], ["c", None]))
    with pytest.raises(TextError, match=r"pairs\[1\]\[1\] is NoneType, expected str"):
        train_cross_encoder(folder, bad, tmp_path / "out", **QUICK)


def test_bad_models(folder, tmp_path):
    with pytest.raises(ModelError, match="there is no model folder"):
        train_cross_encoder(tmp_path / "none" / "such", make_examples(), tmp_path / "out", **QUICK)
    weights = weights_of(folder)
    del weights["encoder.layer.1.output.dense.weight"]
    safetensors.torch.save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(
        ModelError, match=r"lack 1 tensors .*'bert\.encoder\.layer\.1\.output.*expected a complete encoder"
    ):
        train_cross_encoder(folder, make_examples(), tmp_path / "out", **QUICK)
    edit_json(folder / "config.json", lambda config: config.update(vocab_size=7))
    with pytest.raises(ModelError, match=r"lack 2 tensors .*'bert\.embeddings\.word_embeddings\.weight'"):
        train_cross_encoder(folder, make_examples(), tmp_path / "out", **QUICK)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"pytorch_model\.bin is a pickle"):
        train_cross_encoder(folder, make_examples(), tmp_path / "out", **QUICK)


def test_static_encoders_cannot_read_pairs(folder, tmp_path):
    SentenceEncoder.load(folder, device="cpu").save(tmp_path / "st")
    kind = "sentence_transformers.models.StaticEmbedding"
    edit_json(tmp_path / "st" / "modules.json", lambda modules: modules[0].update(type=kind))
    with pytest.raises(ModelError, match="expected a Transformer, which can read two texts at once"):
        train_cross_encoder(tmp_path / "st", make_examples(), tmp_path / "out", **QUICK)
