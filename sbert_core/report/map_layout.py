"""A map of a corpus: a place in the plane for each vector, near ones near each other."""

import numpy as np

ANCHORS = 3000  # vectors whose places are computed; the others go to their nearest anchors
_NEAREST = 3


def place_vectors(vectors: np.ndarray, seed: int = 0) -> np.ndarray:
    """Places (n, 2) for unit vectors (n, dim): t-SNE of a sample, every other vector between its nearest anchors."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    if len(vectors) < 4:
        return np.column_stack([np.arange(len(vectors)), np.zeros(len(vectors))]).astype(np.float32)
    rng = np.random.default_rng(seed)
    anchors = np.sort(rng.permutation(len(vectors))[:ANCHORS])
    reduced = PCA(min(30, *vectors.shape, len(anchors)), random_state=seed).fit(vectors[anchors])
    chosen = reduced.transform(vectors[anchors]).astype(np.float32)
    chosen += rng.normal(scale=1e-4, size=chosen.shape).astype(np.float32)  # copies would fall on one spot
    with threadpool_limits(1):  # the same map on every machine
        map_ = TSNE(
            perplexity=min(30, (len(anchors) - 1) / 3), init="pca", random_state=seed, n_jobs=1, max_iter=600
        ).fit_transform(chosen)
    places = np.empty((len(vectors), 2), np.float32)
    places[anchors] = map_
    others = np.setdiff1d(np.arange(len(vectors)), anchors)
    for start in range(0, len(others), 4096):
        part = others[start : start + 4096]
        scores = vectors[part] @ vectors[anchors].T
        near = np.argsort(-scores, axis=1, kind="stable")[:, :_NEAREST]
        weights = np.maximum(np.take_along_axis(scores, near, axis=1), 1e-6) ** 8  # mostly the very nearest
        weights /= weights.sum(axis=1, keepdims=True)
        spread = rng.normal(scale=0.3, size=(len(part), 2))
        places[part] = np.einsum("nk,nkd->nd", weights, map_[near]) + spread
    return places
