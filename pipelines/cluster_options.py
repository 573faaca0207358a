"""What the cluster job can be told; light to import, so that `--help` answers at once."""

import dataclasses

from pipelines.flags import WORKERS, flag
from sbert_core.errors import DataError

EXAMPLE = "sbert-beam cluster --input out --output out"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """What the cluster job can be told."""

    input: str = flag("the folder that holds embeddings/ and neighbors/")
    output: str = flag("folder for the result: clusters/ goes below it")
    algorithm: str = flag(
        "leiden, hdbscan, communities, components (of the neighbour graph), hdbscan_reduced, kmeans or agglomerative",
        "leiden",
    )
    resolution: float = flag("leiden: more is more clusters (0: chosen without labels)", 0.0)
    k: str = flag("kmeans, agglomerative: how many clusters, or auto", "auto")
    min_size: int = flag("smaller clusters are noise", 5)
    min_samples: int = flag("hdbscan: neighbours that make a place dense", 5)
    reduction: str = flag("hdbscan_reduced: pca, or umap (with the extra umap)", "pca")
    min_score: float = flag("communities, components: least cosine of rows that belong together", 0.75)
    clusters: str | None = flag("assign rows to the clusters in this folder instead of clustering", None)
    labels_column: str | None = flag("a column of true labels to measure against", None)
    time_column: str | None = flag("a column of times: also tell terms over time", None)
    period: str = flag("how finely: D, W, M, Q or Y", "M")
    block_rows: int = flag("rows read at once", 8192)
    workers: int = flag(WORKERS, 1)

    def __post_init__(self) -> None:
        for name in ("block_rows", "workers", "min_size", "min_samples"):
            if getattr(self, name) < 1:
                raise DataError(f"--{name} must be at least 1, got {getattr(self, name)}")
        if self.k != "auto" and not (self.k.isdecimal() and int(self.k) > 0):
            raise DataError(f"--k is a number of clusters or auto, got {self.k!r}")
        if self.reduction not in ("pca", "umap"):
            raise DataError(f"--reduction is pca or umap, got {self.reduction!r}")
        if self.period not in ("D", "W", "M", "Q", "Y"):
            raise DataError(f"--period is one of D, W, M, Q, Y, got {self.period!r}")

    @property
    def folder(self) -> str:
        """Where the result goes."""
        return f"{self.output.rstrip('/')}/clusters"

    @property
    def results(self) -> tuple[str, ...]:
        """Which datasets there will be."""
        return ("assignments", "summary", "over_time") if self.time_column else ("assignments", "summary")
