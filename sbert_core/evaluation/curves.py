"""Curves for plots: histograms of scores, and calibration."""

import numpy as np

BINS = 40  # of cosines from -1 to 1: the same for every model, so that histograms can be compared
CALIBRATION_BINS = 10


def cosine_histogram(cosines: np.ndarray) -> list[list[float]]:
    """[lower edge, count] of each of 40 bins from -1 to 1; the last bin includes 1."""
    counts, edges = np.histogram(cosines, BINS, (-1, 1))
    return [[round(float(edge), 6), float(count)] for edge, count in zip(edges, counts, strict=False)]


def calibration(scores: np.ndarray, labels: np.ndarray) -> list[list[float]]:
    """[mean score, share of positives] of bins of about equal size, in ascending order of score.

    Rows of equal score share a bin, so there may be fewer than ten.
    """
    edges = np.unique(np.quantile(scores, np.linspace(0, 1, CALIBRATION_BINS + 1)[1:-1]))
    bins = np.searchsorted(edges, scores)
    return [
        [float(scores[bins == number].mean()), float(labels[bins == number].mean())]
        for number in np.unique(bins).tolist()
    ]
