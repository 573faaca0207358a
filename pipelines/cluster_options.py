"""What the cluster job can be told; light to import, so that `--help` answers at once."""

import dataclasses
import re
from importlib.util import find_spec

from pipelines.flags import WORKERS, JobOptions, flag
from sbert_core.errors import DataError

# Those of transforms.clusters.labels, which takes seconds to import.
ALGORITHMS = ("leiden", "hdbscan", "communities", "components", "hdbscan_reduced", "kmeans", "agglomerative")
MAX_RESOLUTION = 1_000_000
EXAMPLE = "sbert-beam cluster --input out --output out"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterOptions(JobOptions):
    """What the cluster job can be told."""

    input: str = flag("the folder that holds embeddings/ and neighbors/")
    output: str = flag("folder for the result: clusters/ goes below it")
    algorithm: str = flag(
        "leiden, hdbscan, communities, components (of the neighbour graph), hdbscan_reduced, kmeans or agglomerative",
        "leiden",
        one_of=ALGORITHMS,
    )
    resolution: float = flag(
        "leiden: more is more clusters (0: chosen without labels)", 0.0, between=(0, MAX_RESOLUTION)
    )
    k: str = flag("kmeans, agglomerative: how many clusters, or auto", "auto")
    min_size: int = flag("smaller clusters are noise", 5, at_least=1)
    min_samples: int = flag("hdbscan: neighbours that make a place dense", 5, at_least=1)
    reduction: str = flag("hdbscan_reduced: pca, or umap (with the extra umap)", "pca", one_of=("pca", "umap"))
    min_score: float = flag(
        "communities, components: least cosine of rows that belong together", 0.75, between=(-1, 1), kind="a cosine"
    )
    clusters: str | None = flag("assign rows to the clusters in this folder instead of clustering", None)
    labels_column: str | None = flag("a column of true labels to measure against", None)
    time_column: str | None = flag("a column of times: also tell terms over time", None)
    period: str = flag("how finely: D, W, M, Q or Y", "M", one_of=("D", "W", "M", "Q", "Y"))
    block_rows: int = flag("rows read at once", 8192, at_least=1)
    workers: int = flag(WORKERS, 1, at_least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k != "auto" and not (re.fullmatch(r"[0-9]{1,9}", self.k) and int(self.k) > 0):
            raise DataError(f"--k is a number of clusters or auto, got {self.k!r}")
        if (self.algorithm, self.reduction) == ("hdbscan_reduced", "umap") and find_spec("umap") is None:
            raise DataError("--reduction umap needs the package umap-learn: pip install 'sbert-beam[umap]'")

    @property
    def folder(self) -> str:
        """Where the result goes."""
        return f"{self.output.rstrip('/')}/clusters"

    @property
    def results(self) -> tuple[str, ...]:
        """Which datasets there will be."""
        return ("assignments", "summary", "over_time") if self.time_column else ("assignments", "summary")
