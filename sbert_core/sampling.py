"""Random samples of rows that every worker can draw for itself, without seeing the other rows."""

import numpy as np


def hash_ordinals(ordinals: np.ndarray, seed: int = 0) -> np.ndarray:
    """A hash (n,) uint64 of each ordinal; those of two seeds are independent of each other."""
    hashed = ordinals.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # wraps around
    # The seed enters between two rounds of mixing. Added to the ordinal, it would only shift the sample by some rows.
    hashed = _mix(hashed) + np.uint64(seed * 0xD1B54A32D192ED03 % 2**64)
    return _mix(hashed)


def _mix(hashed: np.ndarray) -> np.ndarray:
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        hashed = (hashed ^ hashed >> np.uint64(shift)) * np.uint64(factor)
    return hashed ^ hashed >> np.uint64(31)


def is_sampled(ordinals: np.ndarray, n_rows: int, sample_size: int, seed: int = 0) -> np.ndarray:
    """Which of these rows (n,) belong to a random sample of about `sample_size` of all `n_rows` rows.

    A row is chosen by a hash of its ordinal (its position in the order of ids). So the sample is the same in every run
    and however the rows are divided among blocks and workers. Its exact size is not promised. Samples of different
    seeds are independent.
    """
    share = min(sample_size / max(n_rows, 1), 1)
    return hash_ordinals(ordinals, seed) >> np.uint64(32) < np.uint64(share * 2**32)
