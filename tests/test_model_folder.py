"""Folders written by this library and by sentence-transformers load in both."""

import json

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as their_modules

from sbert_beam import ModelError, SentenceEncoder
from sbert_core.encoder.heads import Dense, LayerNorm, Normalize
from sbert_core.encoder.model_folder import read_folder
from sbert_core.encoder.pooling import POOLING_MODES
from tests.peers import assert_same, build
from tests.tiny_models import ARCHITECTURES, edit_json, make_parts

pytestmark = pytest.mark.slow  # seconds in all


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_saved_by_us(tmp_path, sentences, architecture):
    heads = [Dense(32, 12, activation="Mish"), LayerNorm(12), Dense(12, 12, residual=True), Normalize()]
    parts = make_parts(tmp_path / "hf", architecture, heads=heads, max_tokens=11, lower_case=True)
    encoder = SentenceEncoder(parts, device="cpu")
    expected = encoder.encode(sentences)
    encoder.save(tmp_path / "saved")
    again = SentenceEncoder.load(tmp_path / "saved", device="cpu")
    reference = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_array_equal(again.encode(sentences), expected)
    assert_same(expected, reference.encode(sentences))
    assert reference.max_seq_length == again.max_tokens == 11
    assert again.parts.prompts == {"query": "query: ", "passage": "the dog "}
    assert reference.prompts["passage"] == "the dog "
    assert reference.default_prompt_name == again.parts.default_prompt_name == "query"
    assert again.fingerprint == encoder.fingerprint


@pytest.mark.parametrize("modes", [*((mode,) for mode in POOLING_MODES), ("max", "cls"), ("cls", "mean")])
def test_pooling_round_trip(tmp_path, sentences, modes):
    encoder = SentenceEncoder(make_parts(tmp_path / "hf", modes=modes), device="cpu")
    encoder.save(tmp_path / "saved")
    assert read_folder(tmp_path / "saved").pooling.modes == modes
    assert_same(encoder.encode(sentences), SentenceTransformer(str(tmp_path / "saved"), device="cpu").encode(sentences))


def test_second_save_is_identical(tmp_path):
    encoder = SentenceEncoder(make_parts(tmp_path / "hf", heads=[Dense(32, 8)]), device="cpu")
    encoder.save(tmp_path / "one")
    SentenceEncoder.load(tmp_path / "one").save(tmp_path / "two")
    for path in sorted((tmp_path / "one").rglob("*")):
        if path.is_file():
            assert path.read_bytes() == (tmp_path / "two" / path.relative_to(tmp_path / "one")).read_bytes(), path


@pytest.mark.parametrize(
    ("flags", "modes"),
    [
        ({}, ("mean",)),
        ({"pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": True}, ("max",)),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, ("cls", "mean")),
    ],
)
def test_old_pooling_flags(tmp_path, flags, modes):
    build(tmp_path)
    config = {"word_embedding_dimension": 32, **flags}
    (tmp_path / "st" / "1_Pooling" / "config.json").write_text(json.dumps(config))
    assert read_folder(tmp_path / "st").pooling.modes == modes


def test_not_a_model_folder(tmp_path):
    with pytest.raises(ModelError, match=r"neither modules\.json nor config\.json"):
        SentenceEncoder.load(tmp_path)


def test_broken_json(tmp_path):
    build(tmp_path)
    (tmp_path / "st" / "modules.json").write_text("[{")
    with pytest.raises(ModelError, match=r"modules\.json is not readable JSON"):
        SentenceEncoder.load(tmp_path / "st")


def test_unknown_module(tmp_path):
    build(tmp_path, heads=[their_modules.Dropout(0.1)])
    with pytest.raises(ModelError, match="Dropout"):
        SentenceEncoder.load(tmp_path / "st")


def test_modules_in_the_wrong_order(tmp_path):
    build(tmp_path)
    edit_json(tmp_path / "st" / "modules.json", lambda modules: modules.reverse())
    with pytest.raises(ModelError, match="expected Transformer then Pooling"):
        SentenceEncoder.load(tmp_path / "st")


def test_weights_that_lack_a_tensor(tmp_path):
    build(tmp_path)
    edit_json(tmp_path / "st" / "config.json", lambda config: config.update(num_hidden_layers=3))
    with pytest.raises(ModelError, match=r"lack 16 tensors of BertModel, for example 'encoder\.layer\.2"):
        SentenceEncoder.load(tmp_path / "st")


def test_undefined_default_prompt(tmp_path):
    build(tmp_path)
    edit_json(
        tmp_path / "st" / "config_sentence_transformers.json", lambda config: config.update(default_prompt_name="nope")
    )
    with pytest.raises(ModelError, match="default prompt 'nope' is not defined"):
        SentenceEncoder.load(tmp_path / "st")
