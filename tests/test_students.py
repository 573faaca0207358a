"""Students are what is left of their teachers, and learn the teachers' numbers."""

import copy
import dataclasses

import numpy as np
import pytest
import sklearn.decomposition
import torch
import transformers
from sentence_transformers import SentenceTransformer

from sbert_beam import CrossEncoder, DataError, ModelError, SentenceEncoder, TextError
from sbert_core.data.examples import Examples
from sbert_core.encoder.heads import Dense, Normalize
from sbert_core.encoder.model_folder import EncoderParts
from sbert_core.encoder.pooling import Pooling
from sbert_core.encoder.transformer import Transformer
from sbert_core.training.students import (
    distillation_examples,
    drop_layers,
    margin_examples,
    reduce_dimensions,
    teacher_vectors,
)
from tests.tiny_models import TEXTS, make_classifier, make_tokenizer, make_transformer, perturb


def make_parts(architecture: str, layers: int) -> EncoderParts:
    """A random encoder with this many layers."""
    sizes = {"vocab_size": 110, "num_hidden_layers": layers, "num_attention_heads": 4}
    if architecture == "t5":
        config = transformers.T5Config(vocab_size=110, d_model=32, d_kv=8, d_ff=48, num_layers=layers, num_heads=4)
        kind = transformers.T5EncoderModel
    elif architecture == "distilbert":
        config = transformers.DistilBertConfig(vocab_size=110, dim=32, n_layers=layers, n_heads=4, hidden_dim=48)
        kind = transformers.DistilBertModel
    else:
        names = {"bert": "Bert", "roberta": "Roberta", "electra": "Electra", "mpnet": "MPNet"}[architecture]
        config = getattr(transformers, f"{names}Config")(**sizes, hidden_size=32, intermediate_size=48)
        kind = getattr(transformers, f"{names}Model")
    torch.manual_seed(4)
    model = kind(config).eval()
    perturb(model)
    body = Transformer(model, make_tokenizer(config.pad_token_id or 0), 24)
    return EncoderParts(body, Pooling(32), (Normalize(),))


def layers_of(parts: EncoderParts) -> list[torch.nn.Module]:
    model = parts.body.model
    if hasattr(model, "transformer"):
        return list(model.transformer.layer)
    return list(getattr(model.encoder, "layer", None) or model.encoder.block)


@pytest.fixture
def encoder(tmp_path) -> SentenceEncoder:
    return SentenceEncoder.load(make_transformer(tmp_path / "encoder"), device="cpu")


@pytest.mark.parametrize("architecture", ["bert", "roberta", "electra", "distilbert", "mpnet", "t5"])
def test_students_have_some_of_the_layers(tmp_path, architecture):
    teacher = make_parts(architecture, 5)
    before = copy.deepcopy(teacher.body.state_dict())
    student = drop_layers(teacher, [1, 4])
    assert student.body.model.config.num_hidden_layers == 2
    for ours, theirs in zip(layers_of(student), [layers_of(teacher)[1], layers_of(teacher)[4]], strict=True):
        weights = ours.state_dict()
        for name, weight in theirs.state_dict().items():
            assert (weights[name] == weight).all()
            assert weights[name].data_ptr() != weight.data_ptr()
    vectors = SentenceEncoder(student, device="cpu").encode(TEXTS)
    SentenceEncoder(student, device="cpu").save(tmp_path / "student")
    again = SentenceEncoder.load(tmp_path / "student", device="cpu")
    np.testing.assert_allclose(again.encode(TEXTS), vectors, atol=1e-6)
    reference = SentenceTransformer(str(tmp_path / "student"), device="cpu")
    np.testing.assert_allclose(reference.encode(TEXTS), vectors, atol=1e-5)
    # The teacher is as it was.
    assert len(layers_of(teacher)) == teacher.body.model.config.num_hidden_layers == 5
    for name, weight in teacher.body.state_dict().items():
        assert (weight == before[name]).all()


def test_t5_keeps_its_table_of_distances():
    teacher = make_parts("t5", 4)
    student = SentenceEncoder(drop_layers(teacher, [1, 3]), device="cpu")
    for layer in (layers_of(teacher)[number] for number in (0, 2)):  # in T5 a layer that adds nothing is as if dropped
        layer.layer[0].SelfAttention.o.weight.data.zero_()
        layer.layer[1].DenseReluDense.wo.weight.data.zero_()
    expected = SentenceEncoder(teacher, device="cpu").encode(TEXTS)
    np.testing.assert_allclose(student.encode(TEXTS), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("layers", "keep", "expected"),
    [(12, 6, [0, 2, 4, 7, 9, 11]), (6, 3, [0, 3, 5]), (5, 5, [0, 1, 2, 3, 4]), (5, 2, [0, 4]), (5, 1, [0])],
)
def test_evenly_spaced_layers(layers, keep, expected):
    teacher = make_parts("bert", layers)
    marks = [layer.output.dense.weight[0, 0].item() for layer in layers_of(teacher)]
    student = drop_layers(teacher, keep)
    assert [layer.output.dense.weight[0, 0].item() for layer in layers_of(student)] == [marks[n] for n in expected]


@pytest.mark.parametrize("keep", [0, 6, -1, [], [5], [-1], [2, 1], [1, 1]])
def test_layers_that_are_not_there(keep):
    with pytest.raises(ModelError, match=r"the encoder has 5 layers: use 1 to 5|from 0 to 4 in ascending order"):
        drop_layers(make_parts("bert", 5), keep)


def test_layers_of_other_models(tmp_path):
    encoder = SentenceEncoder.load(make_transformer(tmp_path, "deberta-v2"), device="cpu")
    with pytest.raises(ModelError, match="layers of a DebertaV2Model cannot be dropped: use one of BertModel, "):
        drop_layers(encoder.parts, 1)


def test_dimensions_are_principal_components(encoder, tmp_path):
    vectors = encoder.encode(TEXTS)
    reduced = reduce_dimensions(encoder, TEXTS, 6)
    assert reduced.dim == 6
    layer = reduced.parts.heads[-1]
    assert isinstance(layer, Dense)
    assert layer.linear.bias is None
    components = layer.linear.weight.detach().numpy()
    expected = sklearn.decomposition.PCA(6, svd_solver="full").fit(vectors.astype(np.float64)).components_
    signs = np.sign((components * expected).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(components, expected * signs, atol=1e-4)
    assert (components[np.arange(6), np.abs(components).argmax(axis=1)] > 0).all()
    np.testing.assert_allclose(reduced.encode(TEXTS), vectors @ components.T, atol=1e-5)
    assert (encoder.encode(TEXTS) == vectors).all()
    reduced.save(tmp_path / "reduced")
    reference = SentenceTransformer(str(tmp_path / "reduced"), device="cpu")
    np.testing.assert_allclose(reference.encode(TEXTS), reduced.encode(TEXTS), atol=1e-5)


def test_reduced_vectors_are_normalised_last(encoder):
    parts = dataclasses.replace(encoder.parts, heads=(Normalize(),))
    unit = SentenceEncoder(parts, device="cpu", truncate_dim=8)
    reduced = reduce_dimensions(unit, TEXTS, 32)
    assert [type(head) for head in reduced.parts.heads] == [Dense, Normalize]
    full = SentenceEncoder(parts, device="cpu").encode(TEXTS)
    np.testing.assert_allclose(np.linalg.norm(reduced.encode(TEXTS), axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(reduced.encode(TEXTS) @ reduced.encode(TEXTS).T, full @ full.T, atol=1e-4)  # a rotation


def test_bad_reductions(encoder):
    for dim in (0, 33):
        with pytest.raises(ModelError, match=f"dim must be between 1 and the encoder's 32, got {dim}"):
            reduce_dimensions(encoder, TEXTS, dim)
    with pytest.raises(DataError, match="8 principal components need at least as many different texts, got 3"):
        reduce_dimensions(encoder, [*TEXTS[:3]] * 5, 8)


def test_teacher_vectors_are_kept(encoder, tmp_path):
    expected = encoder.encode(TEXTS)
    assert (teacher_vectors(encoder, TEXTS) == expected).all()
    cache = tmp_path / "some" / "cache"
    assert (teacher_vectors(encoder, TEXTS, cache) == expected).all()
    (kept,) = cache.iterdir()
    np.save(kept, expected + 1)  # to see where they come from
    assert (teacher_vectors(encoder, TEXTS, cache) == expected + 1).all()
    assert (teacher_vectors(encoder, TEXTS[::-1], cache) == expected[::-1]).all()
    # Neither another way to cut the same letters nor another encoder is the same.
    for texts in (["ab", "c"], ["a", "bc"], []):
        assert teacher_vectors(encoder, texts, cache).shape == (len(texts), 32)
    other = SentenceEncoder(encoder.parts, device="cpu", truncate_dim=4)
    assert teacher_vectors(other, TEXTS, cache).shape == (60, 4)
    assert len(list(cache.iterdir())) == 6


def test_bad_caches(encoder, tmp_path):
    teacher_vectors(encoder, TEXTS, tmp_path / "cache")
    (kept,) = (tmp_path / "cache").iterdir()
    kept.write_bytes(b"no array")
    with pytest.raises(DataError, match=r"\.npy is not readable: .*delete it"):
        teacher_vectors(encoder, TEXTS, tmp_path / "cache")
    np.save(kept, np.zeros((2, 3)))
    with pytest.raises(DataError, match=r"holds float64 \(2, 3\), expected float32 \(60, 32\): delete it"):
        teacher_vectors(encoder, TEXTS, tmp_path / "cache")
    with pytest.raises(TextError, match=r"texts\[1\] is NoneType, expected str"):
        teacher_vectors(encoder, ["a", None], tmp_path / "cache")


def test_distillation_examples(encoder, tmp_path):
    plain = distillation_examples(encoder, TEXTS, tmp_path / "cache")
    assert plain.texts == (TEXTS,)
    assert (plain.labels == encoder.encode(TEXTS)).all()
    assert len(list((tmp_path / "cache").iterdir())) == 1
    translations = Examples((["a dog", "my parcel"], ["ein Hund", "mein Paket"]), np.array([0, 1]), ("x", "y"), "file")
    found = distillation_examples(encoder, translations)
    assert found.texts == translations.texts
    assert (found.labels == encoder.encode(["a dog", "my parcel"])).all()
    assert (found.classes, found.name) == ((), "file")
    assert translations.labels.tolist() == [0, 1]


def test_margin_examples(tmp_path):
    model = CrossEncoder.load(make_classifier(tmp_path), "cpu")
    texts = (["a dog", "the fox", "a dog"], ["the dog", "a fox", "my dog"], ["my parcel", "a flute", "my dog"])
    found = margin_examples(model, Examples(texts, name="file"))
    logits = [[model.predict([(row[0], row[side])])[0] for side in (1, 2)] for row in zip(*texts, strict=True)]
    expected = [np.log(p / (1 - p)) - np.log(n / (1 - n)) for p, n in logits]
    assert found.labels.dtype == np.float32
    np.testing.assert_allclose(found.labels, expected, atol=1e-4)
    assert found.labels[2] == 0
    assert np.abs(found.labels[:2]).max() > 1e-3
    assert (found.texts, found.name) == (texts, "file")
    assert margin_examples(model, Examples(([], [], []))).labels.shape == (0,)


def test_bad_triplets(tmp_path):
    model = CrossEncoder.load(make_classifier(tmp_path), "cpu")
    with pytest.raises(DataError, match="file has 2 text columns: expected 3, query, positive and negative"):
        margin_examples(model, Examples((["a"], ["b"]), name="file"))
    several = CrossEncoder.load(make_classifier(tmp_path / "nli", ("no", "yes")), "cpu")
    with pytest.raises(ModelError, match="has 2 labels: margins need a single score"):
        margin_examples(several, Examples((["a"], ["b"], ["c"])))
