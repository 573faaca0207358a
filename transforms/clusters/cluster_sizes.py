"""The sizes of clusters, added up over blocks, and the numbers that clusters get by size."""

import dataclasses

import numpy as np

from sbert_core.numbering import number_groups

_MAX_ORDINAL = np.iinfo(np.int64).max


@dataclasses.dataclass(frozen=True, eq=False)
class ClusterSizes:
    """The size (k,) of each cluster, and the lowest ordinal (k,) of its rows."""

    sizes: np.ndarray
    first_ordinals: np.ndarray

    @classmethod
    def of(cls, labels: np.ndarray, ordinals: np.ndarray, k: int) -> "ClusterSizes":
        """The sizes of k clusters, from the labels (n,) and ordinals (n,) of rows."""
        first_ordinals = np.full(k, _MAX_ORDINAL)
        np.minimum.at(first_ordinals, labels, ordinals)
        return cls(np.bincount(labels, minlength=k), first_ordinals)


def merge_sizes(first: ClusterSizes, second: ClusterSizes) -> ClusterSizes:
    """The sizes of two sets of rows together."""
    return ClusterSizes(first.sizes + second.sizes, np.minimum(first.first_ordinals, second.first_ordinals))


def number_clusters(found: ClusterSizes | None, min_size: int) -> np.ndarray:
    """The number (k,) of each cluster, by size; small clusters are noise. None: an empty corpus."""
    if found is None:
        return np.empty(0, np.int64)
    return number_groups(found.sizes, found.first_ordinals, min_size)
