"""What blocks contribute to the description of clusters, merged in any order.

A tally has the same size for one block as for all blocks: for each cluster the sum of its cosines, the rows nearest to
its centre and the cosines of the farthest; of all rows a sample. Terms are merged separately: see `term_buckets`.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable

import numpy as np

from sbert_core.clusters.noise import NOISE
from sbert_core.data.manifest import Part
from sbert_core.sampling import is_sampled
from transforms.clusters.cluster_centers import FIXED_POINT_SCALE, OUTSIDE_SHARE, Centers

EXEMPLAR_CANDIDATES = 30  # rows nearest to each centre
QUALITY_ROWS = 3000  # rows that the quality is measured on


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

    def farthest(self, counts: np.ndarray) -> "LabeledRows":
        """The rows farthest from the centre of each cluster, `counts` (k,) of each."""
        order = np.lexsort((self.ordinals, self.cosines, self.labels))
        return self[_first_of_each(self.labels, order, counts)]

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
class Tally:
    """What one or more blocks contribute to the description of the clusters."""

    n_farthest: np.ndarray  # (k,), of Centers
    parts: list[Part]  # of the assignments
    n_noise: int
    cosine_sums: np.ndarray  # (k,) int64, fixed-point sums of the cosines to the own centre
    nearest: LabeledRows  # without vectors: these are read when the rows of all blocks are known
    farthest: LabeledRows  # without vectors
    sample: LabeledRows
    label_counts: Counter[tuple[str, int]]  # rows of each true label and cluster

    def cohesion(self, cluster: int, size: int) -> float:
        """The mean cosine to the centre, for a cluster of `size` rows."""
        return float(self.cosine_sums[cluster] / FIXED_POINT_SCALE / size)

    def radius(self, cluster: int, size: int) -> float:
        """The cosine to the centre that all but `OUTSIDE_SHARE` of the rows have, for a cluster of `size` rows."""
        lowest = self.farthest.of_cluster(cluster).cosines
        return float(np.interp(OUTSIDE_SHARE * (size - 1), np.arange(len(lowest)), lowest))


def tally_block(
    part: Part, rows: LabeledRows, true_labels: list[str | None], centers: Centers, corpus_rows: int
) -> Tally:
    """The tally of a block, from all of its rows and their true labels, which may be none."""
    inside = rows.without_vectors()[np.flatnonzero(rows.labels != NOISE)]
    cosine_sums = np.zeros(len(centers), np.int64)
    np.add.at(cosine_sums, inside.labels, np.rint(inside.cosines * FIXED_POINT_SCALE).astype(np.int64))
    return Tally(
        n_farthest=centers.n_farthest,
        parts=[part],
        n_noise=len(rows) - len(inside),
        cosine_sums=cosine_sums,
        nearest=inside.nearest(EXEMPLAR_CANDIDATES),
        farthest=inside.farthest(centers.n_farthest),
        sample=rows[np.flatnonzero(is_sampled(rows.ordinals, corpus_rows, QUALITY_ROWS))],
        label_counts=Counter(zip(map(str, true_labels), rows.labels.tolist(), strict=False)),
    )


def merge_tallies(first: Tally, second: Tally) -> Tally:
    """The tally of the blocks of two tallies."""
    return Tally(
        n_farthest=first.n_farthest,
        parts=first.parts + second.parts,
        n_noise=first.n_noise + second.n_noise,
        cosine_sums=first.cosine_sums + second.cosine_sums,
        nearest=join_rows([first.nearest, second.nearest]).nearest(EXEMPLAR_CANDIDATES),
        farthest=join_rows([first.farthest, second.farthest]).farthest(first.n_farthest),
        sample=join_rows([first.sample, second.sample]),
        label_counts=first.label_counts + second.label_counts,
    )
