"""Losses of truncated vectors: by hand, and beside sentence-transformers."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sentence_transformers.sentence_transformer import losses as peers

from sbert_beam import SentenceEncoder
from sbert_core.errors import DataError
from sbert_core.training.losses.distillation_losses import Distillation
from sbert_core.training.losses.matryoshka import Matryoshka
from sbert_core.training.losses.momentum import MomentumContrast
from sbert_core.training.losses.objectives import make_objective
from sbert_core.training.losses.pair_losses import Classification, CoSENT, Regression
from sbert_core.training.losses.ranking_losses import MultipleNegatives, SimCSE
from sbert_core.training.losses.triplet_losses import BatchHardTriplet, Triplet
from sbert_core.training.plan import DataSpec
from sbert_core.training.prepared_data import prepare
from tests.loss_peers import assert_same_as_peer, draw
from tests.tiny_models import make_transformer

SCORES = torch.tensor([0.9, 0.5, 0.1, 0.5, 0.3, 0.7])


def test_by_hand():
    u, v = torch.tensor([[1.0, 0.0]]), torch.tensor([[3.0, 4.0]])  # cosine 0.6, and 1 of the first components
    objective = Matryoshka(Regression(), dim=2, dims=[2, 1], weights=[1, 0.5])
    assert objective([u, v], torch.tensor([0.5])).item() == pytest.approx(0.1**2 + 0.5 * 0.5**2)
    assert Matryoshka(Regression(), dim=2, dims=[1])([u, v], torch.tensor([0.5])).item() == pytest.approx(0.25)


def test_truncated_vectors_keep_their_length():
    anchor, positive, negative = torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 0.0]])
    objective = Matryoshka(Triplet(), dim=2, dims=[2, 1])
    assert objective([anchor, positive, negative], None).item() == pytest.approx((5 - 1 + 1) + (3 - 1 + 1))


def test_a_teacher_is_truncated_too():
    student, teacher = torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 4.0]])
    assert Matryoshka(Distillation(), dim=2, dims=[2, 1])([student], teacher).item() == pytest.approx(2 + 0)


@pytest.mark.parametrize("weights", [None, [1.0, 0.5, 0.25]])
@pytest.mark.parametrize(
    ("objective", "peer", "columns", "labels"),
    [
        (MultipleNegatives(), peers.MultipleNegativesRankingLoss, 3, None),
        (Regression(), peers.CosineSimilarityLoss, 2, SCORES),
        (CoSENT(), peers.CoSENTLoss, 2, SCORES),
    ],
)
def test_beside_its_peer(objective, peer, columns, labels, weights):
    dims = [5, 3, 2]
    assert_same_as_peer(
        Matryoshka(objective, dim=5, dims=dims, weights=weights),
        lambda model: peers.MatryoshkaLoss(model, peer(model), dims, weights),
        draw(columns),
        labels,
    )


@pytest.mark.parametrize("inner", [Regression(), SimCSE(), BatchHardTriplet(), Distillation()])
def test_it_wants_what_the_objective_wants(inner):
    wrapped = Matryoshka(inner, dim=4, dims=[4, 2])
    assert wrapped.columns == inner.columns
    assert wrapped.labels == inner.labels
    assert wrapped.distinct == inner.distinct
    assert wrapped.grouped == inner.grouped


def test_it_does_what_the_objective_does():
    class Told(SimCSE):
        def embed(self, encoder, views):
            return [torch.ones(2, 4), encoder]

        def after_step(self, encoder):
            self.stepped_with = encoder

    inner = Told()
    wrapped = Matryoshka(inner, dim=4, dims=[2])
    assert wrapped.views([["a"]], np.random.default_rng(0)) == [["a"], ["a"]]
    assert wrapped.embed("the encoder", [])[1] == "the encoder"
    wrapped.after_step("the encoder")
    assert inner.stepped_with == "the encoder"
    vectors = draw(2)
    torch.testing.assert_close(wrapped.logits(vectors), inner.logits(vectors))
    assert Matryoshka(Regression(), dim=5, dims=[2]).logits(vectors) is None


@pytest.mark.parametrize("inner", [Classification(dim=4, n_classes=2), MomentumContrast(dim=4)])
def test_objectives_of_one_width(inner):
    with pytest.raises(DataError, match="cannot be trained on truncated vectors"):
        Matryoshka(inner, dim=4, dims=[4, 2])


@pytest.mark.parametrize("dims", [[], "42", 4, [0], [5], [2, 2], [2.0], [True]])
def test_nonsense_dims(dims):
    with pytest.raises(DataError, match="'matryoshka_dims' is"):
        Matryoshka(Regression(), dim=4, dims=dims)


@pytest.mark.parametrize("weights", [[1.0], 1.0, [1, -1], [1, 0], [1, "a"]])
def test_nonsense_weights(weights):
    with pytest.raises(DataError, match="'matryoshka_weights' is"):
        Matryoshka(Regression(), dim=4, dims=[4, 2], weights=weights)


@pytest.mark.parametrize("name", ["triplet", "contrastive", "distillation", "margin_distillation"])
def test_truncated_vectors_are_trained_as_they_are_used(name):
    """What the encoder gives with truncate_dim, not what is left when components are cut off."""
    torch.manual_seed(0)
    options = {"contrastive": {"distance": "euclidean"}}.get(name, {})
    columns = {"triplet": 3, "contrastive": 2, "distillation": 1, "margin_distillation": 3}[name]
    vectors = [F.normalize(torch.randn(6, 8), dim=-1) for _ in range(columns)]
    labels = {
        "contrastive": torch.tensor([0, 1, 0, 1, 0, 1]),
        "distillation": F.normalize(torch.randn(6, 8), dim=-1),
        "margin_distillation": torch.randn(6),
    }.get(name)
    used = [F.normalize(column[:, :3], dim=-1) for column in vectors]
    target = F.normalize(labels[:, :3], dim=-1) if name == "distillation" else labels
    plain = make_objective(name, dim=8, classes=(), options=options)
    wrapped = {
        normalizes: make_objective(
            name, dim=8, classes=(), options={**options, "matryoshka_dims": [3]}, normalizes=normalizes
        )
        for normalizes in (True, False)
    }
    torch.testing.assert_close(wrapped[True](vectors, labels), plain(used, target))
    cut = labels[:, :3] if name == "distillation" else labels
    torch.testing.assert_close(wrapped[False](vectors, labels), plain([column[:, :3] for column in vectors], cut))
    assert not torch.allclose(wrapped[True](vectors, labels), wrapped[False](vectors, labels))


def test_a_plan_knows_whether_its_model_normalises(tmp_path):
    path = tmp_path / "texts.tsv"
    path.write_text("a\tb\tc\nthe fox\tmy fox\tthe dog\nthe man\ta man\tmy parcel\n")
    folder = str(make_transformer(tmp_path / "model"))
    options = {"matryoshka_dims": [32, 8]}
    spec = DataSpec(file=str(path), objective="triplet", columns=("a", "b", "c"), options=options)
    for normalize in (True, False):
        encoder = SentenceEncoder.load(folder, normalize=normalize)
        assert prepare(spec, encoder, 2, 0, False).objective.normalizes == normalize
