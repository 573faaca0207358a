"""Input of clustering algorithms without files."""

import dataclasses

import numpy as np

from sbert_core.clusters.graph import NeighborGraph, find_graph


@dataclasses.dataclass(frozen=True, eq=False)
class InMemoryInput:
    """Unit vectors (n, dim), of which each row has k mined neighbours."""

    vectors: np.ndarray
    k: int = 32
    name: str = "the corpus"

    @property
    def rows(self) -> int:
        return len(self.vectors)

    def load_graph(self) -> NeighborGraph:
        return find_graph(self.vectors, min(self.k, max(self.rows - 1, 1)))

    def load_vectors(self) -> np.ndarray:
        return self.vectors
