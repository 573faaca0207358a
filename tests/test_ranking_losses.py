"""In-batch ranking: by hand, beside sentence-transformers, and the texts that are embedded."""

import math

import numpy as np
import pytest
import torch
from sentence_transformers.sentence_transformer import losses as peers

from sbert_core.errors import DataError
from sbert_core.training.losses.ranking_losses import (
    E5,
    Contriever,
    MultipleNegatives,
    SimCSE,
    SupervisedSimCSE,
    crop_words,
)
from tests.loss_peers import assert_harmless, assert_same_as_peer, draw

Q = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
P = torch.tensor([[3.0, 4.0], [0.0, 1.0]])  # cosines of Q and P: 0.6, 0; 0.8, 1
N = torch.tensor([[5.0, 0.0], [-1.0, 0.0]])  # 1, -1; 0, 0


def log_softmax(own: float, *others: float) -> float:
    return own - math.log(sum(map(math.exp, (own, *others))))


def test_by_hand():
    expected = -(log_softmax(1.2, 0) + log_softmax(2, 1.6)) / 2
    assert MultipleNegatives(scale=2)([Q, P], None).item() == pytest.approx(expected)


def test_hard_negatives_by_hand():
    objective = MultipleNegatives(temperature=0.5)
    torch.testing.assert_close(objective.logits([Q, P, N]), torch.tensor([[1.2, 0, 2, -2], [1.6, 2, 0, 0]]))
    expected = -(log_softmax(1.2, 0, 2, -2) + log_softmax(2, 1.6, 0, 0)) / 2
    assert objective([Q, P, N], None).item() == pytest.approx(expected)


def test_symmetric_by_hand():
    forth = -(log_softmax(1.2, 0, 2, -2) + log_softmax(2, 1.6, 0, 0)) / 2
    back = -(log_softmax(1.2, 1.6) + log_softmax(2, 0)) / 2
    loss = MultipleNegatives(scale=2, symmetric=True)([Q, P, N], None)
    assert loss.item() == pytest.approx((forth + back) / 2)


@pytest.mark.parametrize("columns", [2, 3, 5])
def test_beside_its_peer(columns):
    vectors = draw(columns)
    assert_same_as_peer(MultipleNegatives(), peers.MultipleNegativesRankingLoss, vectors)
    assert_same_as_peer(
        MultipleNegatives(temperature=0.25), lambda model: peers.MultipleNegativesRankingLoss(model, scale=4), vectors
    )


@pytest.mark.filterwarnings("ignore:The MultipleNegativesSymmetricRankingLoss is deprecated")
@pytest.mark.parametrize("columns", [2, 3])
def test_symmetric_beside_its_peer(columns):
    assert_same_as_peer(MultipleNegatives(symmetric=True), peers.MultipleNegativesSymmetricRankingLoss, draw(columns))


@pytest.mark.parametrize(
    ("objective", "columns", "scale"),
    [(SimCSE(), 2, 20), (SupervisedSimCSE(), 3, 20), (E5(), 2, 100), (E5(), 4, 100), (Contriever(), 2, 20)],
)
def test_relatives_beside_their_peer(objective, columns, scale):
    make_peer = lambda model: peers.MultipleNegativesRankingLoss(model, scale=scale)  # noqa: E731
    assert_same_as_peer(objective, make_peer, draw(columns))


def test_what_each_wants():
    assert MultipleNegatives.columns == E5.columns == (2, None)
    assert SupervisedSimCSE.columns == (3, 3)
    assert SimCSE.columns == Contriever.columns == (1, 1)
    assert all(kind.distinct for kind in (MultipleNegatives, E5, SimCSE, SupervisedSimCSE, Contriever))


def test_a_batch_of_one_and_equal_texts():
    assert assert_harmless(MultipleNegatives(), draw(2, 1)) == 0
    assert assert_harmless(MultipleNegatives(symmetric=True), draw(3, 1)) > 0
    same = torch.ones(4, 3, requires_grad=True)
    assert assert_harmless(MultipleNegatives(), [same, same]) == pytest.approx(math.log(4))


def test_a_zero_vector():
    queries = draw(1, 3)[0].detach()
    queries[0] = 0
    assert torch.isfinite(MultipleNegatives()([queries, queries], None))


def test_simcse_embeds_its_column_twice():
    column = ["one", "two"]
    assert SimCSE().views([column], np.random.default_rng(0)) == [column, column]
    assert MultipleNegatives().views([column, column[::-1]], np.random.default_rng(0)) == [column, column[::-1]]


@pytest.mark.parametrize(
    ("share", "place", "expected"),
    [
        (0.5, 0.0, "a b"),
        (0.5, 0.999, "c d"),
        (0.5, 0.4, "b c"),
        (1.0, 0.999, "a b c d"),
        (0.01, 0.999, "d"),
    ],
)
def test_crop(share, place, expected):
    assert crop_words("a  b\tc d\n", share, place) == expected


def test_a_crop_of_little():
    assert crop_words("", 0.5, 0.9) == crop_words("  ", 0.5, 0.9) == ""
    assert crop_words("word", 0.1, 0.9) == "word"


def test_crops_are_drawn_from_the_generator():
    words = [f"w{number}" for number in range(40)]
    column = [" ".join(words)] * 200
    objective = Contriever(min_crop=0.25, max_crop=0.5)
    first, second = objective.views([column], np.random.default_rng(5))
    assert objective.views([column], np.random.default_rng(5)) == [first, second]
    assert objective.views([column], np.random.default_rng(6)) != [first, second]
    assert first != second
    lengths = {len(crop.split()) for crop in first + second}
    assert lengths == set(range(10, 21))
    assert all(crop in column[0] for crop in first + second)
    assert {word for crop in first for word in crop.split()} == set(words)


def test_crops_of_no_rows():
    assert Contriever().views([[]], np.random.default_rng(0)) == [[], []]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MultipleNegatives(scale=20, temperature=0.05), "are the same setting"),
        (lambda: MultipleNegatives(scale=0), "'scale' is 0: give a number above 0"),
        (lambda: E5(temperature=-1), "'temperature' is -1"),
        (lambda: SimCSE(symmetric="yes"), "'symmetric' is 'yes': use true or false"),
        (lambda: Contriever(max_crop=1.5), "'max_crop' is 1.5: give a number above 0 and at most 1"),
        (lambda: Contriever(min_crop=0.6, max_crop=0.5), "'min_crop' is 0.6: give a number above 0 and at most 0.5"),
    ],
)
def test_nonsense(make, message):
    with pytest.raises(DataError, match=message):
        make()
