"""The default clustering in two levels, as steps over the blocks of a corpus.

A worker holds one block, the means of the micro-clusters, and for each row of the corpus 10 bytes: the number of its
micro-cluster and its last neighbour. One worker learns on a sample of bounded size. Arrays are handed over in files.
"""

import dataclasses
from collections.abc import Iterable, Iterator

import apache_beam as beam
import numpy as np
from scipy import sparse

from sbert_core.clusters.algorithm import Clustering, ClusteringFields
from sbert_core.clusters.membership import share_in_cluster
from sbert_core.clusters.micro_clusters import (
    SAMPLE_ROWS,
    WEIGHT_SCALE,
    learn_micro_centers,
    micro_edges,
    nearest_micro,
    smooth_rows,
)
from sbert_core.clusters.noise import NOISE
from sbert_core.clusters.two_levels import LinkedSample, learn_clusters, resolution_of_sample
from sbert_core.sampling import is_sampled
from transforms.clusters.block_neighbors import find_mined_parts, read_block_graph
from transforms.clusters.cluster_plan import ClusterPlan, store_labels
from transforms.clusters.cluster_sizes import ClusterSizes, merge_sizes, number_clusters
from transforms.clusters.sample_files import read_sample, store_sample
from transforms.dataset.corpus import read_vectors
from transforms.dataset.ordinals import ordinals_of_block
from transforms.dataset.work_files import need_arrays, store_arrays
from transforms.merge_values import MergeFn

MICRO_PER_BUCKET = 512  # the edges of so many micro-clusters are added up together: some hundred KB
_NOISE_LABEL = np.iinfo(np.uint16).max  # of rows by ordinal; there are fewer clusters than micro-clusters

Edges = tuple[np.ndarray, np.ndarray]
"""Keys (n,) and weights (n,) of pairs of micro-clusters, sorted by key: first times number of clusters plus second."""


def label_in_two_levels(
    plan: beam.PCollection[ClusterPlan], blocks: beam.PCollection[int]
) -> beam.PCollection[ClusteringFields]:
    """Adds the steps to a pipeline; the output comes when the labels of all blocks are stored."""
    planned = beam.pvalue.AsSingleton(plan)
    sampled = blocks | "Sample" >> beam.Map(store_sample, planned, SAMPLE_ROWS) | "Samples" >> _count()
    n_micro = plan | "LearnMicro" >> beam.Map(_learn_micro, beam.pvalue.AsSingleton(sampled))
    micro = beam.pvalue.AsSingleton(n_micro)
    labeled = blocks | "LabelMicro" >> beam.Map(_label_micro, planned, micro) | "MicroLabels" >> _count()
    gathered = beam.pvalue.AsSingleton(
        plan | "GatherMicro" >> beam.Map(_gather_micro, beam.pvalue.AsSingleton(labeled))
    )
    edges = (
        blocks
        | "Link" >> beam.FlatMap(_link_block, planned, micro, gathered)
        | "AddEdges" >> beam.CombinePerKey(MergeFn(_add_edges))
        | "Edges" >> beam.Values()
    )
    fields = plan | "Learn" >> beam.Map(_learn, micro, beam.pvalue.AsIter(edges))
    numbers = (
        blocks
        | "Nearest" >> beam.Map(_store_nearest, planned, beam.pvalue.AsSingleton(fields))
        | "Sizes" >> beam.CombineGlobally(MergeFn(merge_sizes))
        | "Number" >> beam.Map(_number, planned)
    )
    numbered = beam.pvalue.AsSingleton(
        plan | "GatherLabels" >> beam.Map(_gather_labels, beam.pvalue.AsSingleton(numbers))
    )
    stored = blocks | "StoreLabels" >> beam.Map(_store_block, planned, numbered) | "AllStored" >> _count()
    return fields | "Decided" >> beam.Map(
        _with_clusters, beam.pvalue.AsSingleton(numbers), beam.pvalue.AsSingleton(stored)
    )


def _count() -> beam.PTransform:
    return beam.combiners.Count.Globally()


def _path(plan: ClusterPlan, name: str, number: int | None = None) -> str:
    return f"{plan.work}/{name}.npz" if number is None else f"{plan.work}/{name}-{number:06d}.npz"


def _learn_micro(plan: ClusterPlan, n_sampled: int) -> int:
    centers = learn_micro_centers(read_sample(plan).vectors)
    store_arrays(_path(plan, "micro_centers"), {"centers": centers})
    return len(centers)


def _label_micro(number: int, plan: ClusterPlan, n_micro: int) -> int:
    """Stores the micro-cluster and the last neighbour of each row of a block."""
    block = plan.corpus.blocks[number]
    vectors, _ = read_vectors(plan.corpus, block)
    graph = read_block_graph(find_mined_parts(plan.neighbors, plan.corpus), plan.corpus, block)
    centers = need_arrays(_path(plan, "micro_centers"))["centers"]
    labels = nearest_micro(vectors, centers) if n_micro else np.zeros(len(vectors), np.uint16)
    store_arrays(_path(plan, "micro", number), {"labels": labels, "last_candidates": graph.last_candidates()})
    return number


def _gather_micro(plan: ClusterPlan, n_labeled: int) -> int:
    """Stores the micro-clusters and last neighbours of all rows by ordinal."""
    labels, last = np.empty(plan.corpus.rows, np.uint16), np.empty(plan.corpus.rows, np.uint64)
    for block in plan.corpus.blocks:
        ordinals, stored = ordinals_of_block(plan.corpus, block), need_arrays(_path(plan, "micro", block.number))
        labels[ordinals], last[ordinals] = stored["labels"], stored["last_candidates"]
    store_arrays(_path(plan, "micro_of_rows"), {"labels": labels, "last_candidates": last})
    return n_labeled


def _link_block(number: int, plan: ClusterPlan, n_micro: int, n_gathered: int) -> Iterator[tuple[int, Edges]]:
    """Stores the links of a block's sampled rows; yields the edges that it adds to the graph of micro-clusters."""
    if not n_micro:
        return
    rows = need_arrays(_path(plan, "micro_of_rows"))
    graph = read_block_graph(find_mined_parts(plan.neighbors, plan.corpus), plan.corpus, plan.corpus.blocks[number])
    chosen = is_sampled(graph.ordinals, plan.corpus.rows, SAMPLE_ROWS)
    links = {
        "ordinals": graph.ordinals[chosen],
        "weights": graph.weights()[chosen],
        "micro_neighbors": rows["labels"][graph.neighbors[chosen]],
    }
    store_arrays(_path(plan, "links", number), links)
    edges = micro_edges(graph, rows["labels"], rows["last_candidates"], n_micro)
    keys = edges.row.astype(np.int64) * n_micro + edges.col
    buckets = edges.row // MICRO_PER_BUCKET
    for bucket in np.unique(buckets).tolist():
        is_inside = buckets == bucket
        yield bucket, (keys[is_inside], edges.data[is_inside])


def _add_edges(first: Edges, second: Edges) -> Edges:
    keys, places = np.unique(np.concatenate([first[0], second[0]]), return_inverse=True)
    weights = np.zeros(len(keys), np.int64)
    np.add.at(weights, places, np.concatenate([first[1], second[1]]))
    return keys, weights


def _learn(plan: ClusterPlan, n_micro: int, edges: Iterable[Edges]) -> ClusteringFields:
    """Learns the clusters on one worker and stores their centres."""
    settings = plan.settings
    if not n_micro:  # no row has a direction
        return ClusteringFields(clusters=0, resolution=settings.resolution, levels=2)
    sample = _read_linked_sample(plan)
    resolution = settings.resolution
    if resolution is None:
        resolution = resolution_of_sample(sample, plan.corpus.rows, sample.weights.shape[1], settings.seed)
    empty = np.empty(0, np.int64)
    found = sorted(edges, key=lambda each: int(each[0][0]))
    keys = np.concatenate([empty, *(each for each, _ in found)])
    weights = np.concatenate([empty, *(each for _, each in found)])
    graph = sparse.csr_array(
        (weights / (2.0 * WEIGHT_SCALE), (keys // n_micro, keys % n_micro)), shape=(n_micro, n_micro)
    )
    micro_centers = need_arrays(_path(plan, "micro_centers"))["centers"]
    learned = learn_clusters(sample, graph, micro_centers, resolution, settings.seed)
    means = {f"mean{step}": mean for step, mean in enumerate(learned.means)}
    store_arrays(_path(plan, "smooth_centers"), {"centers": learned.centers, **means})
    return ClusteringFields(clusters=len(learned.centers), resolution=resolution, levels=2)


def _read_linked_sample(plan: ClusterPlan) -> LinkedSample:
    sample = read_sample(plan)
    links = [need_arrays(_path(plan, "links", block.number)) for block in plan.corpus.blocks]
    joined = {name: np.concatenate([each[name] for each in links]) for name in links[0]}
    order = np.argsort(joined["ordinals"])
    labels = need_arrays(_path(plan, "micro_of_rows"))["labels"]
    return LinkedSample(
        sample.ordinals,
        sample.vectors,
        labels[sample.ordinals],
        joined["weights"][order],
        joined["micro_neighbors"][order],
    )


def _store_nearest(number: int, plan: ClusterPlan, fields: ClusteringFields) -> ClusterSizes:
    """Stores the cluster of each row of a block; a row without a direction, or without a neighbour, is noise."""
    block = plan.corpus.blocks[number]
    vectors, has_direction = read_vectors(plan.corpus, block)
    graph = read_block_graph(find_mined_parts(plan.neighbors, plan.corpus), plan.corpus, block)
    weights = graph.weights()
    is_linked = has_direction & weights.any(axis=1)
    if not fields.clusters:  # no row has a direction
        store_arrays(_path(plan, "nearest", number), {"nearest": np.full(len(vectors), NOISE)})
        return ClusterSizes.of(np.empty(0, np.int64), np.empty(0, np.int64), 0)
    stored = need_arrays(_path(plan, "smooth_centers"))
    means = [stored[f"mean{step}"] for step in range(len(stored) - 1)]
    micro_neighbors = need_arrays(_path(plan, "micro_of_rows"))["labels"][graph.neighbors]
    smooth = smooth_rows(vectors, weights, micro_neighbors, means)
    nearest = np.where(is_linked, nearest_micro(smooth, stored["centers"]).astype(np.int64), NOISE)
    store_arrays(_path(plan, "nearest", number), {"nearest": nearest})
    return ClusterSizes.of(nearest[is_linked], graph.ordinals[is_linked], len(stored["centers"]))


def _number(found: ClusterSizes | None, plan: ClusterPlan) -> np.ndarray:
    return number_clusters(found, plan.settings.min_size)


def _gather_labels(plan: ClusterPlan, numbers: np.ndarray) -> int:
    """Stores the numbered cluster of all rows by ordinal."""
    labels = np.empty(plan.corpus.rows, np.uint16)
    by_nearest = np.append(np.where(numbers == NOISE, _NOISE_LABEL, numbers), _NOISE_LABEL).astype(np.uint16)
    for block in plan.corpus.blocks:
        nearest = need_arrays(_path(plan, "nearest", block.number))["nearest"]
        labels[ordinals_of_block(plan.corpus, block)] = by_nearest[nearest]  # -1 reads the last entry
    store_arrays(_path(plan, "labels_of_rows"), {"labels": labels})
    return len(labels)


def _store_block(number: int, plan: ClusterPlan, n_gathered: int) -> int:
    """Stores the labels and strengths of a block."""
    graph = read_block_graph(find_mined_parts(plan.neighbors, plan.corpus), plan.corpus, plan.corpus.blocks[number])
    labels = need_arrays(_path(plan, "labels_of_rows"))["labels"]
    own = labels[graph.ordinals]
    strengths = share_in_cluster(graph.weights(), labels[graph.neighbors] == own[:, None])
    is_noise = own == _NOISE_LABEL
    numbered = np.where(is_noise, NOISE, own.astype(np.int64))
    store_labels(plan, number, Clustering(numbered, np.where(is_noise, 0, strengths).astype(np.float32)))
    return number


def _with_clusters(fields: ClusteringFields, numbers: np.ndarray, n_stored: int) -> ClusteringFields:
    return dataclasses.replace(fields, clusters=int(numbers.max(initial=NOISE)) + 1)
