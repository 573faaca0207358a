import copy

import pytest
import torch
from torch import Tensor

from sbert_core.encoder.transformer import Transformer
from sbert_core.training.packed_training import PackedTraining
from tests.tiny_models import PACKED, make_transformer

pytestmark = pytest.mark.slow  # seconds in all

TEXTS = ["the quick brown fox jumps", "a man", "where is my parcel?", "the lazy dog is playing the flute"]


@pytest.fixture(scope="module", params=PACKED)
def loaded(request, tmp_path_factory) -> Transformer:
    return Transformer.load(make_transformer(tmp_path_factory.mktemp(request.param), request.param))


@pytest.fixture
def body(loaded) -> Transformer:
    return copy.deepcopy(loaded)


def pad(body: Transformer, texts: list[str]) -> tuple[Tensor, Tensor]:
    batch = body.tokenizer(texts, padding=True, return_tensors="pt")
    return batch["input_ids"], batch["attention_mask"]


def gradients(body: Transformer, vectors: Tensor, mask: Tensor) -> dict[str, Tensor]:
    body.zero_grad()
    (torch.sin(vectors) * mask[..., None]).sum().backward()  # any function that treats all components unlike
    return {name: p.grad.clone() for name, p in body.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(
    ("texts", "checkpointing"),
    [(TEXTS, False), (TEXTS, True), (TEXTS[:1], False), (["a man", "my dog"], False)],
    ids=["padded", "checkpointing", "one", "equal lengths"],
)
def test_vectors_and_gradients_are_those_of_the_model(body, texts, checkpointing):
    ids, mask = pad(body, texts)
    packed = PackedTraining(body.model, checkpointing)
    expected, found = body(ids, mask), packed(ids, mask)
    torch.testing.assert_close(found * mask[..., None], expected * mask[..., None], atol=1e-5, rtol=1e-5)
    wanted, got = gradients(body, expected, mask), gradients(body, found, mask)
    assert wanted.keys() == got.keys()
    for name, gradient in wanted.items():
        torch.testing.assert_close(got[name], gradient, atol=2e-4, rtol=1e-3, msg=name)


def test_every_dropout_of_the_model_has_an_effect(body):
    ids, mask = pad(body, TEXTS)
    packed = PackedTraining(body.model)
    plain = packed(ids, mask)
    dropouts = [name for name, module in body.model.named_modules() if isinstance(module, torch.nn.Dropout)]
    for wanted in dropouts:
        for name in dropouts:
            body.model.get_submodule(name).train(name == wanted)
        assert not torch.allclose(packed(ids, mask), plain), f"{wanted} has no effect"


def test_dropout_varies_vectors_as_much_as_in_the_model(body):
    """Each copy of a text in one batch has its own dropout."""
    copies = 500
    ids, mask = pad(body, TEXTS * copies)
    body.model.train()

    def spread(run) -> Tensor:
        torch.manual_seed(0)
        with torch.no_grad():
            first_tokens = run(ids, mask)[:, 0].view(copies, len(TEXTS), -1)
        return first_tokens.std(dim=0).mean()

    assert abs(spread(PackedTraining(body.model)) / spread(body) - 1) < 0.05


def test_a_copy_has_weights_of_its_own(body):
    packed = PackedTraining(body.model)
    twin = copy.deepcopy(packed)
    ids, mask = pad(body, TEXTS)
    before = twin(ids, mask)
    with torch.no_grad():
        for parameter in body.model.parameters():
            parameter.add_(0.1)
    torch.testing.assert_close(twin(ids, mask), before)
