"""Files in which the steps that describe clusters hand over arrays: tallies, candidates for exemplars, a sample."""

from collections.abc import Iterable

import numpy as np

from transforms.clusters.cluster_centers import read_centers
from transforms.clusters.cluster_plan import ClusterPlan
from transforms.clusters.tally import FarCosines, LabeledRows, RangeTally, Tally, radii_of
from transforms.dataset.work_files import need_arrays, store_arrays

_ROWS = ("labels", "ordinals", "cosines", "vectors")


def _path(plan: ClusterPlan, name: str, number: int) -> str:
    return f"{plan.work}/{name}-{number:06d}.npz"


def store_tally(item: tuple[int, RangeTally], plan: ClusterPlan) -> int:
    """Stores the tally of a range of clusters; returns the first cluster."""
    first, tally = item
    arrays = {name: getattr(tally.nearest, name) for name in _ROWS}
    store_arrays(_path(plan, "tally", first), {"cosine_sums": tally.cosine_sums, **arrays})
    return first


def store_radii(item: tuple[int, Iterable[FarCosines]], plan: ClusterPlan) -> int:
    """Stores the radii of a range of clusters; returns the first cluster."""
    first, parts = item
    store_arrays(_path(plan, "radii", first), {"radii": radii_of(first, parts, read_centers(plan))})
    return first


def _read_range(plan: ClusterPlan, first: int) -> RangeTally:
    arrays = need_arrays(_path(plan, "tally", first))
    return RangeTally(arrays["cosine_sums"], LabeledRows(*(arrays[name] for name in _ROWS)))


def read_tally(plan: ClusterPlan, ranges: Iterable[int]) -> Tally:
    """The tally of all clusters, from the ranges that were stored."""
    centers = read_centers(plan)
    stored = {first: (_read_range(plan, first), need_arrays(_path(plan, "radii", first))["radii"]) for first in ranges}
    return Tally.of(plan.corpus.rows - int(centers.sizes.sum()), len(centers), stored)


def read_nearest(plan: ClusterPlan, ranges: Iterable[int]) -> np.ndarray:
    """The ordinals of the rows nearest to the centres of all clusters."""
    return np.concatenate([np.empty(0, np.uint32), *(_read_range(plan, first).nearest.ordinals for first in ranges)])


def store_vectors(plan: ClusterPlan, name: str, number: int, **arrays: np.ndarray) -> int:
    """Stores arrays of some rows of a block; returns the number of the block."""
    store_arrays(_path(plan, name, number), arrays)
    return number


def read_vectors_of(plan: ClusterPlan, name: str, numbers: Iterable[int]) -> list[dict[str, np.ndarray]]:
    """The arrays that blocks have stored, in the order of blocks."""
    return [need_arrays(_path(plan, name, number)) for number in sorted(numbers)]
