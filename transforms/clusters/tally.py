"""What blocks contribute to the description of clusters, merged in any order.

The tally of a range of clusters has the same size for one block as for all blocks: for each cluster the sum of its
cosines and the rows nearest to its centre. The cosines of the farthest rows, a hundredth of all, come together in one
worker per range. Terms are merged separately: see `term_buckets`.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from sbert_core.clusters.noise import NOISE
from transforms.clusters.cluster_centers import FIXED_POINT_SCALE, OUTSIDE_SHARE, Centers

EXEMPLAR_CANDIDATES = 30  # rows nearest to each centre
RANGE_CLUSTERS = 1024  # clusters whose tallies travel together: half a MB
_HELD_COSINES = 2**20  # that are held before those that cannot be among the lowest are dropped


@dataclasses.dataclass(frozen=True, eq=False)
class LabeledRows:
    """Rows of clusters: labels (n,), ordinals (n,), cosines (n,) to the own centre, vectors (n, dim) or none (n, 0)."""

    labels: np.ndarray
    ordinals: np.ndarray
    cosines: np.ndarray
    vectors: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: np.ndarray) -> "LabeledRows":
        return LabeledRows(self.labels[rows], self.ordinals[rows], self.cosines[rows], self.vectors[rows])

    def without_vectors(self) -> "LabeledRows":
        """The same rows with vectors of no dimension, which are small to hand over."""
        return dataclasses.replace(self, vectors=np.empty((len(self), 0), np.float32))

    def nearest(self, count: int) -> "LabeledRows":
        """The rows nearest to the centre of each cluster; of equal ones the lower ordinal comes first."""
        order = np.lexsort((self.ordinals, -self.cosines, self.labels))
        return self[_first_of_each(self.labels, order, count)]

    def of_cluster(self, cluster: int) -> "LabeledRows":
        """The rows of one cluster, in their order."""
        return self[np.flatnonzero(self.labels == cluster)]


def _first_of_each(labels: np.ndarray, order: np.ndarray, counts: np.ndarray | int) -> np.ndarray:
    """The first rows of each label, in an order (n,) that groups rows by label; `counts` (k,) of each, or one for all.

    For labels [0, 0, 0, 1] in that order, and a count of 2, these are the rows 0, 1 and 3.
    """
    ordered = labels[order]
    places = np.arange(len(order)) - np.searchsorted(ordered, ordered)  # the place of a row among those of its label
    return order[places < (counts if isinstance(counts, int) else counts[ordered])]


def join_rows(parts: Iterable[LabeledRows]) -> LabeledRows:
    """The rows of one or more parts together."""
    columns = zip(*(dataclasses.astuple(part) for part in parts), strict=True)
    return LabeledRows(*(np.concatenate(column) for column in columns))


@dataclasses.dataclass(frozen=True, eq=False)
class RangeTally:
    """What one or more blocks contribute to the description of a range of clusters."""

    cosine_sums: np.ndarray  # (clusters of the range,) int64, fixed-point sums of the cosines to the own centre
    nearest: LabeledRows  # without vectors: these are read when the rows of all blocks are known


FarCosines = tuple[np.ndarray, np.ndarray]
"""Labels (n,) and cosines (n,) of rows that are far from their centres."""


def tally_ranges(rows: LabeledRows, n_clusters: int) -> Iterator[tuple[int, RangeTally]]:
    """The tallies of the ranges of clusters that some rows of a block are in, each by the first cluster."""
    inside = rows.without_vectors()[np.flatnonzero(rows.labels != NOISE)]
    cosine_sums = np.zeros(n_clusters, np.int64)
    np.add.at(cosine_sums, inside.labels, np.rint(inside.cosines * FIXED_POINT_SCALE).astype(np.int64))
    nearest = inside.nearest(EXEMPLAR_CANDIDATES)
    for first, which in _by_range(nearest.labels):
        yield first, RangeTally(cosine_sums[first : first + RANGE_CLUSTERS], nearest[which])


def far_cosines(rows: LabeledRows, centers: Centers) -> Iterator[tuple[int, FarCosines]]:
    """What a block contributes to the radii of clusters, by range: of each cluster the lowest cosines."""
    is_inside = rows.labels != NOISE
    labels, cosines = _lowest(rows.labels[is_inside], rows.cosines[is_inside], centers.n_farthest)
    for first, which in _by_range(labels):
        yield first, (labels[which].astype(np.uint32), cosines[which])


def _by_range(labels: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """The ranges of clusters that labels (n,) are in, by the first cluster, and which (m,) of the labels each has."""
    ranges = labels // RANGE_CLUSTERS
    for number in np.unique(ranges).tolist():
        yield number * RANGE_CLUSTERS, np.flatnonzero(ranges == number)


def _lowest(labels: np.ndarray, cosines: np.ndarray, counts: np.ndarray) -> FarCosines:
    """The lowest cosines of each cluster, `counts` (k,) of each, ordered by cluster and cosine."""
    order = np.lexsort((cosines, labels))
    chosen = _first_of_each(labels, order, counts)
    return labels[chosen], cosines[chosen]


def radii_of(first: int, parts: Iterable[FarCosines], centers: Centers) -> np.ndarray:
    """The radii (clusters of a range,), from what all blocks contribute; NaN for a cluster without rows.

    A radius is the cosine to the centre that all but `OUTSIDE_SHARE` of the rows have.
    """
    held: list[FarCosines] = [(np.empty(0, np.uint32), np.empty(0, np.float32))]
    n_held = n_needed = 0
    for labels, cosines in parts:
        held.append((labels, cosines))
        n_held += len(labels)
        if n_held > 2 * n_needed + _HELD_COSINES:  # keeps memory within a multiple of what is needed
            held = [_lowest(*_join(held), centers.n_farthest)]
            n_held = n_needed = len(held[0][0])
    labels, cosines = _lowest(*_join(held), centers.n_farthest)
    sizes = centers.sizes[first : first + RANGE_CLUSTERS]
    bounds = np.searchsorted(labels, np.arange(first, first + len(sizes) + 1))
    radii = np.full(len(sizes), np.nan)
    for place, (start, end) in enumerate(itertools.pairwise(bounds.tolist())):
        if end > start:
            radii[place] = np.interp(OUTSIDE_SHARE * (sizes[place] - 1), np.arange(end - start), cosines[start:end])
    return radii


def _join(parts: Iterable[FarCosines]) -> FarCosines:
    labels, cosines = zip(*parts, strict=True)
    return np.concatenate(labels), np.concatenate(cosines)


def merge_tallies(first: RangeTally, second: RangeTally) -> RangeTally:
    """The tally of the blocks of two tallies of one range."""
    nearest = join_rows([first.nearest, second.nearest]).nearest(EXEMPLAR_CANDIDATES)
    return RangeTally(first.cosine_sums + second.cosine_sums, nearest)


@dataclasses.dataclass(frozen=True, eq=False)
class Tally:
    """What the rows of a corpus contribute to the description of all k clusters."""

    n_noise: int
    cosine_sums: np.ndarray  # (k,)
    nearest: LabeledRows  # without vectors
    radii: np.ndarray  # (k,)

    @classmethod
    def of(cls, n_noise: int, n_clusters: int, ranges: Mapping[int, tuple[RangeTally, np.ndarray]]) -> "Tally":
        """The tally of all ranges, from the tally and the radii of each; a range without rows may be missing."""
        cosine_sums, radii = np.zeros(n_clusters, np.int64), np.full(n_clusters, np.nan)
        for first, (tally, own_radii) in ranges.items():
            cosine_sums[first : first + len(own_radii)] = tally.cosine_sums
            radii[first : first + len(own_radii)] = own_radii
        nearest = [tally.nearest for _, (tally, _) in sorted(ranges.items())]
        return cls(n_noise, cosine_sums, join_rows([_no_rows(), *nearest]), radii)

    def cohesion(self, cluster: int, size: int) -> float:
        """The mean cosine to the centre, for a cluster of `size` rows."""
        return float(self.cosine_sums[cluster] / FIXED_POINT_SCALE / size)


def _no_rows() -> LabeledRows:
    labels, ordinals, cosines = np.empty(0, np.int64), np.empty(0, np.uint32), np.empty(0, np.float32)
    return LabeledRows(labels, ordinals, cosines, np.empty((0, 0), np.float32))
