import copy

import pytest
import torch
from torch import Tensor

from sbert_core.encoder.transformer import Transformer
from sbert_core.training.packed_training import PackedTraining
from tests.tiny_models import PACKED, make_transformer

TEXTS = ["the quick brown fox jumps", "a man", "where is my parcel?", "the lazy dog is playing the flute"]


@pytest.fixture(params=PACKED)
def body(request, tmp_path) -> Transformer:
    return Transformer.load(make_transformer(tmp_path, request.param))


def pad(body: Transformer, texts: list[str]) -> tuple[Tensor, Tensor]:
    batch = body.tokenizer(texts, padding=True, return_tensors="pt")
    return batch["input_ids"], batch["attention_mask"]


def gradients(body: Transformer, vectors: Tensor, mask: Tensor) -> dict[str, Tensor]:
    body.zero_grad()
    (torch.sin(vectors) * mask[..., None]).sum().backward()  # any function that treats all components unlike
    return {name: p.grad.clone() for name, p in body.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("texts", [TEXTS, TEXTS[:1], ["a man", "my dog"]], ids=["padded", "one", "equal lengths"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_vectors_and_gradients_are_those_of_the_model(body, texts, checkpointing):
    ids, mask = pad(body, texts)
    packed = PackedTraining(body.model, checkpointing)
    expected, found = body(ids, mask), packed(ids, mask)
    torch.testing.assert_close(found * mask[..., None], expected * mask[..., None], atol=1e-5, rtol=1e-5)
    wanted, got = gradients(body, expected, mask), gradients(body, found, mask)
    assert wanted.keys() == got.keys()
    for name, gradient in wanted.items():
        torch.testing.assert_close(got[name], gradient, atol=2e-4, rtol=1e-3, msg=name)


def test_every_dropout_of_the_model_drops(body):
    ids, mask = pad(body, TEXTS)
    packed = PackedTraining(body.model)
    plain = packed(ids, mask)
    dropouts = [name for name, module in body.model.named_modules() if isinstance(module, torch.nn.Dropout)]
    for wanted in dropouts:
        for name in dropouts:
            body.model.get_submodule(name).train(name == wanted)
        assert not torch.allclose(packed(ids, mask), plain), f"{wanted} has no effect"


def test_dropout_drops_as_much_as_in_the_model(body):
    ids, mask = pad(body, TEXTS)
    body.model.train()
    packed, torch_seeds = PackedTraining(body.model), range(300)

    def spread(run) -> Tensor:
        with torch.no_grad():
            vectors = []
            for seed in torch_seeds:
                torch.manual_seed(seed)
                vectors.append(run(ids, mask)[:, 0])
        return torch.stack(vectors).std(dim=0).mean()

    assert abs(spread(packed) / spread(body) - 1) < 0.05


def test_a_copy_has_weights_of_its_own(body):
    packed = PackedTraining(body.model)
    twin = copy.deepcopy(packed)
    ids, mask = pad(body, TEXTS)
    before = twin(ids, mask)
    with torch.no_grad():
        for parameter in body.model.parameters():
            parameter.add_(0.1)
    torch.testing.assert_close(twin(ids, mask), before)
