"""How precisely a recall is known that was measured on a sample."""

import math

Z_95 = 1.96  # standard deviations of a 95 % interval


def recall_interval(n_found: int, n_total: int) -> tuple[float, float]:
    """The 95 % Wilson interval of a recall of which `n_found` of `n_total` were observed."""
    if not n_total:
        return 0.0, 1.0
    share = n_found / n_total
    scale = 1 + Z_95 * Z_95 / n_total
    middle = (share + Z_95 * Z_95 / (2 * n_total)) / scale
    half_width = Z_95 / scale * math.sqrt(share * (1 - share) / n_total + Z_95 * Z_95 / (4 * n_total * n_total))
    return max(0.0, middle - half_width), min(1.0, middle + half_width)
