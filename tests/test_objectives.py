"""Objectives by name."""

import numpy as np
import pytest
import torch

from sbert_core.errors import DataError
from sbert_core.training.losses.matryoshka import Matryoshka
from sbert_core.training.losses.objectives import OBJECTIVES, Objective, make_objective, option_names
from tests.loss_peers import draw

LABELS = {
    "none": None,
    "class": torch.tensor([0, 1, 2, 0, 1, 2]),
    "binary": torch.tensor([0, 1, 1, 0, 1, 0]),
    "score": torch.tensor([0.9, 0.5, 0.1, 0.5, 0.3, 0.7]),
    "vector": draw(1, dim=8, seed=3)[0].detach().float(),
}
WITH_LOGITS = {
    "classification",
    "multiple_negatives",
    "simcse",
    "simcse_supervised",
    "e5",
    "contriever",
    "contriever_momentum",
}


def make(name: str, **options: object) -> Objective:
    return make_objective(name, dim=8, classes=("a", "b", "c"), options=options)


def vectors_for(objective: Objective) -> list[torch.Tensor]:
    texts = [[f"text {row} of {column}" for row in range(6)] for column in range(objective.columns[0])]
    n_views = len(objective.views(texts, np.random.default_rng(0)))
    return [column.detach().float().requires_grad_() for column in draw(n_views, dim=8)]


def test_names():
    assert set(OBJECTIVES) == {
        "classification",
        "regression",
        "cosent",
        "contrastive",
        "online_contrastive",
        "triplet",
        "batch_hard_triplet",
        "batch_hard_soft_margin_triplet",
        "batch_all_triplet",
        "batch_semi_hard_triplet",
        "multiple_negatives",
        "simcse",
        "simcse_supervised",
        "e5",
        "contriever",
        "contriever_momentum",
        "distillation",
        "margin_distillation",
    }


@pytest.mark.parametrize("name", OBJECTIVES)
def test_each_has_a_loss_with_a_gradient(name):
    objective = make(name)
    vectors = vectors_for(objective)
    loss = objective(vectors, LABELS[objective.labels])
    assert loss.shape == ()
    assert loss.item() > 0
    loss.backward()
    assert vectors[0].grad.abs().sum() > 0
    logits = objective.logits(vectors)
    assert (logits is not None) == (name in WITH_LOGITS)
    if logits is not None:
        assert logits.shape[0] == 6


@pytest.mark.parametrize("name", OBJECTIVES)
def test_each_docstring_has_the_formula(name):
    assert "loss = " in OBJECTIVES[name].__doc__


@pytest.mark.parametrize("name", OBJECTIVES)
def test_option_names_are_options(name):
    assert not {"self", "dim", "n_classes", "args", "kwargs"} & set(option_names(name))
    if OBJECTIVES[name].truncatable:
        wrapped = make(name, matryoshka_dims=[8, 4], matryoshka_weights=[1, 0.5])
        assert isinstance(wrapped, Matryoshka)
        wrapped(vectors_for(wrapped), LABELS[wrapped.labels]).backward()


def test_options_arrive():
    assert make("triplet", margin=2.5, distance="cosine").margin == 2.5
    assert make("multiple_negatives", temperature=0.1).scale == pytest.approx(10)
    assert make("e5").scale == 100
    assert make("classification", concatenation="u*v").head.weight.shape == (3, 8)
    assert make("contriever_momentum", queue_size=7).queue.shape == (7, 8)
    assert option_names("triplet") == ["margin", "distance", "matryoshka_dims", "matryoshka_weights"]
    assert option_names("classification") == ["concatenation"]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("tripplet", {}, r"objective 'tripplet' is not known \(did you mean 'triplet'\?\): use one of classification"),
        ("zzz", {}, "objective 'zzz' is not known: use one of"),
        ("triplet", {"marign": 1}, r"no option 'marign' \(did you mean 'margin'\?\): use margin, distance"),
        ("regression", {"zzz": 1}, "'regression' has no option 'zzz': use matryoshka_dims"),
        ("multiple_negatives", {"dim": 3}, "no option 'dim'"),
        ("classification", {"matryoshka_dims": [4]}, "Classification cannot be trained on truncated vectors"),
        ("regression", {"matryoshka_dims": []}, "'matryoshka_dims' is"),
        ("regression", {"matryoshka_dims": [9]}, "whole numbers from 1 to 8"),
        ("regression", {"matryoshka_weights": [1]}, "without 'matryoshka_dims'"),
    ],
)
def test_nonsense(name, options, message):
    with pytest.raises(DataError, match=message):
        make(name, **options)


def test_unknown_name_of_options():
    with pytest.raises(DataError, match="did you mean 'cosent'"):
        option_names("cosnet")


class Nothing(Objective):
    """What an objective has without doing anything for it."""

    def forward(self, vectors, labels):
        return vectors[0].sum() * 0


def test_an_objective_without_a_loss_is_none():
    with pytest.raises(TypeError, match="abstract"):
        Objective()


def test_the_base_class_embeds_columns_as_they_are():
    objective = Nothing()
    texts = [["a", "b"], ["c", "d"]]
    assert objective.views(texts, np.random.default_rng(0)) == texts
    assert objective.embed(lambda views: [len(view) for view in views], texts) == [2, 2]
    assert objective.logits([]) is None
    assert objective.after_step(None) is None
    assert (objective.columns, objective.labels, objective.distinct, objective.grouped) == (
        (2, 2),
        "none",
        False,
        False,
    )
