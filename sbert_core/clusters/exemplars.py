"""The rows that show what a cluster is about."""

import numpy as np

MAX_COSINE = 1 - 1e-6  # rows that are more alike count as the same vector

_TINY = np.finfo(np.float64).tiny


def choose_exemplars(vectors: np.ndarray, center: np.ndarray, count: int = 5, diversity: float = 0.3) -> list[int]:
    """The rows of `vectors` (n, dim) that represent a cluster: near its `center` (dim,), and different from each other.

    Maximal marginal relevance by cosine, best first. The same vector is not chosen twice, so there may be fewer than
    `count`.
    """
    unit = vectors / np.maximum(np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True), _TINY)
    relevance = unit @ (center / max(np.linalg.norm(center.astype(np.float64)), _TINY))
    redundancy = np.full(len(unit), -1.0)  # the maximum cosine to a row chosen so far
    chosen: list[int] = []
    while len(chosen) < count and (is_free := redundancy <= MAX_COSINE).any():
        # Rounded, so that the first of equal rows is chosen.
        score = np.round((1 - diversity) * relevance - diversity * (redundancy if chosen else 0), 9)
        chosen.append(int(np.where(is_free, score, -np.inf).argmax()))
        redundancy = np.maximum(redundancy, unit @ unit[chosen[-1]])
        redundancy[chosen[-1]] = 1
    return chosen
