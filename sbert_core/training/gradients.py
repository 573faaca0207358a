"""Gradients of a batch: plain, in chunks, with adversarial examples, with R-Drop."""

import contextlib
import dataclasses
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert_core.training.attack import DEFAULT_EPSILON, Attack, TokenShift
from sbert_core.training.losses.objective import Objective
from sbert_core.training.trained_encoder import TrainedEncoder
from sbert_core.training.world import World

Views = list[list[str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class GradientOptions:
    """How gradients are computed; the defaults are plain backpropagation."""

    chunk_rows: int = 0  # rows embedded at once (GradCache); 0: the whole batch
    attack: Attack = "none"  # adversarial training on the token embeddings
    epsilon: float | None = None  # size of the attack / L2 norm of a text's token embeddings; None: the default
    attack_steps: int = 3  # pgd
    rdrop: float = 0.0  # weight of the agreement of two dropout passes; 0: one pass
    autocast: torch.dtype | None = None


class GradientAccumulator:
    """Adds the gradients of batches to an encoder and an objective."""

    def __init__(self, encoder: TrainedEncoder, world: World, options: GradientOptions, scale: float = 1.0) -> None:
        """`scale` multiplies every loss before backpropagation: 1 / number of accumulated batches."""
        self._encoder = encoder
        self._world = world
        self._options = options
        self._scale = scale

    def __call__(
        self, objective: Objective, views: Views, labels: Tensor | None, scaler: torch.amp.GradScaler | None = None
    ) -> float:
        """Backpropagates the loss of one global batch, and that of its attack; returns the loss without the attack."""
        factor = self._scale * (scaler.get_scale() if scaler else 1.0)
        if self._options.attack == "none":
            return self._backward(objective, views, labels, factor)
        self._encoder.shift = shift = TokenShift()
        try:
            loss = self._backward(objective, views, labels, factor)
            self._backward_attacked(shift, objective, views, labels, factor)
        finally:
            self._encoder.shift = None
        return loss

    def _backward(self, objective: Objective, views: Views, labels: Tensor | None, factor: float) -> float:
        rows = len(views[0])
        own = self._world.slice_of(rows)
        own_views = [view[own] for view in views]
        if self._options.chunk_rows and self._options.chunk_rows < len(own_views[0]):
            return self._backward_chunks(objective, own_views, rows, labels, factor)
        vectors = self._gather(self._embed(objective, own_views), rows)
        loss = objective(vectors, labels)
        if self._options.rdrop:
            again = self._gather(self._embed(objective, own_views), rows)
            loss = (loss + objective(again, labels)) / 2 + self._options.rdrop * dropout_divergence(
                objective, vectors, again
            )
        (loss * factor).backward()
        return float(loss.detach())

    def _backward_chunks(
        self, objective: Objective, own_views: Views, rows: int, labels: Tensor | None, factor: float
    ) -> float:
        """The gradient of the full batch with the memory of one chunk (GradCache, Gao et al. 2021).

        All vectors are computed without a graph. The loss gives the gradient of each vector. Then each chunk is
        computed again, with the same dropout, and its gradients are backpropagated.
        """
        size = self._options.chunk_rows
        chunks = [[view[at : at + size] for view in own_views] for at in range(0, len(own_views[0]), size)]
        states, parts = [], []
        with torch.no_grad():
            for number, chunk in enumerate(chunks):
                states.append(_random_state(self._encoder.device))
                parts.append(self._embed(objective, chunk, number))
        leaves = [torch.cat(same).requires_grad_() for same in zip(*parts, strict=True)]
        loss = objective(self._gather(leaves, rows), labels)
        (loss * factor).backward()
        gradients = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves]
        after = _random_state(self._encoder.device)
        for number, (chunk, state) in enumerate(zip(chunks, states, strict=True)):
            _set_random_state(state, self._encoder.device)
            vectors = self._embed(objective, chunk, number)
            own = slice(number * size, number * size + len(chunk[0]))
            pairs = [(v, g[own]) for v, g in zip(vectors, gradients, strict=True) if v.requires_grad]
            torch.autograd.backward([v for v, _ in pairs], [g for _, g in pairs])
        _set_random_state(after, self._encoder.device)
        return float(loss.detach())

    def _backward_attacked(
        self, shift: TokenShift, objective: Objective, views: Views, labels: Tensor | None, factor: float
    ) -> None:
        """Adds the gradient at token embeddings that are moved in the direction of a larger loss.

        With x the token embeddings of a text and g their gradient: FGM (Miyato et al. 2017) moves them by
        epsilon * |x| * g / |g|, FGSM along sign(g) by the same length; PGD (Madry et al. 2018) takes several smaller
        FGM moves inside a ball of that radius, and only the gradient at the last counts.
        """
        attack, radius = self._options.attack, self._options.epsilon or DEFAULT_EPSILON
        n_moves = self._options.attack_steps if attack == "pgd" else 1
        move = radius if n_moves == 1 else 1.5 * radius / n_moves  # enough to reach the edge of the ball
        was_training = objective.training
        objective.eval()  # an objective that queues vectors queues those of the clean pass only
        try:
            with _gradients_set_aside(self._encoder, objective):
                for _ in range(n_moves - 1):
                    shift.move(False, move, radius)
                    self._backward(objective, views, labels, factor)
            shift.move(attack == "fgsm", move, radius)
            self._backward(objective, views, labels, factor)
        finally:
            objective.train(was_training)

    def _embed(self, objective: Objective, views: Views, chunk: int = 0) -> list[Tensor]:
        if self._encoder.shift is not None:
            self._encoder.shift.chunk = chunk
        with torch.autocast(
            self._encoder.device.type, dtype=self._options.autocast, enabled=self._options.autocast is not None
        ):
            vectors = objective.embed(self._encoder, views)
        return [vector.float() for vector in vectors]

    def _gather(self, vectors: list[Tensor], rows: int) -> list[Tensor]:
        return [self._world.gather(vector, rows) for vector in vectors]


def dropout_divergence(objective: Objective, first: list[Tensor], second: list[Tensor]) -> Tensor:
    """The divergence of two dropout passes (R-Drop, Liang et al. 2021).

    The mean of both Kullback-Leibler divergences of the objective's distributions; for an objective without any,
    the mean cosine distance of the vectors.
    """
    scores, again = objective.logits(first), objective.logits(second)
    if scores is not None and again is not None:
        left, right = F.log_softmax(scores, dim=-1), F.log_softmax(again, dim=-1)  # (n, choices)
        both = F.kl_div(left, right, reduction="batchmean", log_target=True)
        return (both + F.kl_div(right, left, reduction="batchmean", log_target=True)) / 2
    return torch.stack([(1 - F.cosine_similarity(a, b)).mean() for a, b in zip(first, second, strict=True)]).mean()


@contextlib.contextmanager
def _gradients_set_aside(*modules: nn.Module) -> Iterator[None]:
    """Clears the gradients for a computation of its own, and restores them afterwards."""
    parameters = [parameter for module in modules for parameter in module.parameters()]
    saved = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, gradient in zip(parameters, saved, strict=True):
            parameter.grad = gradient


def _random_state(device: torch.device) -> tuple[Tensor, Tensor | None]:
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def _set_random_state(state: tuple[Tensor, Tensor | None], device: torch.device) -> None:
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1], device)
