"""Random samples of rows that every worker can draw for itself, without seeing the other rows."""

import numpy as np


def is_sampled(ordinals: np.ndarray, n_rows: int, sample_size: int, seed: int = 0) -> np.ndarray:
    """Which of these rows (n,) belong to a random sample of about `sample_size` of all `n_rows` rows.

    A row is chosen by a hash of its ordinal (its position in the order of ids). So the sample is the same in every run
    and however the rows are divided among blocks and workers. Its exact size is not promised.
    """
    hashed = (ordinals.astype(np.uint64) + np.uint64(seed)) * np.uint64(0x9E3779B97F4A7C15)  # wraps around
    hashed ^= hashed >> np.uint64(29)
    hashed *= np.uint64(0xBF58476D1CE4E5B9)
    return hashed >> np.uint64(32) < np.uint64(min(sample_size / max(n_rows, 1), 1) * 2**32)
