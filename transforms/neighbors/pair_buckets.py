"""Pairs of rows in buckets by ordinal: pairs meet in their bucket, and the next step reads them from files.

All pairs of a corpus in one element would be too large for some engines. So a step stores the pairs of a bucket in a
work file and hands over the number of the bucket.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from sbert_core.neighbors.pairs import Pairs
from transforms.dataset.work_files import need_arrays, store_arrays
from transforms.neighbors.mining_plan import MiningPlan

BUCKETS = 64


def by_bucket(ordinals: np.ndarray, plan: MiningPlan) -> Iterator[tuple[int, np.ndarray]]:
    """The buckets of rows of the first corpus with these ordinals (n,), and which (m,) of them each has."""
    buckets = ordinals.astype(np.int64) * BUCKETS // max(plan.corpora[0].rows, 1)
    for bucket in np.unique(buckets).tolist():
        yield bucket, np.flatnonzero(buckets == bucket)


def bucket_path(plan: MiningPlan, name: str, bucket: int) -> str:
    """The file of a bucket; `name` differs between the steps of a pipeline that store pairs."""
    return f"{plan.work}/{name}-{bucket:02d}.npz"


def store_pairs(path: str, pairs: Pairs, **others: np.ndarray) -> None:
    """Stores pairs, and other arrays by name."""
    store_arrays(path, {"first": pairs.first, "second": pairs.second, "scores": pairs.scores, **others})


def read_pairs(path: str) -> tuple[Pairs, dict[str, np.ndarray]]:
    """The pairs that an earlier step stored, and the other arrays."""
    arrays = need_arrays(path)
    return Pairs(*(arrays.pop(name) for name in ("first", "second", "scores"))), arrays


def read_all_pairs(plan: MiningPlan, name: str, buckets: Sequence[int]) -> list[Pairs]:
    """The pairs of several buckets, in the order of buckets."""
    return [read_pairs(bucket_path(plan, name, bucket))[0] for bucket in sorted(buckets)]
