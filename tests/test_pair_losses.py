"""Objectives on pairs: by hand, and beside sentence-transformers."""

import math

import pytest
import torch
from sentence_transformers.sentence_transformer import losses as peers
from sentence_transformers.sentence_transformer.losses.contrastive import SiameseDistanceMetric

from sbert_core.errors import DataError
from sbert_core.training.losses.pair_losses import (
    CONCATENATIONS,
    Classification,
    Contrastive,
    CoSENT,
    OnlineContrastive,
    Regression,
)
from tests.loss_peers import assert_harmless, assert_same_as_peer, draw

# Cosines 1, 0 and 0.6.
U = torch.tensor([[2.0, 0.0], [1.0, 0.0], [3.0, 4.0]])
V = torch.tensor([[3.0, 0.0], [0.0, 5.0], [1.0, 0.0]])
SCORES = torch.tensor([0.9, 0.5, 0.1, 0.5, 0.3, 0.7])
BINARY = torch.tensor([1, 0, 0, 1, 1, 0])
METRICS = {
    "cosine": SiameseDistanceMetric.COSINE_DISTANCE,
    "euclidean": SiameseDistanceMetric.EUCLIDEAN,
    "manhattan": SiameseDistanceMetric.MANHATTAN,
}


def test_classification_by_hand():
    objective = Classification(dim=2, n_classes=2)
    assert objective.head.weight.shape == (2, 6)
    with torch.no_grad():
        objective.head.weight.copy_(torch.tensor([[1.0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1.0]]))  # u_1 and |u - v|_2
    assert objective.logits([U, V]).tolist() == [[2, 0], [1, 5], [3, 4]]
    expected = (math.log(1 + math.exp(-2)) + math.log(1 + math.exp(-4)) + math.log(1 + math.exp(1))) / 3
    assert objective([U, V], torch.tensor([0, 1, 0])).item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("concatenation", "expected"),
    [
        ("u,v,|u-v|", [3, 4, 1, 0, 2, 4]),
        ("u,v", [3, 4, 1, 0]),
        ("|u-v|", [2, 4]),
        ("u*v", [3, 0]),
        ("|u-v|,u*v", [2, 4, 3, 0]),
        ("u,v,u*v", [3, 4, 1, 0, 3, 0]),
        ("u,v,|u-v|,u*v", [3, 4, 1, 0, 2, 4, 3, 0]),
    ],
)
def test_concatenations(concatenation, expected):
    width = len(expected)
    objective = Classification(dim=2, n_classes=width, concatenation=concatenation)
    with torch.no_grad():
        objective.head.weight.copy_(torch.eye(width))
    assert objective.logits([U[2:], V[2:]]).tolist() == [expected]


@pytest.mark.parametrize("concatenation", CONCATENATIONS)
def test_classification_beside_its_peer(concatenation):
    labels = torch.tensor([0, 2, 1, 1, 0, 2])
    objective = Classification(dim=5, n_classes=3, concatenation=concatenation)

    def make_peer(model):
        peer = peers.SoftmaxLoss(
            model,
            5,
            3,
            concatenation_sent_rep="u,v" in concatenation,
            concatenation_sent_difference="|u-v|" in concatenation,
            concatenation_sent_multiplication="u*v" in concatenation,
        )
        with torch.no_grad():
            peer.classifier.weight.copy_(objective.head.weight)
            peer.classifier.bias.zero_()
        return peer

    assert_same_as_peer(objective, make_peer, draw(2), labels)


def test_the_head_learns():
    objective = Classification(dim=5, n_classes=3).double()
    objective(draw(2), torch.tensor([0, 2, 1, 1, 0, 2])).backward()
    assert objective.head.weight.grad.abs().sum() > 0


def test_regression_by_hand():
    assert Regression()([U, V], torch.tensor([1.0, 0.5, 0.5])).item() == pytest.approx((0 + 0.25 + 0.01) / 3)


def test_cosent_by_hand():
    # Rows 0 and 1 are in order (1 > 0), row 2 should be above row 0; rows 1 and 2 are in order.
    loss = CoSENT(scale=2)([U, V], torch.tensor([0.5, 0.0, 1.0]))
    expected = math.log(1 + math.exp(2 * (0 - 1)) + math.exp(2 * (0 - 0.6)) + math.exp(2 * (1 - 0.6)))
    assert loss.item() == pytest.approx(expected)


def test_cosent_of_equal_scores_is_nothing():
    assert assert_harmless(CoSENT(), draw(2), torch.ones(6)) == 0


@pytest.mark.parametrize("kind", [Contrastive, OnlineContrastive])
def test_contrastive_by_hand(kind):
    # Distances 0, 1 and 0.4: the negative in row 2 breaks a margin of 0.5, the positive in row 1 is apart.
    loss = kind(margin=0.5)([U, V], torch.tensor([1, 1, 0])).item()
    assert loss == pytest.approx((1 + 0.1**2) / 6 if kind is Contrastive else 1 + 0.1**2)


def test_online_contrastive_leaves_out_easy_pairs():
    # The negative at distance 1 is beyond every positive, so are the positives nearer than every negative.
    assert OnlineContrastive(margin=2)([U, V], torch.tensor([1, 0, 1])).item() == 0
    assert Contrastive(margin=2)([U, V], torch.tensor([1, 0, 1])).item() > 0


@pytest.mark.parametrize(
    ("objective", "make_peer", "labels"),
    [
        (Regression(), peers.CosineSimilarityLoss, SCORES),
        (CoSENT(), peers.CoSENTLoss, SCORES),
        (CoSENT(scale=5), lambda model: peers.CoSENTLoss(model, scale=5), SCORES),
    ],
)
def test_scores_beside_their_peer(objective, make_peer, labels):
    assert_same_as_peer(objective, make_peer, draw(2), labels)


@pytest.mark.parametrize("distance", METRICS)
@pytest.mark.parametrize("margin", [0.5, 4.0])
def test_contrastive_beside_its_peer(distance, margin):
    # The peer adds 1e-6 to every difference before it takes a norm.
    tolerance = 1e-9 if distance == "cosine" else 1e-4
    for kind, peer in [(Contrastive, peers.ContrastiveLoss), (OnlineContrastive, peers.OnlineContrastiveLoss)]:
        objective = kind(margin=margin, distance=distance)
        assert_same_as_peer(
            objective, lambda model, peer=peer: peer(model, METRICS[distance], margin), draw(2), BINARY, tolerance
        )


@pytest.mark.parametrize("labels", [[1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0]])
def test_online_contrastive_of_one_kind_of_pair(labels):
    assert_same_as_peer(
        OnlineContrastive(margin=2), lambda m: peers.OnlineContrastiveLoss(m, margin=2), draw(2), torch.tensor(labels)
    )


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(
    "objective",
    [
        Regression(),
        CoSENT(),
        *[kind(distance=distance) for kind in (Contrastive, OnlineContrastive) for distance in METRICS],
    ],
    ids=lambda objective: f"{type(objective).__name__}-{getattr(objective, 'distance', '')}",
)
def test_equal_texts_and_a_batch_of_one(objective, rows):
    vectors = draw(1, rows) * 2
    for labels in (torch.zeros(rows), torch.ones(rows)):
        assert_harmless(objective, vectors, labels)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Classification(dim=2, n_classes=1), "use labels with at least two"),
        (lambda: Classification(dim=2, n_classes=2, concatenation="u,w"), r"'u,w': use one of 'u,v,\|u-v\|'"),
        (lambda: Contrastive(margin=-0.1), "'margin' is -0.1: give a number of at least 0"),
        (lambda: Contrastive(margin=float("nan")), "'margin' is nan"),
        (lambda: OnlineContrastive(distance="dot"), "'distance' is 'dot': use one of 'euclidean'"),
        (lambda: CoSENT(scale=0), "'scale' is 0: give a number above 0"),
        (lambda: CoSENT(scale="20"), "'scale' is '20'"),
        (lambda: Regression()([U, V], None), r"Regression needs labels \(score\)"),
    ],
)
def test_nonsense(make, message):
    with pytest.raises(DataError, match=message):
        make()
