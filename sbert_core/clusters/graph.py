"""The neighbour graph of a corpus: each row and its nearest rows, as mining found them."""

import dataclasses

import numpy as np
from scipy import sparse

from sbert_core.errors import DataError


@dataclasses.dataclass(frozen=True, eq=False)
class NeighborGraph:
    """The nearest rows of each row, best first: indices (n, k) with -1 where there is none, and their cosines."""

    indices: np.ndarray  # int64
    scores: np.ndarray  # float32

    def __post_init__(self) -> None:
        if self.indices.shape != self.scores.shape or self.indices.ndim != 2:
            raise DataError(f"indices {self.indices.shape} and scores {self.scores.shape} must be alike and (n, k)")

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def k(self) -> int:
        """Places for neighbours of each row."""
        return self.indices.shape[1]

    @property
    def complete(self) -> bool:
        """Whether each row has a place for every other."""
        return self.k >= len(self) - 1

    def nearest(self, k: int) -> "NeighborGraph":
        """The same graph with fewer neighbours."""
        return NeighborGraph(self.indices[:, :k], self.scores[:, :k])

    def edges(self, min_score: float = -np.inf) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Each pair of neighbours once, sorted: the lower row, the higher row, and their cosine."""
        rows, places = np.nonzero((self.indices >= 0) & (self.scores >= min_score))
        others, scores = self.indices[rows, places], self.scores[rows, places]
        low, high = np.minimum(rows, others), np.maximum(rows, others)
        _, first = np.unique(low * len(self) + high, return_index=True)
        return low[first], high[first], scores[first]

    def saturated(self, min_score: float) -> int:
        """How many rows have as many neighbours of at least this score as there are places: they may have more."""
        return 0 if self.complete or not self.k else int((self.scores[:, -1] >= min_score).sum())

    def adjacency(self, min_score: float = 0.0) -> sparse.csr_array:
        """A symmetric matrix (n, n) of cosines above `min_score`."""
        low, high, scores = self.edges()
        kept = scores > min_score
        low, high, scores = low[kept], high[kept], scores[kept].astype(np.float64)
        both = (np.concatenate([scores, scores]), (np.concatenate([low, high]), np.concatenate([high, low])))
        return sparse.csr_array(sparse.coo_array(both, shape=(len(self), len(self))))
