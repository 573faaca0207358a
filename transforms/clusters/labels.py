"""Labels for all rows of a corpus: the algorithms of sbert_core on what earlier jobs have written."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow.compute as pc

from sbert_core.clusters.communities import NOISE, drop_small, find_communities, find_components, find_groups
from sbert_core.clusters.density import find_dense, find_dense_in_graph, reduce_vectors, tree_change
from sbert_core.clusters.graph import NeighborGraph
from sbert_core.clusters.kmeans import choose_k, start_centers
from sbert_core.clusters.membership import strength_in_graph
from sbert_core.data.columns import comparable_ids
from sbert_core.errors import DataError
from sbert_core.neighbors.cells import sample_of
from sbert_core.neighbors.in_memory import find_neighbors
from transforms.dataset.corpus import Corpus, ranks_of_block, read_vectors, sorted_ids
from transforms.dataset.published import read_manifest, read_part
from transforms.dataset.work_files import need_arrays, store_arrays

MAX_AGGLOMERATIVE = 20_000  # rows: it needs all distances at once
MAX_REDUCED = 200_000
MAX_COMPARED = 200_000  # rows that are compared once more, all with all, if mining kept too few neighbours of each
MAX_NEIGHBORS = 256  # with these, the graph of so many rows takes about a GiB
EXACT = 1e-6  # share by which the spanning tree may still get lighter


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clustering:
    """How to cluster; what an algorithm does not use it ignores."""

    algorithm: str = "leiden"
    resolution: float | None = None  # leiden; None: chosen
    min_score: float = 0.75  # communities, components
    min_size: int = 5  # smaller clusters are noise
    min_samples: int = 5  # hdbscan
    reduction: str = "pca"  # hdbscan_reduced; or umap
    k: int | None = None  # kmeans, agglomerative; None: chosen
    seed: int = 0

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise DataError(f"algorithm must be one of {', '.join(ALGORITHMS)}, got {self.algorithm!r}")


@dataclasses.dataclass(frozen=True, eq=False)
class Labels:
    """The cluster of every row by rank, how strongly it belongs, and what was decided on the way."""

    labels: np.ndarray  # (n,) int64
    strengths: np.ndarray | None = None  # (n,) float32; None: by the centres
    outlier_scores: np.ndarray | None = None
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)

    def take(self, ranks: np.ndarray) -> "Labels":
        """The labels of these rows."""
        parts = (self.labels, self.strengths, self.outlier_scores)
        return Labels(*(None if part is None else part[ranks] for part in parts))  # type: ignore[arg-type]


def load_graph(folder: str, corpus: Corpus) -> NeighborGraph:
    """The neighbours that mining wrote, by rank; those of other rows are an error."""
    manifest = read_manifest(folder)
    if [each.digest for each in manifest.corpora or ()] != [corpus.digest]:
        raise DataError(f"{folder} was not mined from {corpus.name} as it is now: run mine again")
    ids = comparable_ids(sorted_ids(corpus.work))
    if manifest.settings.get("top_k", 0) < 1:
        raise DataError(f"{folder} does not say how many neighbours a row may have: run mine again")
    k = min(manifest.settings["top_k"], max(len(ids) - 1, 1))
    indices, scores = np.full((len(ids), k), -1, np.int64), np.full((len(ids), k), np.nan, np.float32)
    for part in manifest.parts:
        table = read_part(folder, part)
        rows, others = (
            pc.index_in(comparable_ids(table[name]), value_set=ids).to_numpy() for name in ("id", "neighbor_id")
        )
        places = table["rank"].to_numpy() - 1
        indices[rows, places] = others
        scores[rows, places] = table["score"].to_numpy()
    return NeighborGraph(indices, scores)


def load_vectors(corpus: Corpus) -> np.ndarray:
    """The unit vectors of all rows, in the order of their ranks."""
    everything = np.empty((corpus.rows, corpus.dim), np.float32)  # a row goes to its place: there is one copy of all
    for block in corpus.blocks:
        everything[ranks_of_block(corpus, block)] = read_vectors(corpus, block)[0]
    return everything


def sample_block(corpus: Corpus, number: int, wanted: int) -> tuple[np.ndarray, np.ndarray]:
    """Ranks and unit vectors of a block's share of a sample of about `wanted` rows of the corpus."""
    block = corpus.blocks[number]
    ranks, (vectors, _) = ranks_of_block(corpus, block), read_vectors(corpus, block)
    chosen = sample_of(ranks, corpus.rows, wanted)
    return ranks[chosen], vectors[chosen]


def add_neighbors(graph: NeighborGraph, corpus: Corpus, enough: Callable[[NeighborGraph], bool]) -> NeighborGraph:
    """The graph with twice the neighbours, again and again until they are enough.

    It stops at `MAX_NEIGHBORS` of them, and leaves a corpus of more than `MAX_COMPARED` rows as it was mined.
    """
    most = min(MAX_NEIGHBORS, corpus.rows - 1)
    if corpus.rows > MAX_COMPARED or graph.k >= most or enough(graph):
        return graph
    vectors = load_vectors(corpus)
    while graph.k < most and not enough(graph):
        found = find_neighbors(vectors, min(2 * graph.k, most))
        graph = NeighborGraph(found.indices, found.scores)
    return graph


def label_rows(corpus: Corpus, neighbors: str, how: Clustering) -> Labels:
    """Clusters a ranked corpus; the result does not depend on how it is cut into files. K-means is not done here."""
    if not corpus.rows:
        return Labels(np.empty(0, np.int64), np.empty(0, np.float32))
    if how.algorithm in _OF_GRAPH:
        return _OF_GRAPH[how.algorithm](load_graph(neighbors, corpus), corpus, how)
    return _OF_VECTORS[how.algorithm](corpus, how)


def _label_leiden(graph: NeighborGraph, corpus: Corpus, how: Clustering) -> Labels:
    resolution, labels = find_groups(graph, load_vectors(corpus), how.resolution, how.seed)
    labels = drop_small(labels, how.min_size)
    return Labels(labels, strength_in_graph(graph, labels), facts={"resolution": resolution})


def _label_communities(graph: NeighborGraph, corpus: Corpus, how: Clustering) -> Labels:
    graph = add_neighbors(graph, corpus, lambda graph: not graph.saturated(how.min_score))
    labels = find_communities(graph, how.min_score, how.min_size)
    return Labels(labels, strength_in_graph(graph, labels), facts={"neighbors": graph.k})


def _label_components(graph: NeighborGraph, corpus: Corpus, how: Clustering) -> Labels:
    labels = find_components(graph, how.min_score, how.min_size)
    return Labels(labels, strength_in_graph(graph, labels))


def _label_dense(graph: NeighborGraph, corpus: Corpus, how: Clustering) -> Labels:
    """HDBSCAN of the graph, with more neighbours than were mined if its tree needs them; the facts tell the outcome."""
    facts: dict[str, Any] = {}
    if len(graph) > how.min_samples:
        graph = add_neighbors(graph, corpus, lambda graph: _has_exact_tree(graph, how.min_samples))
        change = tree_change(graph, how.min_samples)
        facts |= {"neighbors": graph.k, "tree_change": change, "tree_exact": _has_exact_tree(graph, how.min_samples)}
    dense = find_dense_in_graph(graph, how.min_size, how.min_samples)
    return Labels(dense.labels, dense.strengths.astype(np.float32), dense.outlier_scores, facts)


def _has_exact_tree(graph: NeighborGraph, min_samples: int) -> bool:
    """Whether more neighbours would leave the tree as it is; half of fewer than these would not be enough to tell."""
    return graph.complete or (graph.k >= 2 * min_samples and tree_change(graph, min_samples) <= EXACT)


def _label_reduced(corpus: Corpus, how: Clustering) -> Labels:
    _refuse_above(corpus, MAX_REDUCED, "use hdbscan, which works on the neighbour graph")
    reduced = reduce_vectors(load_vectors(corpus), method=how.reduction, seed=how.seed)
    dense = find_dense(reduced, how.min_size, how.min_samples)
    return Labels(dense.labels, dense.strengths.astype(np.float32), dense.outlier_scores)


def _label_agglomerative(corpus: Corpus, how: Clustering) -> Labels:
    from sklearn.cluster import AgglomerativeClustering

    _refuse_above(corpus, MAX_AGGLOMERATIVE, "use leiden or kmeans")
    vectors = load_vectors(corpus)
    if corpus.rows < 2:
        return Labels(np.zeros(corpus.rows, np.int64))
    k = how.k or choose_k(vectors[np.random.default_rng(how.seed).permutation(len(vectors))])
    if k > corpus.rows:
        raise DataError(f"k is {k}, but there are only {corpus.rows} rows: ask for fewer clusters")
    labels = AgglomerativeClustering(k, metric="cosine", linkage="average").fit_predict(vectors)
    return Labels(drop_small(labels, how.min_size), facts={"k": k})


_OF_GRAPH: dict[str, Callable[[NeighborGraph, Corpus, Clustering], Labels]] = {
    "leiden": _label_leiden,
    "hdbscan": _label_dense,
    "communities": _label_communities,
    "components": _label_components,
}
_OF_VECTORS: dict[str, Callable[[Corpus, Clustering], Labels]] = {
    "hdbscan_reduced": _label_reduced,
    "agglomerative": _label_agglomerative,
}
KMEANS = "kmeans"  # Beam steps of its own: see ClusterCorpus
GRAPH_ALGORITHMS = tuple(_OF_GRAPH)
ALGORITHMS = (*_OF_GRAPH, KMEANS, *_OF_VECTORS)


def start_kmeans(samples: list[tuple[np.ndarray, np.ndarray]], corpus: Corpus, how: Clustering) -> np.ndarray:
    """The centres of the samples of all blocks, as many as asked for or as suit them."""
    ranks = np.concatenate([np.empty(0, np.uint32), *(ranks for ranks, _ in samples)])
    vectors = np.concatenate([np.empty((0, corpus.dim), np.float32), *(vectors for _, vectors in samples)])
    sample = vectors[np.argsort(ranks)]
    k = how.k or choose_k(sample[np.random.default_rng(how.seed).permutation(len(sample))])
    return start_centers(sample, k, how.seed)


def number_clusters(sizes: np.ndarray, first: np.ndarray, min_size: int) -> np.ndarray:
    """The numbers (k,) of clusters: the largest is 0, of equal ones that of the first row; small ones are noise."""
    order = np.lexsort((first, -sizes))
    order = order[sizes[order] >= max(min_size, 1)]
    numbers = np.full(len(sizes), NOISE, np.int64)
    numbers[order] = np.arange(len(order))
    return numbers


def _refuse_above(corpus: Corpus, rows: int, advice: str) -> None:
    if corpus.rows > rows:
        raise DataError(f"this algorithm takes at most {rows:,} rows, {corpus.name} has {corpus.rows:,}: {advice}")


def store_labels(path: str, labels: Labels) -> None:
    """Leaves the labels of a block for other workers."""
    arrays = {
        name: getattr(labels, name)
        for name in ("labels", "strengths", "outlier_scores")
        if getattr(labels, name) is not None
    }
    store_arrays(path, arrays)


def read_labels(path: str) -> Labels:
    """Reads them back."""
    arrays: dict[str, Any] = need_arrays(path)
    return Labels(**arrays)
