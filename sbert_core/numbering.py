"""Numbers for groups of rows (clusters, duplicates): the largest group is number 0."""

import numpy as np

UNNUMBERED = -1  # rows that are in no group


def number_groups(sizes: np.ndarray, first_rows: np.ndarray, min_size: int = 1) -> np.ndarray:
    """The number (k,) of each of k groups, from their sizes (k,) and the first row (k,) of each.

    The largest group gets 0. Groups of equal size are ordered by their first row, so the numbers do not depend on the
    order of the groups. Groups with fewer than `min_size` rows, and empty ones, get UNNUMBERED.
    """
    order = np.lexsort((first_rows, -sizes))
    order = order[sizes[order] >= max(min_size, 1)]
    numbers = np.full(len(sizes), UNNUMBERED, np.int64)
    numbers[order] = np.arange(len(order))
    return numbers


def number_labels(labels: np.ndarray, min_size: int = 1) -> np.ndarray:
    """The number (n,) of each row's group, from labels (n,): rows with the same label are one group.

    Numbers are those of `number_groups`. A label of UNNUMBERED stays as it is, whatever the number of such rows.
    """
    values, first_rows, inverse, sizes = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    return number_groups(np.where(values == UNNUMBERED, 0, sizes), first_rows, min_size)[inverse]
