"""Encoders have the same fingerprint if and only if they compute the same vectors."""

import shutil

import pytest
import torch

from sbert_beam import SentenceEncoder
from sbert_core.encoder.heads import Dense
from tests.tiny_models import edit_json, make_parts, make_transformer


@pytest.fixture
def folder(tmp_path):
    SentenceEncoder(make_parts(tmp_path / "hf", heads=[Dense(32, 8)]), device="cpu").save(tmp_path / "model")
    return tmp_path / "model"


def test_stable_over_loads_and_places(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "elsewhere")
    first = SentenceEncoder.load(folder).fingerprint
    assert len(first) == 64
    assert SentenceEncoder.load(tmp_path / "elsewhere", batch_tokens=7).fingerprint == first


def test_known_value(default_encoder):
    # Stored with every dataset: if it changes, every corpus must be embedded again.
    assert default_encoder.fingerprint == "0ee49a1cbd8051a8cc1e88cf119f57d7165545d73278c71dfbed14cebf29daf6"


def test_an_unused_pooler_has_no_effect(tmp_path):
    folder = make_transformer(tmp_path)
    encoder, other = SentenceEncoder.load(folder), SentenceEncoder.load(folder)
    with torch.no_grad():
        other.parts.body.model.pooler.dense.weight.add_(1)
    assert other.fingerprint == encoder.fingerprint


@pytest.mark.parametrize(
    "options", [{"max_tokens": 7}, {"truncate_dim": 4}, {"normalize": True}, {"precision": "int8"}]
)
def test_options_that_change_vectors(folder, options):
    assert SentenceEncoder.load(folder, **options).fingerprint != SentenceEncoder.load(folder).fingerprint


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("config.json", lambda config: config.update(hidden_act="relu")),
        ("1_Pooling/config.json", lambda config: config.update(pooling_mode_cls_token=True)),
        ("2_Dense/config.json", lambda config: config.update(activation_function="torch.nn.modules.activation.ReLU")),
        ("config_sentence_transformers.json", lambda config: config["prompts"].update(query="q: ")),
        ("config_sentence_transformers.json", lambda config: config.update(default_prompt_name=None)),
        ("sentence_bert_config.json", lambda config: config.update(max_seq_length=9)),
        ("tokenizer.json", lambda config: config["normalizer"].update(lowercase=False)),
    ],
)
def test_files_that_change_vectors(folder, file, change):
    before = SentenceEncoder.load(folder).fingerprint
    if "Pooling" in file:
        shutil.rmtree(folder / "2_Dense")
        edit_json(folder / "modules.json", lambda modules: modules.pop())
        before = SentenceEncoder.load(folder).fingerprint
    edit_json(folder / file, change)
    assert SentenceEncoder.load(folder).fingerprint != before


def test_weights_have_an_effect(folder):
    encoder, other = SentenceEncoder.load(folder), SentenceEncoder.load(folder)
    with torch.no_grad():
        other.parts.heads[0].linear.bias[0] += 1e-3
    assert other.fingerprint != encoder.fingerprint
