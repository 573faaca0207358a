"""Objectives on triplets: by hand, and beside sentence-transformers."""

import math

import pytest
import torch
from sentence_transformers.sentence_transformer import losses as peers
from sentence_transformers.sentence_transformer.losses.batch_hard_triplet import BatchHardTripletLossDistanceFunction
from sentence_transformers.sentence_transformer.losses.triplet import TripletDistanceMetric

from sbert_core.errors import DataError
from sbert_core.training.losses.distances import DISTANCES
from sbert_core.training.losses.triplet_losses import (
    BatchAllTriplet,
    BatchHardSoftMarginTriplet,
    BatchHardTriplet,
    BatchSemiHardTriplet,
    Triplet,
)
from tests.loss_peers import assert_harmless, assert_same_as_peer, draw

METRICS = {
    "euclidean": TripletDistanceMetric.EUCLIDEAN,
    "cosine": TripletDistanceMetric.COSINE,
    "manhattan": TripletDistanceMetric.MANHATTAN,
}
BATCH_METRICS = {
    "euclidean": BatchHardTripletLossDistanceFunction.euclidean_distance,
    "cosine": BatchHardTripletLossDistanceFunction.cosine_distance,
}
BATCH_PEERS = {
    BatchHardTriplet: peers.BatchHardTripletLoss,
    BatchHardSoftMarginTriplet: peers.BatchHardSoftMarginTripletLoss,
    BatchAllTriplet: peers.BatchAllTripletLoss,
    BatchSemiHardTriplet: peers.BatchSemiHardTripletLoss,
}
# On a line: classes 0 at 0 and 2, 1 at 3 and 7.
LINE = torch.tensor([[0.0], [2.0], [3.0], [7.0]])
CLASSES = torch.tensor([0, 0, 1, 1])


@pytest.mark.parametrize(
    ("distance", "expected"),
    [
        ("euclidean", [5 - 1 + 1, 0]),  # the second positive is 1 away, its negative 7
        ("manhattan", [7 - 1 + 1, 0]),
        ("cosine", [(1 - 0.6) - 0 + 1, 0 - 1 + 1]),
    ],
)
def test_by_hand(distance, expected):
    anchor = torch.tensor([[0.0, 0.0], [0.0, 0.0]]) if distance != "cosine" else torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    positive = torch.tensor([[3.0, 4.0], [1.0, 0.0]])
    negative = torch.tensor([[1.0, 0.0], [0.0, 7.0]])
    loss = Triplet(distance=distance)([anchor, positive, negative], None)
    assert loss.item() == pytest.approx(sum(expected) / 2)


@pytest.mark.parametrize("margin", [0.3, 1.0])
@pytest.mark.parametrize("distance", METRICS)
def test_beside_its_peer(distance, margin):
    objective = Triplet(margin=margin, distance=distance)
    assert_same_as_peer(objective, lambda model: peers.TripletLoss(model, METRICS[distance], margin), draw(3))


def test_batch_hard_by_hand():
    # Anchors: 2 - 3, 2 - 1, 4 - 1, 4 - 5.
    assert BatchHardTriplet(margin=1)([LINE], CLASSES).item() == pytest.approx((0 + 2 + 4 + 0) / 4)
    soft = sum(math.log(1 + math.exp(difference)) for difference in (-1, 1, 3, -1)) / 4
    assert BatchHardSoftMarginTriplet()([LINE], CLASSES).item() == pytest.approx(soft)


def test_batch_all_by_hand():
    # Anchor 0: 2-3+1, 2-7+1; 2: 2-1+1, 2-5+1; 3: 4-3+1, 4-1+1; 7: 4-7+1, 4-5+1. Positive: 2, 2 and 4.
    assert BatchAllTriplet(margin=1)([LINE], CLASSES).item() == pytest.approx(8 / 3)


def test_batch_semi_hard_by_hand():
    # Negatives beyond the positive: at 3; at 5, which keeps the margin; none, so the farthest, at 3; at 5.
    expected = ((2 - 3 + 2) + 0 + (4 - 3 + 2) + (4 - 5 + 2)) / 4
    assert BatchSemiHardTriplet(margin=2)([LINE], CLASSES).item() == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("distance", BATCH_METRICS)
@pytest.mark.parametrize("kind", BATCH_PEERS)
def test_batch_beside_its_peer(kind, distance, seed):
    labels = torch.tensor([0, 1, 0, 2, 1, 2, 0, 1])
    options = {} if kind is BatchHardSoftMarginTriplet else {"margin": 0.7}
    metric = BATCH_METRICS[distance]
    assert_same_as_peer(
        kind(distance=distance, **options),
        lambda model: BATCH_PEERS[kind](model, metric, **options),
        draw(1, 8, seed=seed),
        labels,
        tolerance=1e-7,  # the peer takes Euclidean distances from dot products
    )


@pytest.mark.parametrize("kind", BATCH_PEERS)
def test_manhattan_in_a_batch(kind):
    # On a line all distances but cosine are the same; spread over two equal axes Manhattan is twice as far.
    twice = torch.cat([LINE, LINE], dim=1)
    expected = kind()([2 * LINE], CLASSES)
    torch.testing.assert_close(kind(distance="manhattan")([twice], CLASSES), expected)


@pytest.mark.parametrize("kind", [BatchHardTriplet, BatchHardSoftMarginTriplet, BatchSemiHardTriplet])
def test_rows_without_a_partner_are_only_negatives(kind):
    lonely = torch.tensor([[100.0]])  # too far to be the hardest negative of anyone, and no anchor
    with_lonely = kind()([torch.cat([LINE, lonely])], torch.tensor([0, 0, 1, 1, 2]))
    if kind is BatchSemiHardTriplet:  # beyond every positive there is a negative now: it is easy
        assert with_lonely < kind()([LINE], CLASSES)
    else:
        torch.testing.assert_close(with_lonely, kind()([LINE], CLASSES))


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("labels", [[0], [0, 0, 0], [0, 1, 2]], ids=["one row", "one class", "all different"])
@pytest.mark.parametrize("kind", BATCH_PEERS)
def test_no_triplet_in_the_batch(kind, labels, distance):
    assert assert_harmless(kind(distance=distance), draw(1, len(labels)), torch.tensor(labels)) == 0


@pytest.mark.parametrize("distance", DISTANCES)
def test_equal_texts(distance):
    same = torch.ones(4, 3, requires_grad=True)
    assert assert_harmless(Triplet(distance=distance), [same] * 3) == pytest.approx(1)
    for kind in BATCH_PEERS:
        expected = math.log(2) if kind is BatchHardSoftMarginTriplet else 1
        assert assert_harmless(kind(distance=distance), [same], CLASSES) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("kind", [Triplet, BatchHardTriplet, BatchAllTriplet, BatchSemiHardTriplet])
def test_nonsense(kind):
    with pytest.raises(DataError, match="'margin' is -1"):
        kind(margin=-1)
    with pytest.raises(DataError, match="use one of 'euclidean', 'cosine', 'manhattan'"):
        kind(distance="dot")


def test_labels_are_needed():
    with pytest.raises(DataError, match=r"BatchHardTriplet needs labels \(class\)"):
        BatchHardTriplet()([LINE], None)
