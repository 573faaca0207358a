"""Health task: whether an embedding space uses all of its dimensions, and whether all rows can be found.

Alignment and uniformity are those of Wang and Isola (2020); hubness is the skewness of how often a row is among the
nearest of the others (Radovanović et al., 2010).
"""

import numpy as np
import scipy.stats

from sbert_core.data.examples import Examples
from sbert_core.errors import DataError
from sbert_core.evaluation.curves import cosine_histogram
from sbert_core.evaluation.result import Encode, Evaluation
from sbert_core.neighbors.cosine import unit_rows
from sbert_core.neighbors.in_memory import find_neighbors

NEIGHBORS = 10
PAIR_ROWS = 2_000
"""Rows of the sample of which all pairs are compared: two million pairs."""
POSITIVE_LABEL = 0.8
"""A pair with a higher label is positive: above 4 of 5 in STS-B, as in Gao et al. (2021)."""

_DEAD_VARIANCE = 1e-4  # as a share of the mean variance of a dimension


def evaluate_health(
    encoder: Encode,
    examples: Examples,
    *,
    model: str = "model",
    limit: int = 10_000,
    seed: int = 0,
) -> Evaluation:
    """Measures the space on the distinct texts of all columns, at most `limit` of them, drawn with `seed`.

    The first two of several columns are positive pairs, if there are no labels or if the label is above
    `POSITIVE_LABEL`; only then alignment is computed. A text with a zero vector has no direction and is left out.

    Figures: `uniformity` (log of the mean of exp(-2 d²), the lower the better, at best about -4), `alignment` (mean d²
    of positive pairs, the lower the better), `mean_cosine` of random pairs (0: isotropic), `first_component` and
    `first_10_components` (shares of the variance), `dead_dimensions` (share of dimensions with hardly any variance),
    `hubness` (skewness of the 10-occurrences, 0: none) and `anti_hubs` (share of rows that are no row's neighbour).
    """
    if limit < 3:
        raise DataError(f"limit must be at least 3, got {limit}")
    texts = list(dict.fromkeys(text for column in examples.texts for text in column))
    generator = np.random.default_rng(seed)
    if len(texts) > limit:
        texts = [texts[row] for row in np.sort(generator.choice(len(texts), limit, replace=False)).tolist()]
    vectors, has_direction = unit_rows(encoder.encode(texts))
    vectors = vectors[has_direction]
    if len(vectors) < 3:
        raise DataError(f"{examples.name} has {len(vectors)} distinct texts with a vector: expected 3 or more")
    rows = np.sort(generator.permutation(len(vectors))[:PAIR_ROWS])
    cosines = _pair_cosines(vectors[rows])
    k = min(NEIGHBORS, len(vectors) - 1)
    scores = {
        # Of unit vectors d² = 2 - 2 cos.
        "uniformity": float(np.log(np.exp(-4 * (1 - cosines)).mean())),
        "mean_cosine": float(cosines.mean()),
        **_variances(vectors),
        **_hubness(vectors, k),
    }
    counts = {"texts": len(vectors), "without_direction": int((~has_direction).sum()), "dimensions": vectors.shape[1]}
    curves = {"cosines of random pairs": _histogram(cosines)}
    positives = _positives(examples)
    if positives is not None:
        if len(positives) > limit:
            positives = positives.take(np.sort(generator.choice(len(positives), limit, replace=False)))
        (first, first_ok), (second, second_ok) = (unit_rows(encoder.encode(column)) for column in positives.texts[:2])
        near = np.einsum("nd,nd->n", first, second, dtype=np.float64)[first_ok & second_ok]
        scores["alignment"] = float((2 - 2 * near).mean()) if len(near) else np.nan
        counts["positive_pairs"] = len(near)
        curves["cosines of positive pairs"] = _histogram(near)
    return Evaluation("health", examples.name, model, "uniformity", scores, counts, curves)


def _histogram(cosines: np.ndarray) -> list[list[float]]:
    return cosine_histogram(cosines.clip(-1, 1))  # rounding may exceed the ends


def _positives(examples: Examples) -> Examples | None:
    if len(examples.texts) < 2:
        return None
    if examples.labels is None:
        return examples
    if examples.labels.ndim != 1 or examples.classes:
        raise DataError(f"the labels of {examples.name} do not mark positive pairs: use scores, or 0 and 1")
    return examples.take(np.flatnonzero(examples.labels > POSITIVE_LABEL))


def _pair_cosines(vectors: np.ndarray) -> np.ndarray:
    """Cosines of all pairs (n (n - 1) / 2,)."""
    return (vectors @ vectors.T)[np.triu_indices(len(vectors), 1)].astype(np.float64)


def _variances(vectors: np.ndarray) -> dict[str, float]:
    centered = vectors - vectors.mean(axis=0, dtype=np.float64)
    covariance = centered.T @ centered / len(centered)  # (dim, dim)
    variances = np.diag(covariance)
    total = variances.sum()
    parts = np.linalg.eigvalsh(covariance)[::-1].clip(min=0)
    is_spread = total > 1e-12  # else all rows are equal
    return {
        "first_component": float(parts[0] / total) if is_spread else 1.0,
        "first_10_components": float(parts[:10].sum() / total) if is_spread else 1.0,
        "dead_dimensions": float((variances <= _DEAD_VARIANCE * variances.mean()).mean()) if is_spread else 1.0,
    }


def _hubness(vectors: np.ndarray, k: int) -> dict[str, float]:
    found = find_neighbors(vectors, k).indices
    occurrences = np.bincount(found[found >= 0], minlength=len(vectors))
    return {
        "hubness": float(scipy.stats.skew(occurrences)) if np.ptp(occurrences) else 0.0,
        "anti_hubs": float((occurrences == 0).mean()),
    }
