"""A model folder is data: no code in it is run, and no file outside it is read."""

import json

import pytest
import torch
from sentence_transformers.sentence_transformer import modules as their_modules

from sbert_beam import ModelError, SentenceEncoder
from tests.damage import Payload
from tests.peers import assert_same, build
from tests.tiny_models import edit_json, make_transformer


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "weights.pkl", "model.pt"])
def test_pickled_weights_are_refused_unopened(tmp_path, name):
    folder = make_transformer(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    torch.save(Payload(tmp_path / "mark"), folder / name)
    with pytest.raises(ModelError, match=rf"{name} is a pickle.*allow_pickle=True"):
        SentenceEncoder.load(folder)
    assert not (tmp_path / "mark").exists()


def test_pickled_weights_when_allowed(tmp_path, sentences):
    reference = build(tmp_path, heads=[their_modules.Dense(32, 8)])
    expected = reference.encode(sentences)
    for part, module in (("", reference[0].model), ("2_Dense", reference[2])):
        (tmp_path / "st" / part / "model.safetensors").unlink()
        torch.save(module.state_dict(), tmp_path / "st" / part / "pytorch_model.bin")
    with pytest.raises(ModelError, match="is a pickle"):
        SentenceEncoder.load(tmp_path / "st")
    assert_same(SentenceEncoder.load(tmp_path / "st", allow_pickle=True).encode(sentences), expected)


def test_a_pickled_dense_layer_is_refused(tmp_path):
    build(tmp_path, heads=[their_modules.Dense(32, 8)])
    (tmp_path / "st" / "2_Dense" / "model.safetensors").rename(tmp_path / "st" / "2_Dense" / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"2_Dense/pytorch_model\.bin is a pickle"):
        SentenceEncoder.load(tmp_path / "st")


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_custom_code_is_refused_unrun(tmp_path, name):
    folder = make_transformer(tmp_path / "model")
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'w')")
    edit_json(folder / name, lambda config: config.update(auto_map={"AutoModel": "evil.Model"}))
    with pytest.raises(ModelError, match=rf"{name} asks to run Python code.*allow_code=True"):
        SentenceEncoder.load(folder)
    assert not (tmp_path / "mark").exists()


def test_custom_code_when_allowed(tmp_path, sentences):
    folder = make_transformer(tmp_path / "model")
    expected = SentenceEncoder.load(folder).encode(sentences)
    (folder / "modeling_mine.py").write_text(
        "from transformers import BertModel\n\n\nclass MyModel(BertModel):\n    mine = True\n"
    )
    edit_json(folder / "config.json", lambda config: config.update(auto_map={"AutoModel": "modeling_mine.MyModel"}))
    encoder = SentenceEncoder.load(folder, allow_code=True)
    assert encoder.parts.body.model.mine
    assert_same(encoder.encode(sentences), expected)


def test_custom_modules_are_refused(tmp_path):
    build(tmp_path)
    edit_json(tmp_path / "st" / "modules.json", lambda modules: modules[1].update(type="os.system"))
    with pytest.raises(ModelError, match=r"type 'os\.system'; this library runs Transformer"):
        SentenceEncoder.load(tmp_path / "st")


@pytest.mark.parametrize("path", ["../outside", "/etc", "1_Pooling/../../outside"])
def test_paths_that_leave_the_folder(tmp_path, path):
    build(tmp_path)
    (tmp_path / "outside").mkdir()
    edit_json(tmp_path / "st" / "modules.json", lambda modules: modules[1].update(path=path))
    with pytest.raises(ModelError, match="leaves the model folder"):
        SentenceEncoder.load(tmp_path / "st")


def test_a_link_that_leaves_the_folder(tmp_path):
    build(tmp_path)
    (tmp_path / "st" / "1_Pooling").rename(tmp_path / "outside")
    (tmp_path / "st" / "1_Pooling").symlink_to(tmp_path / "outside")
    with pytest.raises(ModelError, match="leaves the model folder"):
        SentenceEncoder.load(tmp_path / "st")


def test_shards_that_leave_the_folder(tmp_path):
    folder = make_transformer(tmp_path / "model")
    (folder / "model.safetensors").rename(tmp_path / "model.safetensors")
    index = {"metadata": {}, "weight_map": {"embeddings.word_embeddings.weight": "../model.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match="leaves the model folder"):
        SentenceEncoder.load(folder)


@pytest.mark.parametrize(
    "activation", ["os.system", "torch.hub.load", "torch.nn.modules.linear.Linear", "builtins.exec"]
)
def test_activations_outside_the_table(tmp_path, activation):
    build(tmp_path, heads=[their_modules.Dense(32, 8)])
    path = tmp_path / "st" / "2_Dense" / "config.json"
    edit_json(path, lambda config: config.update(activation_function=activation))
    with pytest.raises(ModelError, match="is not allowed in a model"):
        SentenceEncoder.load(tmp_path / "st")


def test_no_weights(tmp_path):
    folder = make_transformer(tmp_path)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"no model\.safetensors"):
        SentenceEncoder.load(folder)


def test_an_adapter(tmp_path):
    folder = make_transformer(tmp_path)
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="merge it into its base model"):
        SentenceEncoder.load(folder)
