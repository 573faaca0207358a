"""The options of the cluster job; fast to import, for `--help`."""

import dataclasses
import re
from importlib.util import find_spec

from pipelines.flags import WORKERS, JobOptions, flag
from sbert_core.clusters.algorithms import ALGORITHMS, algorithms_using
from sbert_core.errors import DataError

MAX_RESOLUTION = 1_000_000
EXAMPLE = "sbert-beam cluster --input out --output out"


def _describe_algorithms() -> str:
    on_graph = [name for name, algorithm in ALGORITHMS.items() if algorithm.needs_graph]
    on_vectors = [name for name in ALGORITHMS if name not in on_graph]
    return f"{', '.join(on_graph)} (on the neighbour graph), {', '.join(on_vectors)} (on vectors)"


def _used_by(setting: str) -> str:
    return ", ".join(algorithms_using(setting))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterOptions(JobOptions):
    """The options of the cluster job."""

    input: str = flag("the folder that holds embeddings/ and neighbors/")
    output: str = flag("folder for the result: clusters/ goes below it")
    algorithm: str = flag(_describe_algorithms(), "leiden", one_of=tuple(ALGORITHMS))
    resolution: float = flag(
        f"{_used_by('resolution')}: a higher one gives more clusters (0: chosen automatically)",
        0.0,
        between=(0, MAX_RESOLUTION),
    )
    k: str = flag(f"{_used_by('k')}: number of clusters, or auto", "auto")
    min_size: int = flag("minimum size of a cluster; smaller ones are noise", 5, at_least=1)
    min_samples: int = flag(f"{_used_by('min_samples')}: neighbours of a row in a dense region", 5, at_least=1)
    reduction: str = flag(f"{_used_by('reduction')}: pca, or umap (with the extra umap)", "pca", one_of=("pca", "umap"))
    min_score: float = flag(
        f"{_used_by('min_score')}: minimum cosine of connected rows", 0.75, between=(-1, 1), kind="a cosine"
    )
    clusters: str | None = flag("assign rows to the clusters in this folder instead of clustering", None)
    labels_column: str | None = flag("a column of true labels to score the clusters against", None)
    time_column: str | None = flag("a column of times: also writes the terms of each cluster over time", None)
    period: str = flag("period of the terms over time: D, W, M, Q or Y", "M", one_of=("D", "W", "M", "Q", "Y"))
    block_rows: int = flag("rows read at once", 8192, at_least=1)
    workers: int = flag(WORKERS, 1, at_least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k != "auto" and not (re.fullmatch(r"[0-9]{1,9}", self.k) and int(self.k) > 0):
            raise DataError(f"--k is a number of clusters or auto, got {self.k!r}")
        uses_umap = self.reduction == "umap" and "reduction" in ALGORITHMS[self.algorithm].uses
        if uses_umap and find_spec("umap") is None:
            raise DataError("--reduction umap needs the package umap-learn: pip install 'sbert-beam[umap]'")

    @property
    def folder(self) -> str:
        """Where the result goes."""
        return f"{self.output.rstrip('/')}/clusters"

    @property
    def results(self) -> tuple[str, ...]:
        """The names of the datasets."""
        return ("assignments", "summary", "over_time") if self.time_column else ("assignments", "summary")
