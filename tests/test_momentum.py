"""The momentum queue: what it holds, how its encoder moves, and that a checkpoint holds both."""

import math

import numpy as np
import pytest
import torch

from sbert_core.encoder.model_folder import read_folder
from sbert_core.errors import DataError
from sbert_core.training.losses.momentum import MomentumContrast
from sbert_core.training.trained_encoder import TrainedEncoder
from tests.tiny_models import make_transformer

VIEWS = [["a man is playing", "the quick fox", "where is"], ["playing the flute", "brown fox jumps", "my parcel"]]
Q = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
K = torch.tensor([[3.0, 4.0], [0.0, 1.0]])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_transformer(tmp_path_factory.mktemp("momentum"))


@pytest.fixture
def encoder(folder) -> TrainedEncoder:
    return TrainedEncoder(read_folder(folder), torch.device("cpu")).train()


def step(objective: MomentumContrast, encoder: TrainedEncoder, optimizer: torch.optim.Optimizer) -> float:
    loss = objective(objective.embed(encoder, VIEWS), None)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    objective.after_step(encoder)
    return loss.item()


def test_by_hand(encoder):
    objective = MomentumContrast(dim=2, scale=1, queue_size=3)
    # With an empty queue only the batch is there: cosines 0.6, 0; 0.8, 1.
    first = (math.log(1 + math.exp(-0.6)) + math.log(1 + math.exp(-0.2))) / 2
    assert objective([Q, K], None).item() == pytest.approx(first)
    objective.after_step(encoder)
    torch.testing.assert_close(objective.queue, torch.tensor([[0.6, 0.8], [0, 1], [0, 0]]))
    # Now both keys stand there twice.
    expected = (math.log(2 + 2 * math.exp(-0.6)) + math.log(2 + 2 * math.exp(-0.2))) / 2
    assert objective.logits([Q, K]).shape == (2, 4)
    assert objective([Q, K], None).item() == pytest.approx(expected)


def test_the_oldest_keys_leave(encoder):
    objective = MomentumContrast(dim=2, queue_size=3)
    for keys in ([[1.0, 0], [0, 1]], [[-1.0, 0], [0, -1]]):
        objective([Q, torch.tensor(keys)], None)
        objective.after_step(encoder)
    assert objective.queue.tolist() == [[-1, 0], [0, -1], [1, 0]]
    assert objective.n_queued == 3
    objective([Q, K], None)
    objective([Q.repeat(4, 1), K.repeat(4, 1)], None)  # a step of two batches, longer than the queue
    objective.after_step(encoder)
    torch.testing.assert_close(objective.queue, torch.tensor([[0.6, 0.8], [0, 1], [0.6, 0.8]]))


def test_an_evaluation_queues_nothing(encoder):
    objective = MomentumContrast(dim=2, queue_size=3).eval()
    objective([Q, K], None)
    objective.after_step(encoder)
    assert objective.n_queued == 0


def test_queries_learn_and_keys_do_not(encoder):
    objective = MomentumContrast(dim=32, queue_size=4)
    queries, keys = objective.embed(encoder, VIEWS)
    assert queries.shape == keys.shape == (3, 32)
    assert queries.requires_grad
    assert not keys.requires_grad
    assert not list(filter(lambda weight: weight.requires_grad, objective.parameters()))
    again = objective.embed(encoder, VIEWS)
    torch.testing.assert_close(again[1], keys)  # no dropout
    assert not torch.allclose(again[0], queries)
    with torch.no_grad():
        torch.testing.assert_close(encoder.eval()([VIEWS[1]])[0], keys)  # a copy so far


def test_key_weights_follow_slowly(encoder):
    objective = MomentumContrast(dim=32, momentum=0.75)
    objective.embed(encoder, VIEWS)
    before = [weight.clone() for weight in encoder.parameters()]
    with torch.no_grad():
        for weight in encoder.parameters():
            weight.add_(1.0)
    objective.after_step(encoder)
    for key, weight in zip(objective.key_encoder.parameters(), before, strict=True):
        torch.testing.assert_close(key, weight + 0.25)


def test_resumed_is_as_undisturbed(folder):
    def start() -> tuple[MomentumContrast, TrainedEncoder, torch.optim.Optimizer]:
        encoder = TrainedEncoder(read_folder(folder), torch.device("cpu")).eval()  # without dropout
        return (
            MomentumContrast(dim=32, momentum=0.5, queue_size=5),
            encoder,
            torch.optim.SGD(encoder.parameters(), 0.05),
        )

    objective, encoder, optimizer = start()
    for _ in range(2):
        step(objective, encoder, optimizer)
    saved = {name: value.clone() for name, value in objective.state_dict().items()}
    weights = {name: value.clone() for name, value in encoder.state_dict().items()}
    expected = [step(objective, encoder, optimizer) for _ in range(2)]

    objective, encoder, optimizer = start()
    encoder.load_state_dict(weights)
    objective.load_state_dict(saved)
    assert [step(objective, encoder, optimizer) for _ in range(2)] == expected
    objective.load_state_dict(saved)  # also into an objective that has its key encoder already
    torch.testing.assert_close(dict(objective.state_dict()), saved)


def test_saved_between_load_and_first_batch(encoder):
    objective = MomentumContrast(dim=32, queue_size=4)
    objective.embed(encoder, VIEWS)
    saved = objective.state_dict()
    resumed = MomentumContrast(dim=32, queue_size=4)
    resumed.load_state_dict(saved)
    torch.testing.assert_close(dict(resumed.state_dict()), dict(saved))


def test_views_are_crops():
    views = MomentumContrast(dim=2).views([["a b c d e f g h i j"]], np.random.default_rng(0))
    assert len(views) == 2
    assert views[0] != views[1]


def test_a_batch_of_one():
    loss = MomentumContrast(dim=2)([torch.ones(1, 2, requires_grad=True), K[:1]], None)
    loss.backward()
    assert loss == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queue_size": 0}, "'queue_size' is 0: give a whole number"),
        ({"queue_size": 2.5}, "'queue_size' is 2.5"),
        ({"momentum": 1.5}, "'momentum' is 1.5: give a number above 0 and at most 1"),
    ],
)
def test_nonsense(options, message):
    with pytest.raises(DataError, match=message):
        MomentumContrast(dim=2, **options)
