"""Weight decay by kind of parameter, and the learning rate of each step."""

import math

import pytest
import torch
import transformers
from torch import nn

from sbert_beam import DataError, ModelError
from sbert_core.training.schedule import make_optimizer, make_schedule
from tests.tiny_models import make_transformer


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.norm = nn.LayerNorm(2)
        self.scale = nn.Parameter(torch.tensor(20.0))


def names_of(module: nn.Module, optimizer: torch.optim.Optimizer, group: int) -> set[str]:
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    return {names[id(parameter)] for parameter in optimizer.param_groups[group]["params"]}


def test_biases_and_norms_do_not_decay():
    module = Tiny()
    optimizer = make_optimizer(module, 1e-3)
    assert isinstance(optimizer, torch.optim.AdamW)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.01, 0.0]
    assert [group["lr"] for group in optimizer.param_groups] == [1e-3, 1e-3]
    assert names_of(module, optimizer, 0) == {"linear.weight"}
    assert names_of(module, optimizer, 1) == {"linear.bias", "norm.weight", "norm.bias", "scale"}


@pytest.mark.parametrize("architecture", ["bert", "distilbert", "mpnet", "t5"])
def test_weights_of_linear_layers_and_tables_decay(tmp_path, architecture):
    model = transformers.AutoModel.from_pretrained(make_transformer(tmp_path, architecture))
    kinds = (nn.Linear, nn.Embedding)
    expected = {f"{name}.weight" for name, module in model.named_modules() if isinstance(module, kinds)}
    optimizer = make_optimizer(model, 2e-5)
    learned = {name for name, _ in model.named_parameters()}
    assert names_of(model, optimizer, 0) == expected & learned  # T5's three tables are one
    assert names_of(model, optimizer, 1) == learned - expected


def test_one_step_by_hand():
    layer = nn.Linear(1, 1)
    with torch.no_grad():
        layer.weight.fill_(2.0)
        layer.bias.fill_(3.0)
    optimizer = make_optimizer(layer, 0.1, weight_decay=0.5)
    layer(torch.ones(1, 1)).sum().backward()  # both gradients are 1: Adam's first step is the learning rate
    optimizer.step()
    assert layer.weight.item() == pytest.approx(2 * (1 - 0.1 * 0.5) - 0.1, abs=1e-6)
    assert layer.bias.item() == pytest.approx(3 - 0.1, abs=1e-6)


def test_frozen_and_shared_parameters():
    first, second = Tiny(), Tiny()
    second.linear = first.linear
    first.norm.requires_grad_(False)
    optimizer = make_optimizer([first, second], 1e-3)
    assert [len(group["params"]) for group in optimizer.param_groups] == [1, 1 + 1 + 2 + 1]
    assert len(make_optimizer((module for module in (first,)), 1e-3).param_groups[1]["params"]) == 2


def test_state_fits_an_optimizer_made_anew():
    module = Tiny()
    optimizer = make_optimizer(module, 1e-3)
    sum(parameter.sum() for parameter in module.parameters()).backward()
    optimizer.step()
    again = make_optimizer(module, 1e-3)
    again.load_state_dict(optimizer.state_dict())
    assert {id(parameter) for parameter in again.state} == {id(parameter) for parameter in module.parameters()}


@pytest.mark.parametrize("rate", [0, -1, math.nan, math.inf])
def test_bad_learning_rates(rate):
    with pytest.raises(DataError, match="learning_rate must be above 0, got"):
        make_optimizer(Tiny(), rate)


def test_bad_optimizers():
    with pytest.raises(DataError, match=r"weight_decay must not be negative, got -0\.1"):
        make_optimizer(Tiny(), 1e-3, -0.1)
    with pytest.raises(ModelError, match="nothing to train"):
        make_optimizer(Tiny().requires_grad_(False), 1e-3)
    with pytest.raises(ModelError, match="nothing to train"):
        make_optimizer([], 1e-3)


def rates(kind: str, warmup_steps: int, total_steps: int, count: int) -> list[float]:
    optimizer = make_optimizer(Tiny(), 2.0)
    schedule = make_schedule(optimizer, kind, warmup_steps, total_steps)
    found = []
    for _ in range(count):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


@pytest.mark.parametrize(
    ("kind", "after_warmup"),
    [("linear", [2, 1.5, 1, 0.5, 0]), ("constant", [2] * 5), ("cosine", [2, 1 + 0.5**0.5, 1, 1 - 0.5**0.5, 0])],
)
def test_learning_rates_by_hand(kind, after_warmup):
    assert rates(kind, 2, 6, 7) == pytest.approx([0, 1, *after_warmup], abs=1e-12)
    assert rates(kind, 0, 4, 5) == pytest.approx(after_warmup, abs=1e-12)


def test_warmup_may_take_all_steps():
    assert rates("linear", 4, 4, 4) == [0, 0.5, 1, 1.5]


def test_a_loaded_schedule_continues():
    optimizer = make_optimizer(Tiny(), 2.0)
    schedule = make_schedule(optimizer, "linear", 2, 6)
    for _ in range(3):
        optimizer.step()
        schedule.step()
    again = make_optimizer(Tiny(), 2.0)
    resumed = make_schedule(again, "linear", 2, 6)
    again.load_state_dict(optimizer.state_dict())
    resumed.load_state_dict(schedule.state_dict())
    again.step()
    resumed.step()
    assert again.param_groups[0]["lr"] == pytest.approx(1.0)
