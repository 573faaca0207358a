"""How precisely a recall is known that was measured on a sample of rows."""

import math

import numpy as np

Z_95 = 1.96  # standard deviations of a 95 % interval


def recall_interval(found: np.ndarray, total: np.ndarray) -> tuple[float, float]:
    """The 95 % interval of a recall, from the neighbours found (n,) and the true ones (n,) of each sampled row.

    The neighbours of one row are not independent: they are in the same places, and are missed together. So rows are
    the observations. The variance of the ratio of the two sums is estimated from rows; the number of independent
    neighbours that would have the same variance goes into Wilson's interval. If rows do not differ at all, because
    everything was found or nothing, each row counts once.
    """
    n_rows, n_true = len(total), int(total.sum())
    if not n_true:
        return 0.0, 1.0
    share = float(found.sum()) / n_true
    residuals = found - share * total
    variance = n_rows / max(n_rows - 1, 1) * float((residuals**2).sum()) / n_true**2
    n_rows_with_any = int((total > 0).sum())
    n_independent = share * (1 - share) / variance if variance > 0 else n_rows_with_any
    return _wilson(share, min(n_independent, n_true))


def _wilson(share: float, n: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share that was observed in n independent cases."""
    scale = 1 + Z_95 * Z_95 / n
    middle = (share + Z_95 * Z_95 / (2 * n)) / scale
    half_width = Z_95 / scale * math.sqrt(share * (1 - share) / n + Z_95 * Z_95 / (4 * n * n))
    return max(0.0, middle - half_width), min(1.0, middle + half_width)
