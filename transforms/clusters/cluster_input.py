"""The input of a clustering algorithm, loaded from what earlier jobs have written."""

import dataclasses

import numpy as np

from sbert_core.clusters.graph import NeighborGraph
from transforms.clusters.block_neighbors import GRAPH_COLUMNS, find_mined_parts
from transforms.dataset.corpus import Corpus, read_vectors
from transforms.dataset.ordinals import ordinals_of_block
from transforms.dataset.published import read_part


@dataclasses.dataclass(frozen=True)
class StoredInput:
    """A corpus with ordinals, and the folder of the neighbours that were mined from it; a `ClusteringInput`."""

    corpus: Corpus
    neighbors: str

    @property
    def name(self) -> str:
        """The name of the corpus in error messages."""
        return self.corpus.name

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.corpus.rows

    def load_graph(self) -> NeighborGraph:
        """The neighbours of all rows; neighbours of another corpus are an error."""
        mined = find_mined_parts(self.neighbors, self.corpus)
        k = min(mined.top_k, max(self.rows - 1, 1))
        indices, scores = np.full((self.rows, k), -1, np.int64), np.full((self.rows, k), np.nan, np.float32)
        for part in mined.parts:
            table = read_part(mined.folder, part, GRAPH_COLUMNS)
            rows, others, places, values = (table[name].to_numpy() for name in GRAPH_COLUMNS)
            indices[rows, places - 1] = others
            scores[rows, places - 1] = values
        return NeighborGraph(indices, scores)

    def load_vectors(self) -> np.ndarray:
        """The unit vectors (n, dim) of all rows, with no second copy in memory."""
        vectors = np.empty((self.rows, self.corpus.dim), np.float32)
        for block in self.corpus.blocks:
            vectors[ordinals_of_block(self.corpus, block)] = read_vectors(self.corpus, block)[0]
        return vectors
