import copy

import pytest
import torch
import torch.nn.functional as F

from sbert_core.encoder.model_folder import EncoderParts, read_folder
from sbert_core.encoder.static_embedding import StaticEmbedding
from sbert_core.training.gradients import GradientAccumulator, GradientOptions, dropout_divergence
from sbert_core.training.losses.objectives import make_objective
from sbert_core.training.trained_encoder import TrainedEncoder, token_embeddings
from sbert_core.training.world import World
from tests.tiny_models import make_tokenizer, make_transformer

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
    loss = GradientAccumulator(encoder, World(CPU), options)(objective, views, None)
    return loss, {name: p.grad.clone() for name, p in encoder.named_parameters() if p.grad is not None}


def assert_same(found, expected, tolerance=1e-5):
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, atol=tolerance, rtol=1e-4, msg=name)


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_chunks_give_the_gradient_of_the_whole_batch(encoder, objective, rows):
    loss, expected = gradients(encoder, objective, GradientOptions())
    chunked, found = gradients(encoder, objective, GradientOptions(chunk_rows=rows))
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
    chunked, found = gradients(encoder, objective, GradientOptions(chunk_rows=2), seed=5)
    assert chunked == pytest.approx(loss.item(), abs=1e-6)
    assert_same(found, expected)


def test_accumulated_batches_are_scaled(encoder, objective):
    _, whole = gradients(encoder, objective, GradientOptions())
    encoder.zero_grad()
    GradientAccumulator(encoder, World(CPU), GradientOptions(), scale=0.25)(objective, VIEWS, None)
    assert_same(
        {n: p.grad for n, p in encoder.named_parameters() if p.grad is not None}, {n: g / 4 for n, g in whole.items()}
    )


def embeddings_of(encoder, views=VIEWS):
    """Token embeddings (n, length, dim) of all views, and their mask."""
    tokenized = encoder.body.text_tokenizer.tokenize([text for view in views for text in view])
    ids, mask = encoder._pad(tokenized)
    return token_embeddings(encoder)[0](ids).detach(), mask


def loss_at(encoder, objective, shift, views=VIEWS):
    """The loss with a constant added to the token embeddings."""
    handle = token_embeddings(encoder)[0].register_forward_hook(lambda module, inputs, output: output + shift)
    try:
        return objective(encoder(views), None)
    finally:
        handle.remove()


def clean_direction(encoder, objective, views=VIEWS):
    """The gradient of the loss by the token embeddings, (n, length, dim)."""
    shift = torch.zeros_like(embeddings_of(encoder, views)[0]).requires_grad_()
    return torch.autograd.grad(loss_at(encoder, objective, shift, views), shift)[0]


@pytest.mark.parametrize("attack", ["fgsm", "fgm"])
@pytest.mark.parametrize("chunk_rows", [0, 2])
def test_an_attack_adds_the_gradient_of_moved_embeddings(encoder, objective, attack, chunk_rows):
    _, clean = gradients(encoder, objective, GradientOptions())
    gradient = clean_direction(encoder, objective)
    direction = gradient.sign() if attack == "fgsm" else gradient
    embedded, mask = embeddings_of(encoder)
    lengths = (embedded * mask[..., None]).flatten(1).norm(dim=1)
    moved_by = 0.3 * lengths / direction.flatten(1).norm(dim=1)
    encoder.zero_grad()
    loss_at(encoder, objective, moved_by[:, None, None] * direction).backward()
    moved = {name: p.grad.clone() for name, p in encoder.named_parameters() if p.grad is not None}
    weights = {name: weight.clone() for name, weight in encoder.state_dict().items()}
    options = GradientOptions(attack=attack, epsilon=0.3, chunk_rows=chunk_rows)
    loss, found = gradients(encoder, objective, options)
    assert_same(found, {name: clean[name] + moved[name] for name in clean}, 1e-4)
    assert all(torch.equal(weights[name], weight) for name, weight in encoder.state_dict().items())
    assert loss == pytest.approx(gradients(encoder, objective, GradientOptions())[0]), (
        "the reported loss is that without the attack"
    )


def losses_of(objective):
    """A list that collects the loss of each pass."""
    losses = []
    objective.register_forward_hook(lambda module, inputs, loss: losses.append(float(loss.detach())))
    return losses


def watched(encoder, objective, options):
    """The losses of all passes of a step, and the move of each text as a share of the norm of its embeddings."""
    shares = []
    embedded, mask = embeddings_of(encoder)
    norms = (embedded * mask[..., None]).flatten(1).norm(dim=1)

    def measure(module, inputs, loss):
        moved = encoder.shift(embedded, mask).detach()
        shares.append((moved - embedded).flatten(1).norm(dim=1) / norms)

    losses = losses_of(objective)
    objective.register_forward_hook(measure)
    GradientAccumulator(encoder, World(CPU), options)(objective, VIEWS, None)
    return losses, shares


@pytest.mark.parametrize(("attack", "passes"), [("fgsm", 2), ("fgm", 2), ("pgd", 5)])
def test_every_text_is_moved_by_the_same_share_of_its_length(encoder, objective, attack, passes):
    losses, shares = watched(encoder, objective, GradientOptions(attack=attack, epsilon=0.05, attack_steps=4))
    assert len(losses) == len(shares) == passes  # clean, those on the way, the last
    assert shares[0].max() == 0
    torch.testing.assert_close(shares[-1], torch.full((10,), 0.05), atol=1e-4, rtol=0)
    assert all(share.max() <= 0.05 + 1e-4 for share in shares)
    assert losses[-1] > losses[0]


@pytest.mark.slow
def test_the_default_attack_raises_the_loss_moderately(default_encoder):
    encoder = TrainedEncoder(copy.deepcopy(default_encoder.parts), CPU).eval()
    texts = [
        ("A man is playing a flute.", "Somebody plays an instrument."),
        ("A woman is playing the guitar.", "A lady makes music."),
        ("A boy plays the piano.", "A child is at the keyboard."),
        ("The band plays on stage.", "Musicians perform a song."),
    ]
    views = [list(column) for column in zip(*texts, strict=True)]
    for attack in ("fgsm", "fgm", "pgd"):
        objective = make_objective("multiple_negatives", dim=384, classes=(), options={})
        losses = losses_of(objective)
        encoder.zero_grad()
        GradientAccumulator(encoder, World(CPU), GradientOptions(attack=attack))(objective, views, None)
        assert 1.2 < losses[-1] / losses[0] < 3, (attack, losses)


def test_what_earlier_batches_left_does_not_turn_an_attack(encoder, objective):
    others = [["the lazy dog", "where is my parcel"], ["a brown fox?", "the man jumps over"]]
    options = GradientOptions(attack="fgm", epsilon=0.2)
    _, alone = gradients(encoder, objective, options)
    _, before = gradients(encoder, objective, options, views=others)
    encoder.zero_grad()
    accumulated = GradientAccumulator(encoder, World(CPU), options)
    accumulated(objective, others, None)
    accumulated(objective, VIEWS, None)
    both = {name: p.grad for name, p in encoder.named_parameters() if p.grad is not None}
    assert_same(both, {name: alone[name] + before[name] for name in alone}, 1e-4)


def test_an_attack_needs_no_gradient_of_the_embeddings(encoder, objective):
    token_embeddings(encoder)[0].requires_grad_(False)
    _, clean = gradients(encoder, objective, GradientOptions())
    _, attacked = gradients(encoder, objective, GradientOptions(attack="fgm"))
    assert clean.keys() == attacked.keys()
    assert any(not torch.allclose(2 * clean[name], attacked[name], atol=1e-6) for name in clean)


@pytest.mark.parametrize("decoder", [False, True])
def test_an_attack_on_t5(tmp_path, objective, decoder):
    encoder = TrainedEncoder(read_folder(make_transformer(tmp_path, "t5"), decoder=decoder), CPU).eval()
    _, clean = gradients(encoder, objective, GradientOptions())
    _, attacked = gradients(encoder, objective, GradientOptions(attack="fgm", epsilon=0.1))
    assert any(not torch.allclose(2 * clean[name], attacked[name], atol=1e-6) for name in clean)


def test_an_attack_on_a_static_encoder(objective):
    body = StaticEmbedding(make_tokenizer().backend_tokenizer, torch.randn(200, 32))
    encoder = TrainedEncoder(EncoderParts(body, None), CPU)
    _, clean = gradients(encoder, objective, GradientOptions())
    _, attacked = gradients(encoder, objective, GradientOptions(attack="fgm", epsilon=0.5))
    name = "body.embedding.weight"
    assert not torch.allclose(2 * clean[name], attacked[name], atol=1e-6)


def test_an_attack_queues_the_keys_of_a_batch_once(encoder):
    objective = make_objective("contriever_momentum", dim=32, classes=(), options={"queue_size": 50}).train()
    gradients(encoder, objective, GradientOptions(attack="pgd"))
    objective.after_step(encoder)
    assert int(objective.n_queued) == len(VIEWS[0])


def test_rdrop_adds_the_divergence_of_two_passes(encoder, objective):
    encoder.train()
    torch.manual_seed(3)
    first, second = encoder(VIEWS), encoder(VIEWS)
    expected = (objective(first, None) + objective(second, None)) / 2 + 0.7 * dropout_divergence(
        objective, first, second
    )
    loss, _ = gradients(encoder, objective, GradientOptions(rdrop=0.7), seed=3)
    assert loss == pytest.approx(expected.item(), abs=1e-5)
    assert loss > float((objective(first, None) + objective(second, None)) / 2)


def test_divergence_is_the_mean_of_both_divergences():
    objective = make_objective("classification", dim=2, classes=("a", "b"), options={})
    first = [torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5, 1.0]])]
    second = [torch.tensor([[2.0, 1.0]]), torch.tensor([[0.0, 1.0]])]
    p, q = (F.softmax(objective.logits(vectors), dim=-1) for vectors in (first, second))
    expected = ((p * (p / q).log()).sum() + (q * (q / p).log()).sum()) / 2
    torch.testing.assert_close(dropout_divergence(objective, first, second), expected)


def test_divergence_of_an_objective_without_logits_is_cosine_distance():
    objective = make_objective("triplet", dim=2, classes=(), options={})
    same, turned = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 2.0]])
    assert float(dropout_divergence(objective, [same, same], [turned, same])) == pytest.approx(0.5)


def test_autocast_computes_in_half_precision(encoder, objective):
    loss, _ = gradients(encoder, objective, GradientOptions())
    half, _ = gradients(encoder, objective, GradientOptions(autocast=torch.bfloat16))
    assert half != loss
    assert half == pytest.approx(loss, abs=0.2)
