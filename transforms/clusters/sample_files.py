"""A random sample of the rows of a corpus, handed over in files: as one record it would be too large for some engines.

65,536 vectors of 256 dimensions are 67 MB; what steps hand over is the number of a block.
"""

import dataclasses

import numpy as np

from sbert_core.sampling import is_sampled
from transforms.clusters.cluster_plan import ClusterPlan
from transforms.dataset.corpus import read_vectors
from transforms.dataset.ordinals import ordinals_of_block
from transforms.dataset.work_files import need_arrays, store_arrays


@dataclasses.dataclass(frozen=True, eq=False)
class SampledRows:
    """The ordinals (n,) and unit vectors (n, dim) of some rows, in the order of ordinals."""

    ordinals: np.ndarray
    vectors: np.ndarray


def store_sample(number: int, plan: ClusterPlan, sample_rows: int) -> int:
    """Stores the rows of a block that are in a sample of about `sample_rows` rows of the corpus."""
    block = plan.corpus.blocks[number]
    ordinals, (vectors, _) = ordinals_of_block(plan.corpus, block), read_vectors(plan.corpus, block)
    chosen = is_sampled(ordinals, plan.corpus.rows, sample_rows)
    store_arrays(_sample_path(plan, number), {"ordinals": ordinals[chosen], "vectors": vectors[chosen]})
    return number


def read_sample(plan: ClusterPlan) -> SampledRows:
    """The sample, which the steps of all blocks have stored."""
    stored = [need_arrays(_sample_path(plan, block.number)) for block in plan.corpus.blocks]
    ordinals = np.concatenate([np.empty(0, np.uint32), *(each["ordinals"] for each in stored)])
    vectors = np.concatenate([np.empty((0, plan.corpus.dim), np.float32), *(each["vectors"] for each in stored)])
    order = np.argsort(ordinals)
    return SampledRows(ordinals[order], vectors[order])


def _sample_path(plan: ClusterPlan, number: int) -> str:
    return f"{plan.work}/sample-{number:06d}.npz"
