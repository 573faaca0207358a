"""A map of a corpus: a place in the plane for each vector, similar ones near each other."""

import numpy as np

MAX_ANCHORS = 3000  # vectors that t-SNE places; the others are placed between their nearest anchors
N_NEAREST_ANCHORS = 3
PCA_DIM = 30  # dimensions that t-SNE gets
MAX_PERPLEXITY = 30
TSNE_ITERATIONS = 600
COPY_SPREAD = 1e-4  # noise that keeps copies of a vector from falling on one spot
SPREAD = 0.3  # noise around the places between anchors, in units of the map
BLOCK_ROWS = 4096


def place_vectors(vectors: np.ndarray, seed: int = 0, max_anchors: int = MAX_ANCHORS) -> np.ndarray:
    """Places (n, 2) for unit vectors (n, dim): t-SNE of a sample, the others between their nearest sampled vectors."""
    if len(vectors) < 4:
        return np.column_stack([np.arange(len(vectors)), np.zeros(len(vectors))]).astype(np.float32)
    rng = np.random.default_rng(seed)
    anchors = np.sort(rng.permutation(len(vectors))[:max_anchors])
    anchor_places = _place_anchors(vectors[anchors], rng, seed)
    places = np.empty((len(vectors), 2), np.float32)
    places[anchors] = anchor_places
    others = np.setdiff1d(np.arange(len(vectors)), anchors)
    for start in range(0, len(others), BLOCK_ROWS):
        rows = others[start : start + BLOCK_ROWS]
        places[rows] = _place_between(vectors[rows] @ vectors[anchors].T, anchor_places, rng)
    return places


def _place_anchors(vectors: np.ndarray, rng: np.random.Generator, seed: int) -> np.ndarray:
    """Places (n, 2) by t-SNE."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    reduced = PCA(min(PCA_DIM, *vectors.shape), random_state=seed).fit(vectors).transform(vectors).astype(np.float32)
    reduced += rng.normal(scale=COPY_SPREAD, size=reduced.shape).astype(np.float32)
    perplexity = min(MAX_PERPLEXITY, (len(vectors) - 1) / 3)
    with threadpool_limits(1):  # the same map on every machine
        model = TSNE(perplexity=perplexity, init="pca", random_state=seed, n_jobs=1, max_iter=TSNE_ITERATIONS)
        return model.fit_transform(reduced)


def _place_between(scores: np.ndarray, anchor_places: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Places (n, 2) from the cosines (n, anchors): the weighted mean of the nearest anchors, mostly of the first."""
    nearest = np.argsort(-scores, axis=1, kind="stable")[:, :N_NEAREST_ANCHORS]
    weights = np.maximum(np.take_along_axis(scores, nearest, axis=1), 1e-6) ** 8
    weights /= weights.sum(axis=1, keepdims=True)
    spread = rng.normal(scale=SPREAD, size=(len(scores), 2))
    return np.einsum("nk,nkd->nd", weights, anchor_places[nearest]) + spread
