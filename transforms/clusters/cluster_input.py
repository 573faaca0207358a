"""The input of a clustering algorithm, loaded from what earlier jobs have written."""

import dataclasses

import numpy as np
import pyarrow.compute as pc

from sbert_core.clusters.graph import NeighborGraph
from sbert_core.data.columns import comparable_ids
from sbert_core.errors import DataError
from transforms.dataset.corpus import Corpus, ordinals_of_block, read_vectors, sorted_ids
from transforms.dataset.published import read_manifest, read_part


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
        folder, corpus = self.neighbors, self.corpus
        manifest = read_manifest(folder)
        if [each.digest for each in manifest.corpora or ()] != [corpus.digest]:
            raise DataError(f"{folder} was not mined from {corpus.name} as it is now: run mine again")
        top_k = manifest.settings.get("top_k", 0)
        if top_k < 1:
            raise DataError(f"{folder} does not state the maximum number of neighbours of a row: run mine again")
        ids = comparable_ids(sorted_ids(corpus.work))
        k = min(top_k, max(len(ids) - 1, 1))
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

    def load_vectors(self) -> np.ndarray:
        """The unit vectors (n, dim) of all rows, with no second copy in memory."""
        vectors = np.empty((self.rows, self.corpus.dim), np.float32)
        for block in self.corpus.blocks:
            vectors[ordinals_of_block(self.corpus, block)] = read_vectors(self.corpus, block)[0]
        return vectors
