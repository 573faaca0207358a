"""The pairs that MineParaphrases writes: each option has an effect, and which."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers.util import paraphrase_mining_embeddings

from sbert_core.encoder.cross_encoder import CrossEncoder
from tests.corpora import clustered, write_vectors
from tests.mined_outputs import pair_ids, read_dataset, run_transforms
from tests.tiny_models import make_classifier
from transforms.neighbors.exact import FindNeighbors
from transforms.neighbors.paraphrases import MineParaphrases

pytestmark = pytest.mark.slow

VECTORS = clustered(200)
OPTIONS = {
    "plain": {},
    "max_pairs": {"max_pairs": 10},
    "mutual": {"mutual": True},
    "strict": {"strict": True},
    "margin": {"margin": True},
    "no_overlap": {"max_lexical_overlap": 0.1},
    "near": {"min_score": 0.9},
}


def mine(folder: Path, pattern: str, options: dict[str, dict], other: str | None = None, **find) -> None:
    """Mines pairs into a folder for each set of options."""
    run_transforms(
        FindNeighbors(corpus=pattern, other=other, work=str(folder / "_work"), **find),
        {name: MineParaphrases(folder=str(folder / name), **each) for name, each in options.items()},
    )


@pytest.fixture(scope="module")
def mined(tmp_path_factory) -> Path:
    """Pairs of a corpus with three neighbours of each row, with several options."""
    folder = tmp_path_factory.mktemp("pairs")
    options = {name: {"min_score": 0.5, **each} for name, each in OPTIONS.items()}
    mine(folder, write_vectors(folder / "in", VECTORS, 2), options, k=3, block_rows=64)
    return folder


def test_options_have_an_effect(mined):
    pairs = {name: pair_ids(mined / name) for name in OPTIONS}
    plain = pairs["plain"]
    assert pairs["max_pairs"] == plain[:10]
    assert set(pairs["mutual"]) < set(plain)
    assert np.unique(np.array(plain), return_counts=True)[1].max() > 3
    assert np.unique(np.array(pairs["strict"]), return_counts=True)[1].max() == 3
    assert set(pairs["strict"]) < set(plain)
    assert set(pairs["margin"]) == set(plain)
    assert pairs["margin"] != plain
    assert pairs["no_overlap"] == []
    assert len(pairs["near"]) < len(plain)


def test_scores_are_cosines_or_margins(mined):
    plain, margin = (read_dataset(mined / name) for name in ("plain", "margin"))
    assert plain["score"].equals(plain["cosine"])
    assert (np.diff(plain["score"].to_numpy()) <= 0).all()
    assert (np.diff(margin["score"].to_numpy()) <= 0).all()
    order = [("id_a", "ascending"), ("id_b", "ascending")]
    assert margin.sort_by(order)["cosine"].equals(plain.sort_by(order)["cosine"])


def test_rows_have_the_texts_of_their_ids(mined):
    for row in read_dataset(mined / "plain").to_pylist():
        assert row["text_a"] == f"text {int(row['id_a'][1:])}"
        assert row["text_b"] == f"text {int(row['id_b'][1:])}"
        assert row["lexical_overlap"] == pytest.approx(1 / 3)


def test_pairs_are_those_of_sentence_transformers(tmp_path):
    mine(tmp_path, write_vectors(tmp_path / "in", VECTORS, 2), {"pairs": {"min_score": 0.5}}, k=100, block_rows=64)
    theirs = paraphrase_mining_embeddings(torch.from_numpy(VECTORS), top_k=100)
    expected = {(f"r{min(i, j):05}", f"r{max(i, j):05}") for score, i, j in theirs if score >= 0.5}
    found = pair_ids(tmp_path / "pairs")
    assert set(found) == expected
    assert len(found) == len(expected) > 100


def test_near_copies_are_left_out_by_lexical_overlap(tmp_path):
    texts = ["the red car", "the red car!", "a crimson automobile"]
    pattern = write_vectors(tmp_path / "in", np.ones((3, 4), np.float32), text=texts)
    mine(tmp_path, pattern, {"pairs": {"max_lexical_overlap": 0.9}})
    assert pair_ids(tmp_path / "pairs") == [("r00000", "r00002"), ("r00001", "r00002")]


def test_a_cross_encoder_scores_and_orders_pairs(tmp_path):
    model = make_classifier(tmp_path / "model")
    texts = [f"a man is playing the flute {'again ' * (row % 5)}" for row in range(12)]
    pattern = write_vectors(tmp_path / "in", clustered(12, 4), text=texts)
    mine(tmp_path, pattern, {"plain": {"min_score": 0.3}, "scored": {"min_score": 0.3, "cross_encoder": str(model)}})
    plain, scored = (read_dataset(tmp_path / name) for name in ("plain", "scored"))
    pairs = list(zip(scored["text_a"].to_pylist(), scored["text_b"].to_pylist(), strict=True))
    assert np.allclose(scored["score"], CrossEncoder.load(str(model)).score(pairs), atol=1e-6)
    assert (np.diff(scored["score"].to_numpy()) <= 0).all()
    assert sorted(scored["cosine"].to_pylist()) == sorted(plain["cosine"].to_pylist())


def test_numbers_and_negation_are_compared(tmp_path):
    texts = [
        "the service listens on port 8080",
        "the service listens on port 8081",
        "the service never listens on port 8080",
        "el servicio no escucha en el puerto 8080",
    ]
    mine(tmp_path, write_vectors(tmp_path / "in", np.ones((4, 4), np.float32), text=texts), {"pairs": {}})
    found = {
        (row["id_a"][-1] + row["id_b"][-1]): (row["numbers_differ"], row["negation_differs"])
        for row in read_dataset(tmp_path / "pairs").to_pylist()
    }
    assert found == {
        "01": (True, False),
        "02": (False, True),
        "03": (False, None),
        "12": (True, True),
        "13": (True, None),
        "23": (False, None),
    }


def test_numbers_are_compared_across_corpora(tmp_path):
    left = write_vectors(tmp_path / "a", np.ones((2, 4), np.float32), text=["room 1", "room 2"])
    right = write_vectors(tmp_path / "b", np.ones((1, 4), np.float32), text=["room 2"])
    mine(tmp_path, left, {"pairs": {}}, other=right)
    assert read_dataset(tmp_path / "pairs").sort_by("id_a")["numbers_differ"].to_pylist() == [True, False]
