"""The neighbour graph of a corpus: each row and its nearest rows, as mining found them."""

import dataclasses
from collections.abc import Callable

import numpy as np
from scipy import sparse

from sbert_core.errors import DataError
from sbert_core.neighbors.in_memory import find_neighbors

MAX_NEIGHBORS = 256  # per row: the graph of 200,000 rows then takes about a GiB


@dataclasses.dataclass(frozen=True, eq=False)
class NeighborGraph:
    """The nearest rows of each row, best first: indices (n, k), -1 where there is none, and their cosines (n, k)."""

    indices: np.ndarray  # int64
    scores: np.ndarray  # float32

    def __post_init__(self) -> None:
        if self.indices.shape != self.scores.shape or self.indices.ndim != 2:
            raise DataError(f"indices {self.indices.shape} and scores {self.scores.shape} must both be (n, k)")

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def k(self) -> int:
        """The maximum number of neighbours of a row."""
        return self.indices.shape[1]

    @property
    def complete(self) -> bool:
        """Whether k is large enough for all other rows."""
        return self.k >= len(self) - 1

    def nearest(self, k: int) -> "NeighborGraph":
        """The same graph with fewer neighbours per row."""
        return NeighborGraph(self.indices[:, :k], self.scores[:, :k])

    def edges(self, min_score: float = -np.inf) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Each pair of neighbours once, sorted: the lower row, the higher row, and their cosine, (edges,) each."""
        rows, places = np.nonzero((self.indices >= 0) & (self.scores >= min_score))
        others, scores = self.indices[rows, places], self.scores[rows, places]
        low, high = np.minimum(rows, others), np.maximum(rows, others)
        _, first = np.unique(low * len(self) + high, return_index=True)
        return low[first], high[first], scores[first]

    def saturated(self, min_score: float) -> int:
        """The number of rows whose k neighbours all have at least this score: they may have more such neighbours."""
        return 0 if self.complete or not self.k else int((self.scores[:, -1] >= min_score).sum())

    def adjacency(self, min_score: float = 0.0) -> sparse.csr_array:
        """A symmetric matrix (n, n) of the cosines above `min_score`."""
        low, high, scores = self.edges()
        kept = scores > min_score
        low, high, scores = low[kept], high[kept], scores[kept].astype(np.float64)
        both = (np.concatenate([scores, scores]), (np.concatenate([low, high]), np.concatenate([high, low])))
        return sparse.csr_array(sparse.coo_array(both, shape=(len(self), len(self))))


def find_graph(vectors: np.ndarray, k: int) -> NeighborGraph:
    """The graph of the k nearest rows of each of some unit vectors (n, dim), exactly."""
    found = find_neighbors(vectors, k)
    return NeighborGraph(found.indices, found.scores)


def add_neighbors(
    graph: NeighborGraph,
    load_vectors: Callable[[], np.ndarray],
    has_enough: Callable[[NeighborGraph], bool],
    max_rows: int,
) -> NeighborGraph:
    """Doubles the neighbours of each row until the graph has enough.

    Stops at `MAX_NEIGHBORS` per row. A graph of more than `max_rows` rows is returned as it is: all rows are compared
    with all others each time. `load_vectors` returns the unit vectors (n, dim) of the rows.
    """
    max_k = min(MAX_NEIGHBORS, len(graph) - 1)
    if len(graph) > max_rows or graph.k >= max_k or has_enough(graph):
        return graph
    vectors = load_vectors()
    while graph.k < max_k and not has_enough(graph):
        graph = find_graph(vectors, min(2 * graph.k, max_k))
    return graph
