"""The quality of a clustering: without true labels, and against them."""

import numpy as np

SILHOUETTE_ROWS = 5000


def quality_without_labels(vectors: np.ndarray, labels: np.ndarray, seed: int = 0) -> dict[str, float | None]:
    """The share of noise, and the silhouette (cosine) on a sample of the rows that are in a cluster."""
    from sklearn.metrics import silhouette_score

    noise_share = float((labels < 0).mean()) if len(labels) else 0.0
    rows = np.flatnonzero(labels >= 0)
    if len(rows) > SILHOUETTE_ROWS:
        rows = np.sort(np.random.default_rng(seed).choice(rows, SILHOUETTE_ROWS, replace=False))
    silhouette = None
    if 1 < len(np.unique(labels[rows])) < len(rows):
        silhouette = float(silhouette_score(vectors[rows], labels[rows], metric="cosine"))
    return {"noise_share": noise_share, "silhouette": silhouette}


def quality_with_labels(true_labels: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Adjusted Rand index, normalised mutual information and V-measure against true labels; noise is one cluster."""
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score, v_measure_score

    return {
        "ari": float(adjusted_rand_score(true_labels, labels)),
        "nmi": float(normalized_mutual_info_score(true_labels, labels)),
        "v_measure": float(v_measure_score(true_labels, labels)),
    }


def density_quality(vectors: np.ndarray, labels: np.ndarray) -> float | None:
    """The DBCV of a density clustering, -1 to 1; None where it is not defined. For samples: its cost is quadratic."""
    from hdbscan.validity import validity_index

    sizes = np.bincount(labels[labels >= 0]) if (labels >= 0).any() else np.empty(0)
    is_usable = np.isin(labels, np.flatnonzero(sizes > 2))
    if len(np.unique(labels[is_usable])) < 2:
        return None
    with np.errstate(all="ignore"):
        found = float(validity_index(vectors[is_usable].astype(np.float64), labels[is_usable]))
    return found if np.isfinite(found) else None
