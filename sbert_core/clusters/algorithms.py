"""All clustering algorithms by name. To add one, write a class and add a line to `ALGORITHMS`.

Libraries and the modules that import them are imported when an algorithm runs: the command line reads the registry.
"""

from typing import TYPE_CHECKING

from sbert_core.clusters.algorithm import (
    CentroidAlgorithm,
    Clustering,
    ClusteringAlgorithm,
    ClusteringFields,
    ClusteringInput,
    ClusteringSettings,
    InMemoryAlgorithm,
)
from sbert_core.errors import DataError

if TYPE_CHECKING:
    import numpy as np

MAX_COMPARED_ROWS = 200_000


class Leiden(InMemoryAlgorithm):
    """Leiden communities of the neighbour graph, refined by vectors."""

    needs_graph = True
    uses = ("resolution", "min_size")

    def cluster(self, corpus: ClusteringInput, settings: ClusteringSettings) -> Clustering:
        """Clusters of at least `min_size` rows; the resolution is chosen if it is not given."""
        from sbert_core.clusters.graph_clustering import cluster_graph
        from sbert_core.clusters.membership import strength_in_graph
        from sbert_core.numbering import number_labels

        graph = corpus.load_graph()
        resolution, labels = cluster_graph(graph, corpus.load_vectors(), settings.resolution, settings.seed)
        labels = number_labels(labels, settings.min_size)
        fields = ClusteringFields(resolution=resolution, levels=1)
        return Clustering(labels, strength_in_graph(graph, labels), manifest_fields=fields)


class Hdbscan(InMemoryAlgorithm):
    """HDBSCAN along the neighbour graph.

    Finds more neighbours than were mined while they would change the spanning tree, if the corpus has at most
    `max_compared_rows` rows. The manifest fields show whether the tree is exact.
    """

    needs_graph = True
    uses = ("min_size", "min_samples")
    is_density_based = True
    max_compared_rows = MAX_COMPARED_ROWS

    def cluster(self, corpus: ClusteringInput, settings: ClusteringSettings) -> Clustering:
        """Dense regions of at least `min_size` rows; the other rows are noise."""
        from sbert_core.clusters.density import cluster_dense_graph, has_exact_tree, tree_change
        from sbert_core.clusters.graph import add_neighbors

        graph, min_samples = corpus.load_graph(), settings.min_samples
        fields = ClusteringFields()
        if len(graph) > min_samples:
            graph = add_neighbors(
                graph, corpus.load_vectors, lambda graph: has_exact_tree(graph, min_samples), self.max_compared_rows
            )
            change, is_exact = tree_change(graph, min_samples), has_exact_tree(graph, min_samples)
            fields = ClusteringFields(neighbors=graph.k, tree_change=change, tree_exact=is_exact)
        found = cluster_dense_graph(graph, settings.min_size, min_samples)
        return Clustering(found.labels, found.strengths.astype("float32"), found.outlier_scores, fields)


class Communities(InMemoryAlgorithm):
    """The community detection of sentence-transformers.

    Finds more neighbours than were mined until each row has all that are near enough, if the corpus has at most
    `max_compared_rows` rows.
    """

    needs_graph = True
    uses = ("min_score", "min_size")
    max_compared_rows = MAX_COMPARED_ROWS

    def cluster(self, corpus: ClusteringInput, settings: ClusteringSettings) -> Clustering:
        """Rows with at least `min_size - 1` neighbours of at least `min_score`, and these neighbours."""
        from sbert_core.clusters.communities import find_communities
        from sbert_core.clusters.graph import add_neighbors
        from sbert_core.clusters.membership import strength_in_graph

        graph = add_neighbors(
            corpus.load_graph(),
            corpus.load_vectors,
            lambda graph: not graph.saturated(settings.min_score),
            self.max_compared_rows,
        )
        labels = find_communities(graph, settings.min_score, settings.min_size)
        fields = ClusteringFields(neighbors=graph.k)
        return Clustering(labels, strength_in_graph(graph, labels), manifest_fields=fields)


class Components(InMemoryAlgorithm):
    """Connected components of the neighbour graph."""

    needs_graph = True
    uses = ("min_score", "min_size")

    def cluster(self, corpus: ClusteringInput, settings: ClusteringSettings) -> Clustering:
        """Rows that are connected by cosines of at least `min_score`."""
        from sbert_core.clusters.communities import find_components
        from sbert_core.clusters.membership import strength_in_graph

        graph = corpus.load_graph()
        labels = find_components(graph, settings.min_score, settings.min_size)
        return Clustering(labels, strength_in_graph(graph, labels))


class KMeans(CentroidAlgorithm):
    """Spherical k-means; the only algorithm that no single worker needs all rows for."""

    uses = ("k", "min_size")

    def start_centers(self, sample: "np.ndarray", settings: ClusteringSettings) -> "np.ndarray":
        """The centres of k-means on the sample; the number of clusters is chosen if it is not given."""
        from sbert_core.clusters.kmeans import choose_k, learn_centers

        k = settings.k or choose_k(_shuffled(sample, settings.seed))
        return learn_centers(sample, k, settings.seed)


class ReducedHdbscan(InMemoryAlgorithm):
    """HDBSCAN of all pairs of rows, in vectors of few dimensions."""

    uses = ("min_size", "min_samples", "reduction")
    max_rows = 200_000
    use_instead = "use hdbscan, which works on the neighbour graph"
    is_density_based = True

    def cluster(self, corpus: ClusteringInput, settings: ClusteringSettings) -> Clustering:
        """Dense regions of at least `min_size` rows; the other rows are noise."""
        from sbert_core.clusters.density import cluster_dense_vectors, reduce_vectors

        self.check_rows(corpus.name, corpus.rows)
        reduced = reduce_vectors(corpus.load_vectors(), method=settings.reduction, seed=settings.seed)
        found = cluster_dense_vectors(reduced, settings.min_size, settings.min_samples)
        return Clustering(found.labels, found.strengths.astype("float32"), found.outlier_scores)


class Agglomerative(InMemoryAlgorithm):
    """Agglomerative clustering by average cosine."""

    uses = ("k", "min_size")
    max_rows = 20_000  # it needs all distances at once
    use_instead = "use leiden or kmeans"

    def cluster(self, corpus: ClusteringInput, settings: ClusteringSettings) -> Clustering:
        """`k` clusters; the number is chosen if it is not given."""
        import numpy as np
        from sklearn.cluster import AgglomerativeClustering

        from sbert_core.clusters.kmeans import choose_k
        from sbert_core.numbering import number_labels

        self.check_rows(corpus.name, corpus.rows)
        if corpus.rows < 2:
            return Clustering(np.zeros(corpus.rows, np.int64))
        vectors = corpus.load_vectors()
        k = settings.k or choose_k(_shuffled(vectors, settings.seed))
        if k > corpus.rows:
            raise DataError(f"k is {k}, but there are only {corpus.rows} rows: ask for fewer clusters")
        labels = AgglomerativeClustering(k, metric="cosine", linkage="average").fit_predict(vectors)
        return Clustering(number_labels(labels, settings.min_size), manifest_fields=ClusteringFields(k=k))


def _shuffled(vectors: "np.ndarray", seed: int) -> "np.ndarray":
    """The same rows in random order: `choose_k` reads only the first ones."""
    import numpy as np

    return vectors[np.random.default_rng(seed).permutation(len(vectors))]


ALGORITHMS: dict[str, type[ClusteringAlgorithm]] = {
    "leiden": Leiden,
    "hdbscan": Hdbscan,
    "communities": Communities,
    "components": Components,
    "kmeans": KMeans,
    "hdbscan_reduced": ReducedHdbscan,
    "agglomerative": Agglomerative,
}


def find_algorithm(name: str) -> ClusteringAlgorithm:
    """The algorithm with this name; an unknown name is an error."""
    if name not in ALGORITHMS:
        raise DataError(f"algorithm must be one of {', '.join(ALGORITHMS)}, got {name!r}")
    return ALGORITHMS[name]()


def algorithms_using(setting: str) -> list[str]:
    """The names of the algorithms that use a setting."""
    return [name for name, algorithm in ALGORITHMS.items() if setting in algorithm.uses]
