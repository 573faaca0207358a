"""What every clustering algorithm has: the input it needs, the settings it uses, its limits, and its result.

Imports no library, so that the command line can read the registry of algorithms for `--help`.
"""

import abc
import dataclasses
from typing import TYPE_CHECKING, ClassVar, Protocol

from sbert_core.errors import DataError

if TYPE_CHECKING:
    import numpy as np

    from sbert_core.clusters.graph import NeighborGraph


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusteringSettings:
    """The settings of all algorithms; each algorithm ignores those that it does not list in `uses`.

    The names and their order are part of the names of the parts that the cluster job writes.
    """

    algorithm: str = "leiden"
    resolution: float | None = None  # None: chosen from the data
    min_score: float = 0.75
    min_size: int = 5  # smaller clusters become noise
    min_samples: int = 5
    reduction: str = "pca"  # or "umap"
    k: int | None = None  # None: chosen from the data
    seed: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusteringFields:
    """Fields of the manifest that a clustering decides; None if they do not apply."""

    clusters: int | None = None
    k: int | None = None
    resolution: float | None = None
    neighbors: int | None = None  # per row, in the graph that was used
    tree_change: float | None = None  # see density.tree_change
    tree_exact: bool | None = None
    levels: int | None = None  # of leiden: 2 if the corpus is too large for one worker
    existing: bool | None = None  # rows were assigned to clusters of an earlier run


@dataclasses.dataclass(frozen=True, eq=False)
class Clustering:
    """The cluster of every row, in the order of ordinals."""

    labels: "np.ndarray"  # (n,) int64, numbered by size, noise is -1
    strengths: "np.ndarray | None" = None  # (n,) float32, 0 to 1; None: computed from the cluster centres
    outlier_scores: "np.ndarray | None" = None  # (n,), 0 to 1
    manifest_fields: ClusteringFields = ClusteringFields()

    def take(self, ordinals: "np.ndarray") -> "Clustering":
        """The labels of the rows with these ordinals, without the manifest fields."""
        columns = (self.labels, self.strengths, self.outlier_scores)
        return Clustering(*(None if column is None else column[ordinals] for column in columns))  # type: ignore[arg-type]


class ClusteringInput(Protocol):
    """A corpus, of which an algorithm loads what it needs. Rows are in the order of ordinals."""

    @property
    def name(self) -> str:
        """The name of the corpus in error messages."""

    @property
    def rows(self) -> int:
        """The number of rows."""

    def load_graph(self) -> "NeighborGraph":
        """The neighbours of all rows, as mining stored them."""

    def load_vectors(self) -> "np.ndarray":
        """The unit vectors (n, dim) of all rows."""


class ClusteringAlgorithm:
    """One way to cluster a corpus. Base class; `sbert_core.clusters.algorithms` has the registry."""

    needs_graph: ClassVar[bool] = False  # reads the neighbours that the mine job wrote
    uses: ClassVar[tuple[str, ...]] = ("min_size",)  # names of ClusteringSettings
    max_rows: ClassVar[int | None] = None  # None: no limit
    use_instead: ClassVar[str] = ""  # advice for a corpus with more rows
    is_density_based: ClassVar[bool] = False  # DBCV measures its quality

    @classmethod
    def check_rows(cls, name: str, rows: int) -> None:
        """Raises a DataError if the corpus with this name has too many rows for the algorithm."""
        if cls.max_rows is not None and rows > cls.max_rows:
            raise DataError(
                f"this algorithm takes at most {cls.max_rows:,} rows, {name} has {rows:,}: {cls.use_instead}"
            )


class InMemoryAlgorithm(ClusteringAlgorithm, abc.ABC):
    """An algorithm that one worker runs on all rows."""

    @abc.abstractmethod
    def cluster(self, corpus: ClusteringInput, settings: ClusteringSettings) -> Clustering:
        """Clusters a corpus of at least one row; the result does not depend on how it is stored."""


class CentroidAlgorithm(ClusteringAlgorithm, abc.ABC):
    """An algorithm that moves centres in rounds, each distributed over the blocks of a corpus.

    In a round every row goes to its nearest centre, and every centre moves to the direction of the sum of its rows.
    """

    rounds: ClassVar[int] = 8

    @abc.abstractmethod
    def start_centers(self, sample: "np.ndarray", settings: ClusteringSettings) -> "np.ndarray":
        """The first centres (k, dim), from the unit vectors (n, dim) of a sample in the order of ordinals."""
