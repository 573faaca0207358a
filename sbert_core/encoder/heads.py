"""Layers after pooling, from sentence vector to sentence vector: (n, in_dim) to (n, out_dim)."""

import torch
from torch import Tensor, nn

from sbert_core.errors import ModelError

# The activations that a model folder may name. Names are looked up here and never imported.
_ACTIVATIONS: dict[str, type[nn.Module]] = {
    name: getattr(nn, name)
    for name in [
        "CELU",
        "ELU",
        "GELU",
        "Hardsigmoid",
        "Hardswish",
        "Hardtanh",
        "Identity",
        "LeakyReLU",
        "LogSigmoid",
        "Mish",
        "ReLU",
        "ReLU6",
        "SELU",
        "Sigmoid",
        "SiLU",
        "Softplus",
        "Softsign",
        "Tanh",
        "Tanhshrink",
    ]
}


def make_activation(name: str) -> nn.Module:
    """Makes the activation with this name: `Tanh`, or its import path in torch."""
    path, _, short = name.rpartition(".")
    if short not in _ACTIVATIONS or path.split(".")[0] not in ("", "torch"):
        raise ModelError(f"activation {name!r} is not allowed in a model: use one of {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[short]()


class Dense(nn.Module):
    """A linear layer and an activation, with an optional residual connection around both."""

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        bias: bool = True,
        activation: str = "Tanh",
        residual: bool = False,
    ) -> None:
        super().__init__()
        self.linear = nn.Linear(in_dim, out_dim, bias=bias)
        self.activation = make_activation(activation)
        self.with_residual = residual
        if residual and in_dim != out_dim:
            self.residual: nn.Module = nn.Linear(in_dim, out_dim, bias=False)
        else:
            self.residual = nn.Identity()
        self.in_dim, self.dim = in_dim, out_dim

    def forward(self, vectors: Tensor) -> Tensor:
        """Maps (n, in_dim) to (n, out_dim)."""
        projected: Tensor = self.activation(self.linear(vectors))
        return projected + self.residual(vectors) if self.with_residual else projected


class LayerNorm(nn.Module):
    """Layer normalization of the sentence vector."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.in_dim = self.dim = dim

    def forward(self, vectors: Tensor) -> Tensor:
        """Maps (n, dim) to (n, dim)."""
        return self.norm(vectors)


class Normalize(nn.Module):
    """Scales every vector to unit length; a zero vector stays zero."""

    def forward(self, vectors: Tensor) -> Tensor:
        """Maps (n, dim) to (n, dim)."""
        return torch.nn.functional.normalize(vectors, dim=-1)


Head = Dense | LayerNorm | Normalize
