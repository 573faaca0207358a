"""The default clustering in two levels, as steps over the blocks of a corpus.

A worker holds one block, the means of the micro-clusters, and for each row of the corpus 10 bytes: the number of its
micro-cluster and its last neighbour. It reads these once, not once per block. One worker learns on a sample of bounded
size. Arrays are handed over in files.
"""

import dataclasses
import hashlib
from collections.abc import Iterator

import apache_beam as beam
import numpy as np

from sbert_core.clusters.algorithm import Clustering, ClusteringFields
from sbert_core.clusters.membership import share_in_cluster
from sbert_core.clusters.micro_clusters import (
    SAMPLE_ROWS,
    learn_micro_centers,
    micro_edges,
    nearest_micro,
    smooth_rows,
)
from sbert_core.clusters.noise import NOISE
from sbert_core.clusters.two_levels import LinkedSample, learn_clusters, resolution_of_sample
from sbert_core.process_cache import process_cache
from sbert_core.sampling import is_sampled
from transforms.clusters.block_neighbors import MinedBlock, find_mined_parts, read_block_graph
from transforms.clusters.cluster_plan import ClusterPlan, store_labels
from transforms.clusters.cluster_sizes import ClusterSizes, merge_sizes, number_clusters
from transforms.clusters.micro_graph import MAX_ELEMENT_EDGES, AddEdges, Edges, read_micro_graph
from transforms.clusters.sample_files import read_sample, store_sample
from transforms.dataset.corpus import read_vectors
from transforms.dataset.ordinals import ordinals_of_block
from transforms.dataset.work_files import need_arrays, store_arrays
from transforms.merge_values import MergeFn

_NOISE_LABEL = np.iinfo(np.uint16).max  # of rows by ordinal; there are fewer clusters than micro-clusters


def label_in_two_levels(
    plan: beam.PCollection[ClusterPlan], blocks: beam.PCollection[int]
) -> beam.PCollection[ClusteringFields]:
    """Adds the steps to a pipeline; the output comes when the labels of all blocks are stored."""
    planned = beam.pvalue.AsSingleton(plan)
    sampled = blocks | "Sample" >> beam.Map(store_sample, planned, SAMPLE_ROWS) | "Samples" >> _count()
    n_micro = plan | "LearnMicro" >> beam.Map(_learn_micro, beam.pvalue.AsSingleton(sampled))
    micro = beam.pvalue.AsSingleton(n_micro)
    mined = plan | "MinedBlocks" >> beam.FlatMap(_mined_blocks) | "SpreadMined" >> beam.Reshuffle()
    labeled = mined | "LabelMicro" >> beam.Map(_label_micro, planned, micro) | "MicroLabels" >> _count()
    gathered = beam.pvalue.AsSingleton(
        plan | "GatherMicro" >> beam.Map(_gather_micro, beam.pvalue.AsSingleton(labeled))
    )
    edges = mined | "Link" >> beam.FlatMap(_link_block, planned, micro, gathered) | "AddEdges" >> AddEdges(plan=plan)
    fields = plan | "Learn" >> beam.Map(_learn, micro, gathered, beam.pvalue.AsSingleton(edges))
    numbers = (
        mined
        | "Nearest" >> beam.Map(_store_nearest, planned, gathered, beam.pvalue.AsSingleton(fields))
        | "Sizes" >> beam.CombineGlobally(MergeFn(merge_sizes))
        | "Number" >> beam.Map(_number, planned)
    )
    numbered = beam.pvalue.AsSingleton(
        plan | "GatherLabels" >> beam.Map(_gather_labels, beam.pvalue.AsSingleton(numbers))
    )
    stored = mined | "StoreLabels" >> beam.Map(_store_block, planned, numbered) | "AllStored" >> _count()
    decided = map(beam.pvalue.AsSingleton, (fields, numbers, stored))
    return plan | "Decided" >> beam.Map(_with_clusters, *decided)


def _count() -> beam.PTransform:
    return beam.combiners.Count.Globally()


def _path(plan: ClusterPlan, name: str, number: int | None = None) -> str:
    return f"{plan.work}/{name}.npz" if number is None else f"{plan.work}/{name}-{number:06d}.npz"


def _mined_blocks(plan: ClusterPlan) -> Iterator[MinedBlock]:
    return find_mined_parts(plan.neighbors, plan.corpus).by_block(plan.corpus) if plan.corpus.rows else iter(())


def _store_rows(plan: ClusterPlan, name: str, **columns: np.ndarray) -> str:
    """Stores columns (rows of the corpus,) by ordinal; returns a digest of their content, for `_read_rows`."""
    store_arrays(_path(plan, name), columns)
    digest = hashlib.sha256()
    for column in columns.values():
        digest.update(column.tobytes())
    return digest.hexdigest()


def _read_rows(plan: ClusterPlan, name: str, digest: str) -> dict[str, np.ndarray]:
    """The columns that `_store_rows` stored; read once by a process, and not once for each block."""
    return _cached_arrays(_path(plan, name), digest)


@process_cache(max_entries=2)
def _cached_arrays(path: str, digest: str) -> dict[str, np.ndarray]:
    return need_arrays(path)


def _learn_micro(plan: ClusterPlan, n_sampled: int) -> int:
    centers = learn_micro_centers(read_sample(plan).vectors)
    store_arrays(_path(plan, "micro_centers"), {"centers": centers})
    return len(centers)


def _label_micro(mined: MinedBlock, plan: ClusterPlan, n_micro: int) -> int:
    """Stores the micro-cluster and the last neighbour of each row of a block."""
    vectors, _ = read_vectors(plan.corpus, plan.corpus.blocks[mined.number])
    graph = read_block_graph(mined, plan.corpus)
    centers = need_arrays(_path(plan, "micro_centers"))["centers"]
    labels = nearest_micro(vectors, centers) if n_micro else np.zeros(len(vectors), np.uint16)
    store_arrays(_path(plan, "micro", mined.number), {"labels": labels, "last_candidates": graph.last_candidates()})
    return mined.number


def _gather_micro(plan: ClusterPlan, n_labeled: int) -> str:
    """Stores the micro-clusters and last neighbours of all rows by ordinal; returns a digest of them."""
    labels, last = np.empty(plan.corpus.rows, np.uint16), np.empty(plan.corpus.rows, np.uint64)
    for block in plan.corpus.blocks:
        ordinals, stored = ordinals_of_block(plan.corpus, block), need_arrays(_path(plan, "micro", block.number))
        labels[ordinals], last[ordinals] = stored["labels"], stored["last_candidates"]
    return _store_rows(plan, "micro_of_rows", labels=labels, last_candidates=last)


def _link_block(mined: MinedBlock, plan: ClusterPlan, n_micro: int, gathered: str) -> Iterator[tuple[int, Edges]]:
    """Stores the links of a block's sampled rows; yields the edges that it adds to the graph of micro-clusters."""
    if not n_micro:
        return
    rows = _read_rows(plan, "micro_of_rows", gathered)
    graph = read_block_graph(mined, plan.corpus)
    chosen = is_sampled(graph.ordinals, plan.corpus.rows, SAMPLE_ROWS)
    links = {
        "ordinals": graph.ordinals[chosen],
        "weights": graph.weights()[chosen],
        "micro_neighbors": rows["labels"][graph.neighbors[chosen]],
    }
    store_arrays(_path(plan, "links", mined.number), links)
    edges = micro_edges(graph, rows["labels"], rows["last_candidates"], n_micro)
    keys = edges.row.astype(np.int64) * n_micro + edges.col
    for start in range(0, len(keys), MAX_ELEMENT_EDGES):
        piece = slice(start, start + MAX_ELEMENT_EDGES)
        yield n_micro, (keys[piece], edges.data[piece])


def _learn(plan: ClusterPlan, n_micro: int, gathered: str, buckets: list[int]) -> ClusteringFields:
    """Learns the clusters on one worker and stores their centres."""
    settings = plan.settings
    if not n_micro:  # no row has a direction
        return ClusteringFields(clusters=0, resolution=settings.resolution, levels=2)
    sample = _read_linked_sample(plan, gathered)
    resolution = settings.resolution
    if resolution is None:
        resolution = resolution_of_sample(sample, plan.corpus.rows, sample.weights.shape[1], settings.seed)
    graph = read_micro_graph(plan, buckets, n_micro)
    micro_centers = need_arrays(_path(plan, "micro_centers"))["centers"]
    learned = learn_clusters(sample, graph, micro_centers, resolution, settings.seed)
    means = {f"mean{step}": mean for step, mean in enumerate(learned.means)}
    store_arrays(_path(plan, "smooth_centers"), {"centers": learned.centers, **means})
    return ClusteringFields(clusters=len(learned.centers), resolution=resolution, levels=2)


def _read_linked_sample(plan: ClusterPlan, gathered: str) -> LinkedSample:
    sample = read_sample(plan)
    links = [need_arrays(_path(plan, "links", block.number)) for block in plan.corpus.blocks]
    joined = {name: np.concatenate([each[name] for each in links]) for name in links[0]}
    order = np.argsort(joined["ordinals"])
    labels = _read_rows(plan, "micro_of_rows", gathered)["labels"]
    return LinkedSample(
        sample.ordinals,
        sample.vectors,
        labels[sample.ordinals],
        joined["weights"][order],
        joined["micro_neighbors"][order],
    )


def _store_nearest(mined: MinedBlock, plan: ClusterPlan, gathered: str, fields: ClusteringFields) -> ClusterSizes:
    """Stores the cluster of each row of a block; a row without a direction, or without a neighbour, is noise."""
    vectors, has_direction = read_vectors(plan.corpus, plan.corpus.blocks[mined.number])
    graph = read_block_graph(mined, plan.corpus)
    weights = graph.weights()
    is_linked = has_direction & weights.any(axis=1)
    if not fields.clusters:  # no row has a direction
        store_arrays(_path(plan, "nearest", mined.number), {"nearest": np.full(len(vectors), NOISE)})
        return ClusterSizes.of(np.empty(0, np.int64), np.empty(0, np.int64), 0)
    stored = need_arrays(_path(plan, "smooth_centers"))
    means = [stored[f"mean{step}"] for step in range(len(stored) - 1)]
    micro_neighbors = _read_rows(plan, "micro_of_rows", gathered)["labels"][graph.neighbors]
    smooth = smooth_rows(vectors, weights, micro_neighbors, means)
    nearest = np.where(is_linked, nearest_micro(smooth, stored["centers"]).astype(np.int64), NOISE)
    store_arrays(_path(plan, "nearest", mined.number), {"nearest": nearest})
    return ClusterSizes.of(nearest[is_linked], graph.ordinals[is_linked], len(stored["centers"]))


def _number(found: ClusterSizes | None, plan: ClusterPlan) -> np.ndarray:
    return number_clusters(found, plan.settings.min_size)


def _gather_labels(plan: ClusterPlan, numbers: np.ndarray) -> str:
    """Stores the numbered cluster of all rows by ordinal; returns a digest of them."""
    labels = np.empty(plan.corpus.rows, np.uint16)
    by_nearest = np.append(np.where(numbers == NOISE, _NOISE_LABEL, numbers), _NOISE_LABEL).astype(np.uint16)
    for block in plan.corpus.blocks:
        nearest = need_arrays(_path(plan, "nearest", block.number))["nearest"]
        labels[ordinals_of_block(plan.corpus, block)] = by_nearest[nearest]  # -1 reads the last entry
    return _store_rows(plan, "labels_of_rows", labels=labels)


def _store_block(mined: MinedBlock, plan: ClusterPlan, gathered: str) -> int:
    """Stores the labels and strengths of a block."""
    graph = read_block_graph(mined, plan.corpus)
    labels = _read_rows(plan, "labels_of_rows", gathered)["labels"]
    own = labels[graph.ordinals]
    strengths = share_in_cluster(graph.weights(), labels[graph.neighbors] == own[:, None])
    is_noise = own == _NOISE_LABEL
    numbered = np.where(is_noise, NOISE, own.astype(np.int64))
    store_labels(plan, mined.number, Clustering(numbered, np.where(is_noise, 0, strengths).astype(np.float32)))
    return mined.number


def _with_clusters(plan: ClusterPlan, fields: ClusteringFields, numbers: np.ndarray, n_stored: int) -> ClusteringFields:
    return dataclasses.replace(fields, clusters=int(numbers.max(initial=NOISE)) + 1)
