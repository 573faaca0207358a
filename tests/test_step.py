import pytest
import torch
import torch.nn.functional as F

from sbert_core.errors import ModelError
from sbert_core.folder import read_folder
from sbert_core.training.model import TrainedEncoder
from sbert_core.training.objectives import make_objective
from sbert_core.training.step import Step, StepOptions, disagreement, token_table
from sbert_core.training.world import World
from tests.tiny_models import make_transformer

CPU = torch.device("cpu")
VIEWS = [
    ["the quick brown fox", "a man", "my parcel?", "where is the dog", "flute"],
    ["where is the fox", "a man is playing", "the parcel", "my dog", "the man is playing the flute"],
]


@pytest.fixture
def encoder(tmp_path) -> TrainedEncoder:
    return TrainedEncoder(read_folder(make_transformer(tmp_path)), CPU).eval()


@pytest.fixture
def objective():
    return make_objective("multiple_negatives", dim=32, classes=(), options={})


def gradients(encoder, objective, options, seed=0, views=VIEWS):
    encoder.zero_grad()
    torch.manual_seed(seed)
    loss = Step(encoder, World(CPU), options)(objective, views, None)
    return loss, {name: p.grad.clone() for name, p in encoder.named_parameters() if p.grad is not None}


def assert_same(found, expected, tolerance=1e-5):
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, atol=tolerance, rtol=1e-4, msg=name)


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_chunks_give_the_gradient_of_the_whole_batch(encoder, objective, rows):
    loss, expected = gradients(encoder, objective, StepOptions())
    chunked, found = gradients(encoder, objective, StepOptions(chunk_rows=rows))
    assert chunked == pytest.approx(loss, abs=1e-6)
    assert_same(found, expected)


def test_chunks_repeat_their_dropout(encoder, objective):
    encoder.train()
    torch.manual_seed(5)
    parts = [encoder([view[at : at + 2] for view in VIEWS]) for at in (0, 2, 4)]
    loss = objective([torch.cat(same) for same in zip(*parts, strict=True)], None)
    encoder.zero_grad()
    loss.backward()
    expected = {name: p.grad.clone() for name, p in encoder.named_parameters() if p.grad is not None}
    chunked, found = gradients(encoder, objective, StepOptions(chunk_rows=2), seed=5)
    assert chunked == pytest.approx(loss.item(), abs=1e-6)
    assert_same(found, expected)


def test_accumulated_batches_are_scaled(encoder, objective):
    _, whole = gradients(encoder, objective, StepOptions())
    encoder.zero_grad()
    Step(encoder, World(CPU), StepOptions(), scale=0.25)(objective, VIEWS, None)
    assert_same(
        {n: p.grad for n, p in encoder.named_parameters() if p.grad is not None}, {n: g / 4 for n, g in whole.items()}
    )


@pytest.mark.parametrize(("attack", "epsilon"), [("fgsm", 0.02), ("fgm", 0.5)])
def test_an_attack_adds_the_gradient_of_moved_embeddings(encoder, objective, attack, epsilon):
    _, clean = gradients(encoder, objective, StepOptions())
    table, name = token_table(encoder), "body.model.embeddings.word_embeddings.weight"
    kept = table.detach().clone()
    direction = clean[name].sign() if attack == "fgsm" else clean[name] / clean[name].norm()
    with torch.no_grad():
        table.add_(epsilon * direction)
    _, moved = gradients(encoder, objective, StepOptions())
    with torch.no_grad():
        table.copy_(kept)
    loss, found = gradients(encoder, objective, StepOptions(attack=attack, epsilon=epsilon))
    assert_same(found, {name: clean[name] + moved[name] for name in clean})
    assert torch.equal(table, kept), "the embeddings are put back"
    assert loss == pytest.approx(gradients(encoder, objective, StepOptions())[0]), "the loss told is the clean one"


def test_pgd_stays_within_its_radius_and_hurts_more_than_noise(encoder, objective):
    table = token_table(encoder)
    kept = table.detach().clone()
    seen = []

    def watch(vectors, labels):
        seen.append((float((table - kept).norm()), float(type(objective).forward(objective, vectors, labels))))
        return type(objective).forward(objective, vectors, labels)

    objective.forward = watch
    gradients(encoder, objective, StepOptions(attack="pgd", epsilon=0.3, attack_steps=4))
    distances, losses = zip(*seen, strict=True)
    assert len(seen) == 5  # clean, three on the way, the last
    assert distances[0] == 0
    assert all(0 < distance <= 0.3 + 1e-4 for distance in distances[1:])
    assert losses[-1] > losses[0]
    assert torch.equal(table, kept)


def test_an_attack_on_frozen_embeddings_is_refused(encoder, objective):
    token_table(encoder).requires_grad_(False)
    with pytest.raises(ModelError, match="frozen"):
        gradients(encoder, objective, StepOptions(attack="fgm"))


def test_rdrop_adds_the_disagreement_of_two_passes(encoder, objective):
    encoder.train()
    torch.manual_seed(3)
    first, second = encoder(VIEWS), encoder(VIEWS)
    expected = (objective(first, None) + objective(second, None)) / 2 + 0.7 * disagreement(objective, first, second)
    loss, _ = gradients(encoder, objective, StepOptions(rdrop=0.7), seed=3)
    assert loss == pytest.approx(float(expected), abs=1e-5)
    assert loss > float((objective(first, None) + objective(second, None)) / 2)


def test_disagreement_is_the_mean_of_both_divergences():
    objective = make_objective("classification", dim=2, classes=("a", "b"), options={})
    first = [torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5, 1.0]])]
    second = [torch.tensor([[2.0, 1.0]]), torch.tensor([[0.0, 1.0]])]
    p, q = (F.softmax(objective.logits(vectors), dim=-1) for vectors in (first, second))
    expected = ((p * (p / q).log()).sum() + (q * (q / p).log()).sum()) / 2
    torch.testing.assert_close(disagreement(objective, first, second), expected)


def test_disagreement_of_an_objective_without_logits_is_cosine_distance():
    objective = make_objective("triplet", dim=2, classes=(), options={})
    same, turned = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 2.0]])
    assert float(disagreement(objective, [same, same], [turned, same])) == pytest.approx(0.5)


def test_autocast_computes_in_half_precision(encoder, objective):
    loss, _ = gradients(encoder, objective, StepOptions())
    half, _ = gradients(encoder, objective, StepOptions(autocast=torch.bfloat16))
    assert half != loss
    assert half == pytest.approx(loss, abs=0.2)
