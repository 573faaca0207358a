"""Losses of sentence-transformers on given vectors, to compare objectives with."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from sbert_core.training.losses.objective import Objective


class Given(nn.Module):
    """Stands where a loss of sentence-transformers expects a model: the vectors of a text are given as its features."""

    device = torch.device("cpu")

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def get_embedding_dimension(self) -> int:
        return self.dim

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"sentence_embedding": features["vectors"]}


def draw(columns: int, rows: int = 6, dim: int = 5, seed: int = 0) -> list[Tensor]:
    """Random columns of vectors that take a gradient."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(rows, dim, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(columns)]


def value_and_gradients(loss: Tensor, vectors: list[Tensor]) -> tuple[float, list[Tensor]]:
    return loss.item(), list(torch.autograd.grad(loss, vectors))


def assert_same_as_peer(
    objective: Objective,
    make_peer: Callable[[Given], nn.Module],
    vectors: list[Tensor],
    labels: Tensor | None = None,
    tolerance: float = 1e-9,
) -> None:
    """The objective has the value and the gradients of the peer, and they are not nothing."""
    peer = make_peer(Given(vectors[0].shape[1])).double()
    ours = value_and_gradients(objective.double()(vectors, labels), vectors)
    theirs = value_and_gradients(peer([{"vectors": column} for column in vectors], labels), vectors)
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
    assert ours[0] > 0
    assert all(gradient.abs().sum() > 0 for gradient in ours[1])


def assert_harmless(objective: Objective, vectors: list[Tensor], labels: Tensor | None = None) -> float:
    """Loss and gradients are finite; returns the loss."""
    loss, gradients = value_and_gradients(objective(vectors, labels), vectors)
    assert torch.isfinite(torch.tensor(loss))
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
    return loss
