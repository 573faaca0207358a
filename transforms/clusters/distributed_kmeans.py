"""K-means in rounds over the blocks of a corpus; no step holds the labels of all rows.

The centres of a round are in a file: with many clusters they are too large for an element.
"""

from collections.abc import Iterator

import apache_beam as beam
import numpy as np

from sbert_core.clusters.algorithm import CentroidAlgorithm, Clustering, ClusteringFields
from sbert_core.clusters.kmeans import assign, move_centers
from sbert_core.clusters.noise import NOISE
from transforms.clusters.cluster_centers import AddSums, ClusterSums, read_sums
from transforms.clusters.cluster_plan import ClusterPlan, store_labels
from transforms.clusters.cluster_sizes import ClusterSizes, merge_sizes, number_clusters
from transforms.clusters.sample_files import read_sample, store_sample
from transforms.dataset.corpus import read_vectors
from transforms.dataset.ordinals import ordinals_of_block
from transforms.dataset.work_files import need_arrays, store_arrays
from transforms.merge_values import MergeFn

SAMPLE_ROWS = 65_536  # rows that the first centres are learned on


def label_in_rounds(
    plan: beam.PCollection[ClusterPlan], blocks: beam.PCollection[int], algorithm: CentroidAlgorithm
) -> beam.PCollection[ClusteringFields]:
    """Adds the rounds to a pipeline; the output comes when the labels of all blocks are stored."""
    planned = beam.pvalue.AsSingleton(plan)
    sampled = (
        blocks
        | "Sample" >> beam.Map(store_sample, planned, SAMPLE_ROWS)
        | "AllSamples" >> beam.combiners.Count.Globally()
    )
    n_centers = plan | "Start" >> beam.Map(_start_centers, beam.pvalue.AsSingleton(sampled), algorithm)
    for number in range(algorithm.rounds):
        summed = (
            blocks
            | f"Sums{number}" >> beam.FlatMap(_sum_nearest, planned, beam.pvalue.AsSingleton(n_centers), number)
            | f"AllSums{number}" >> AddSums(plan=plan, name=str(number))
        )
        # From the plan: Beam's local runner may lose a side input that is also the main input of another step.
        moved = map(beam.pvalue.AsSingleton, (n_centers, summed))
        n_centers = plan | f"Move{number}" >> beam.Map(_move_centers, *moved, number)
    numbers = (
        blocks
        | "Nearest" >> beam.Map(_store_nearest, planned, beam.pvalue.AsSingleton(n_centers), algorithm.rounds)
        | "Sizes" >> beam.CombineGlobally(MergeFn(merge_sizes))
        | "Number" >> beam.Map(_number_clusters, planned)
    )
    stored = (
        blocks
        | "StoreLabels" >> beam.Map(_store_numbered, planned, beam.pvalue.AsSingleton(numbers))
        | "AllStored" >> beam.combiners.Count.Globally()
    )
    return plan | "Decided" >> beam.Map(_fields, beam.pvalue.AsSingleton(numbers), beam.pvalue.AsSingleton(stored))


def _centers_path(plan: ClusterPlan, number: int) -> str:
    return f"{plan.work}/round-{number}.npz"


def _read_centers(plan: ClusterPlan, number: int) -> np.ndarray:
    """The centres (k, dim) before a round."""
    return need_arrays(_centers_path(plan, number))["centers"]


def _start_centers(plan: ClusterPlan, n_sampled: int, algorithm: CentroidAlgorithm) -> int:
    """Stores the first centres; returns their number, as the rounds do."""
    centers = algorithm.start_centers(read_sample(plan).vectors, plan.settings)
    store_arrays(_centers_path(plan, 0), {"centers": centers})
    return len(centers)


def _sum_nearest(
    number: int, plan: ClusterPlan, n_centers: int, round_number: int
) -> Iterator[tuple[int, ClusterSums]]:
    """The sums of the vectors of a block that are nearest to each centre."""
    vectors, has_direction = read_vectors(plan.corpus, plan.corpus.blocks[number])
    vectors = vectors[has_direction]
    labels = assign(vectors, _read_centers(plan, round_number))[0]
    return ClusterSums.of(vectors, labels, n_centers).by_range()


def _move_centers(plan: ClusterPlan, n_centers: int, n_summed: int, round_number: int) -> int:
    sums = read_sums(plan, str(round_number), n_centers)
    moved = move_centers(_read_centers(plan, round_number), sums.to_float())
    store_arrays(_centers_path(plan, round_number + 1), {"centers": moved})
    return n_centers


def _nearest_path(plan: ClusterPlan, number: int) -> str:
    return f"{plan.work}/nearest-{number:06d}.npz"


def _store_nearest(number: int, plan: ClusterPlan, n_centers: int, round_number: int) -> ClusterSizes:
    """Stores the nearest centre of each row of a block for `_store_numbered`."""
    block = plan.corpus.blocks[number]
    vectors, has_direction = read_vectors(plan.corpus, block)
    nearest = np.where(has_direction, assign(vectors, _read_centers(plan, round_number))[0], NOISE)
    store_arrays(_nearest_path(plan, number), {"nearest": nearest})
    assigned, ordinals = nearest[has_direction], ordinals_of_block(plan.corpus, block)[has_direction]
    return ClusterSizes.of(assigned, ordinals, n_centers)


def _number_clusters(found: ClusterSizes | None, plan: ClusterPlan) -> np.ndarray:
    return number_clusters(found, plan.settings.min_size)


def _store_numbered(number: int, plan: ClusterPlan, numbers: np.ndarray) -> int:
    nearest = need_arrays(_nearest_path(plan, number))["nearest"]
    labels = np.append(numbers, NOISE)[nearest]  # a nearest centre of -1 reads the last entry
    store_labels(plan, number, Clustering(labels))
    return number


def _fields(plan: ClusterPlan, numbers: np.ndarray, n_stored: int) -> ClusteringFields:
    return ClusteringFields(k=len(numbers), clusters=int(numbers.max(initial=NOISE)) + 1)
