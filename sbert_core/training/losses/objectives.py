"""All objectives by name."""

import difflib
import inspect
from collections.abc import Iterable
from typing import Any

from sbert_core.errors import DataError
from sbert_core.training.losses.distillation_losses import Distillation, MarginDistillation
from sbert_core.training.losses.matryoshka import Matryoshka
from sbert_core.training.losses.momentum import MomentumContrast
from sbert_core.training.losses.objective import Objective
from sbert_core.training.losses.pair_losses import Classification, Contrastive, CoSENT, OnlineContrastive, Regression
from sbert_core.training.losses.ranking_losses import E5, Contriever, MultipleNegatives, SimCSE, SupervisedSimCSE
from sbert_core.training.losses.triplet_losses import (
    BatchAllTriplet,
    BatchHardSoftMarginTriplet,
    BatchHardTriplet,
    BatchSemiHardTriplet,
    Triplet,
)

__all__ = ["OBJECTIVES", "Objective", "make_objective", "option_names"]

OBJECTIVES: dict[str, type[Objective]] = {
    "classification": Classification,
    "regression": Regression,
    "cosent": CoSENT,
    "contrastive": Contrastive,
    "online_contrastive": OnlineContrastive,
    "triplet": Triplet,
    "batch_hard_triplet": BatchHardTriplet,
    "batch_hard_soft_margin_triplet": BatchHardSoftMarginTriplet,
    "batch_all_triplet": BatchAllTriplet,
    "batch_semi_hard_triplet": BatchSemiHardTriplet,
    "multiple_negatives": MultipleNegatives,
    "simcse": SimCSE,
    "simcse_supervised": SupervisedSimCSE,
    "e5": E5,
    "contriever": Contriever,
    "contriever_momentum": MomentumContrast,
    "distillation": Distillation,
    "margin_distillation": MarginDistillation,
}
_SIZES = ("dim", "n_classes")  # set by the encoder and the data, not by the user
_MATRYOSHKA = ("matryoshka_dims", "matryoshka_weights")


def make_objective(
    name: str, *, dim: int, classes: tuple[str, ...], options: dict[str, Any], normalizes: bool = False
) -> Objective:
    """Makes the objective with this name for an encoder of `dim` dimensions, which `normalizes` its vectors or not.

    `classes` are those of the data's labels, `options` the objective's own; `matryoshka_dims` among them, and perhaps
    `matryoshka_weights`, train truncated vectors too.
    """
    kind = _find(name)
    allowed = option_names(name)
    for option in options:
        if option not in allowed and option not in _MATRYOSHKA:  # `Matryoshka` checks whether it can wrap
            names = ", ".join(allowed)
            raise DataError(f"objective {name!r} has no option {option!r}{_closest(option, allowed)}: use {names}")
    sizes = {"dim": dim, "n_classes": len(classes)}
    wanted = inspect.signature(kind).parameters
    own = {option: value for option, value in options.items() if option not in _MATRYOSHKA}
    objective = kind(**{size: sizes[size] for size in _SIZES if size in wanted}, **own)
    if "matryoshka_dims" in options:
        weights = options.get("matryoshka_weights")
        dims = options["matryoshka_dims"]
        return Matryoshka(objective, dim=dim, dims=dims, weights=weights, normalizes=normalizes)
    if "matryoshka_weights" in options:
        raise DataError(f"objective {name!r} has 'matryoshka_weights' without 'matryoshka_dims': give both or none")
    return objective


def option_names(name: str) -> list[str]:
    """The options that the objective with this name takes."""
    kind = _find(name)
    own = [option for option in inspect.signature(kind).parameters if option not in _SIZES]
    return own + [*_MATRYOSHKA] * kind.truncatable


def _find(name: str) -> type[Objective]:
    if name not in OBJECTIVES:
        names = ", ".join(OBJECTIVES)
        raise DataError(f"objective {name!r} is not known{_closest(name, OBJECTIVES)}: use one of {names}")
    return OBJECTIVES[name]


def _closest(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(str(name), names, 1)
    return f" (did you mean {close[0]!r}?)" if close else ""
