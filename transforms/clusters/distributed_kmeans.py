"""K-means in rounds over the blocks of a corpus; no step holds the labels of all rows."""

import dataclasses
from collections.abc import Sequence

import apache_beam as beam
import numpy as np

from sbert_core.clusters.algorithm import CentroidAlgorithm, Clustering, ClusteringFields
from sbert_core.clusters.kmeans import assign, move_centers
from sbert_core.clusters.noise import NOISE
from sbert_core.numbering import number_groups
from sbert_core.sampling import is_sampled
from transforms.clusters.cluster_centers import ClusterSums, add_sums
from transforms.clusters.cluster_plan import ClusterPlan, store_labels
from transforms.dataset.corpus import ordinals_of_block, read_vectors
from transforms.dataset.work_files import need_arrays, store_arrays
from transforms.merge_values import MergeFn

SAMPLE_ROWS = 65_536  # rows that the first centres are learned on
_MAX_ORDINAL = np.iinfo(np.int64).max


@dataclasses.dataclass(frozen=True, eq=False)
class SampledRows:
    """The ordinals (n,) and unit vectors (n, dim) of some rows."""

    ordinals: np.ndarray
    vectors: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class ClusterSizes:
    """The size (k,) of each cluster, and the lowest ordinal (k,) of its rows."""

    sizes: np.ndarray
    first_ordinals: np.ndarray


def label_in_rounds(
    plan: beam.PCollection[ClusterPlan], blocks: beam.PCollection[int], algorithm: CentroidAlgorithm
) -> beam.PCollection[ClusteringFields]:
    """Adds the rounds to a pipeline; the output comes when the labels of all blocks are stored."""
    planned = beam.pvalue.AsSingleton(plan)
    centers = (
        blocks
        | "Sample" >> beam.Map(_sample_block, planned)
        | "AllSamples" >> beam.combiners.ToList()
        | "Start" >> beam.Map(_start_centers, planned, algorithm)
    )
    for number in range(algorithm.rounds):
        centers = (
            blocks
            | f"Sums{number}" >> beam.Map(_sum_nearest, planned, beam.pvalue.AsSingleton(centers))
            | f"AllSums{number}" >> beam.CombineGlobally(MergeFn(add_sums))
            | f"Move{number}" >> beam.Map(_move_centers, beam.pvalue.AsSingleton(centers))
        )
    numbers = (
        blocks
        | "Nearest" >> beam.Map(_store_nearest, planned, beam.pvalue.AsSingleton(centers))
        | "Sizes" >> beam.CombineGlobally(MergeFn(_merge_sizes))
        | "Number" >> beam.Map(_number_clusters, planned)
    )
    stored = (
        blocks
        | "StoreLabels" >> beam.Map(_store_numbered, planned, beam.pvalue.AsSingleton(numbers))
        | "AllStored" >> beam.combiners.Count.Globally()
    )
    return numbers | "Decided" >> beam.Map(_fields, beam.pvalue.AsSingleton(stored))


def _sample_block(number: int, plan: ClusterPlan) -> SampledRows:
    """The rows of a block that are in the sample of the corpus."""
    block = plan.corpus.blocks[number]
    ordinals, (vectors, _) = ordinals_of_block(plan.corpus, block), read_vectors(plan.corpus, block)
    chosen = is_sampled(ordinals, plan.corpus.rows, SAMPLE_ROWS)
    return SampledRows(ordinals[chosen], vectors[chosen])


def _start_centers(samples: Sequence[SampledRows], plan: ClusterPlan, algorithm: CentroidAlgorithm) -> np.ndarray:
    ordinals = np.concatenate([np.empty(0, np.uint32), *(sample.ordinals for sample in samples)])
    vectors = np.concatenate([np.empty((0, plan.corpus.dim), np.float32), *(sample.vectors for sample in samples)])
    return algorithm.start_centers(vectors[np.argsort(ordinals)], plan.settings)


def _sum_nearest(number: int, plan: ClusterPlan, centers: np.ndarray) -> ClusterSums:
    """The sums of the vectors of a block that are nearest to each centre."""
    vectors, has_direction = read_vectors(plan.corpus, plan.corpus.blocks[number])
    vectors = vectors[has_direction]
    return ClusterSums.of(vectors, assign(vectors, centers)[0], len(centers))


def _move_centers(sums: ClusterSums | None, centers: np.ndarray) -> np.ndarray:
    return centers if sums is None else move_centers(centers, sums.to_float())


def _nearest_path(plan: ClusterPlan, number: int) -> str:
    return f"{plan.work}/nearest-{number:06d}.npz"


def _store_nearest(number: int, plan: ClusterPlan, centers: np.ndarray) -> ClusterSizes:
    """Stores the nearest centre of each row of a block for `_store_numbered`."""
    block = plan.corpus.blocks[number]
    vectors, has_direction = read_vectors(plan.corpus, block)
    nearest = np.where(has_direction, assign(vectors, centers)[0], NOISE)
    store_arrays(_nearest_path(plan, number), {"nearest": nearest})
    assigned, ordinals = nearest[has_direction], ordinals_of_block(plan.corpus, block)[has_direction]
    first_ordinals = np.full(len(centers), _MAX_ORDINAL)
    np.minimum.at(first_ordinals, assigned, ordinals)
    return ClusterSizes(np.bincount(assigned, minlength=len(centers)), first_ordinals)


def _merge_sizes(first: ClusterSizes, second: ClusterSizes) -> ClusterSizes:
    return ClusterSizes(first.sizes + second.sizes, np.minimum(first.first_ordinals, second.first_ordinals))


def _number_clusters(found: ClusterSizes | None, plan: ClusterPlan) -> np.ndarray:
    """The number (k,) of each cluster, by size; small clusters are noise."""
    if found is None:
        return np.empty(0, np.int64)
    return number_groups(found.sizes, found.first_ordinals, plan.settings.min_size)


def _store_numbered(number: int, plan: ClusterPlan, numbers: np.ndarray) -> int:
    nearest = need_arrays(_nearest_path(plan, number))["nearest"]
    labels = np.append(numbers, NOISE)[nearest]  # a nearest centre of -1 reads the last entry
    store_labels(plan, number, Clustering(labels))
    return number


def _fields(numbers: np.ndarray, n_stored: int) -> ClusteringFields:
    return ClusteringFields(k=len(numbers), clusters=int(numbers.max(initial=NOISE)) + 1)
