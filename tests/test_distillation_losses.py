"""Distillation: by hand, and beside sentence-transformers."""

import pytest
import torch
from sentence_transformers.sentence_transformer import losses as peers

from sbert_core.errors import DataError
from sbert_core.training.losses.distillation_losses import Distillation, MarginDistillation
from tests.loss_peers import assert_harmless, assert_same_as_peer, draw

U = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
V = torch.tensor([[3.0, 4.0], [0.0, 1.0]])


def test_vectors_by_hand():
    teacher = torch.tensor([[1.0, 1.0], [0.0, 0.0]])
    assert Distillation()([U], teacher).item() == pytest.approx((0 + 1 + 0 + 4) / 4)
    assert Distillation()([U, V], teacher).item() == pytest.approx((0 + 1 + 0 + 4 + 4 + 9 + 0 + 1) / 8)


def test_margin_by_hand():
    # Dot products with U: 3, 2 of V; 1, 4 of itself.
    assert MarginDistillation()([U, V, U], torch.tensor([1.5, -2.0])).item() == pytest.approx(0.5**2 / 2)


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_vectors_beside_their_peer(columns):
    assert_same_as_peer(Distillation(), peers.MSELoss, draw(columns), draw(1, seed=9)[0].detach())


def test_margin_beside_its_peer():
    labels = torch.tensor([0.5, 3.0, -1.0, 0.0, 7.5, 2.0], dtype=torch.float64)
    assert_same_as_peer(MarginDistillation(), peers.MarginMSELoss, draw(3), labels)


def test_a_batch_of_one_and_equal_texts():
    same = draw(1, 1)[0]
    assert assert_harmless(Distillation(), [same, same], same.detach()) == 0
    assert assert_harmless(MarginDistillation(), [same, same, same], torch.zeros(1)) == 0


def test_teacher_of_another_dimension():
    with pytest.raises(DataError, match=r"teacher's vectors are \(2, 3\), the student's \(2, 2\).*PCA"):
        Distillation()([U], torch.zeros(2, 3))


@pytest.mark.parametrize(("objective", "vectors"), [(Distillation(), [U]), (MarginDistillation(), [U, V, U])])
def test_labels_are_needed(objective, vectors):
    with pytest.raises(DataError, match="needs labels"):
        objective(vectors, None)
