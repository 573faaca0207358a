"""Cosines and distances with gradients, row by row or of all pairs; at distance zero the gradient is zero."""

import torch
import torch.nn.functional as F
from torch import Tensor

DISTANCES = ("euclidean", "cosine", "manhattan")


def paired_cosine(left: Tensor, right: Tensor) -> Tensor:
    """Cosine of row i of `left` with row i of `right`: (n, dim) twice to (n,)."""
    return F.cosine_similarity(left, right, dim=-1)


def all_cosines(left: Tensor, right: Tensor) -> Tensor:
    """Cosine of every row with every row: (n, dim) and (m, dim) to (n, m)."""
    return F.normalize(left, dim=-1) @ F.normalize(right, dim=-1).T


def paired_distance(left: Tensor, right: Tensor, distance: str) -> Tensor:
    """Distance of row i of `left` to row i of `right`: (n, dim) twice to (n,)."""
    if distance == "cosine":
        return 1 - paired_cosine(left, right)
    # vector_norm, unlike the square root of a sum, has a finite gradient where both rows are equal.
    return torch.linalg.vector_norm(left - right, ord=1 if distance == "manhattan" else 2, dim=-1)


def all_distances(vectors: Tensor, distance: str) -> Tensor:
    """Distance of every row to every row: (n, dim) to (n, n)."""
    if distance == "cosine":
        return 1 - all_cosines(vectors, vectors)
    # Without the shortcut through the dot product, which makes equal rows differ by rounding.
    mode = "donot_use_mm_for_euclid_dist"
    return torch.cdist(vectors, vectors, p=1.0 if distance == "manhattan" else 2.0, compute_mode=mode)
