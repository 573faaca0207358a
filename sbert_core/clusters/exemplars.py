"""The rows that show what a cluster is about."""

import numpy as np

_TINY = np.finfo(np.float64).tiny


def choose_exemplars(vectors: np.ndarray, centroid: np.ndarray, count: int = 5, diversity: float = 0.3) -> list[int]:
    """The rows of `vectors` (n, dim) that show a cluster best: near `centroid` (dim,), but not like one another.

    Maximal marginal relevance by cosine, best first; the same vector is not chosen twice, so there may be fewer.
    """
    unit = vectors / np.maximum(np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True), _TINY)
    near = unit @ (centroid / max(np.linalg.norm(centroid.astype(np.float64)), _TINY))
    likest = np.full(len(unit), -1.0)  # to any row chosen so far
    chosen: list[int] = []
    while len(chosen) < count and (free := likest <= 1 - 1e-6).any():
        # rounded, so that of rows that are equal the first is chosen
        score = np.round((1 - diversity) * near - diversity * (likest if chosen else 0), 9)
        chosen.append(int(np.where(free, score, -np.inf).argmax()))
        likest = np.maximum(likest, unit @ unit[chosen[-1]])
        likest[chosen[-1]] = 1
    return chosen
