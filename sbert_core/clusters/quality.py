"""How good a clustering is: without labels, and against them."""

import numpy as np

SAMPLE = 5000


def quality_without_labels(vectors: np.ndarray, labels: np.ndarray, seed: int = 0) -> dict[str, float | None]:
    """The share of noise, and the silhouette (cosine) on a sample of the rows that are in a cluster."""
    from sklearn.metrics import silhouette_score

    noise = float((labels < 0).mean()) if len(labels) else 0.0
    inside = np.flatnonzero(labels >= 0)
    if len(inside) > SAMPLE:
        inside = np.sort(np.random.default_rng(seed).choice(inside, SAMPLE, replace=False))
    kinds = len(np.unique(labels[inside]))
    silhouette = None
    if 1 < kinds < len(inside):
        silhouette = float(silhouette_score(vectors[inside], labels[inside], metric="cosine"))
    return {"noise_share": noise, "silhouette": silhouette}


def quality_with_labels(truth: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Adjusted Rand index, normalised mutual information and V-measure against given labels; noise is one cluster."""
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score, v_measure_score

    return {
        "ari": float(adjusted_rand_score(truth, labels)),
        "nmi": float(normalized_mutual_info_score(truth, labels)),
        "v_measure": float(v_measure_score(truth, labels)),
    }


def density_quality(vectors: np.ndarray, labels: np.ndarray) -> float | None:
    """The DBCV of a density clustering, -1 to 1, of few vectors; None where it is not defined."""
    from hdbscan.validity import validity_index

    sizes = np.bincount(labels[labels >= 0]) if (labels >= 0).any() else np.empty(0)
    usable = np.isin(labels, np.flatnonzero(sizes > 2))
    if len(np.unique(labels[usable])) < 2:
        return None
    with np.errstate(all="ignore"):
        found = float(validity_index(vectors[usable].astype(np.float64), labels[usable]))
    return found if np.isfinite(found) else None
