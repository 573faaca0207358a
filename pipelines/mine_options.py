"""What the mine job can be told; light to import, so that `--help` answers at once."""

import dataclasses
import math

from pipelines.flags import WORKERS, flag
from sbert_core.errors import DataError

EXAMPLE = "sbert-beam mine --input out/embeddings --output out --min_score 0.8"


@dataclasses.dataclass(frozen=True, kw_only=True)
class MineOptions:
    """What the mine job can be told."""

    input: str = flag("the result of an embed job, or a glob of Parquet files with ids, texts and vectors")
    output: str = flag("folder for the results: neighbors/, pairs/ and duplicates/ go below it")
    other: str | None = flag("a second corpus: mine pairs across the two instead of within the first", None)
    top_k: int = flag("neighbours per row", 32)
    min_neighbor_score: float = flag("leave out neighbours with a lower cosine (-1: keep all k); faster", -1.0)
    min_score: float = flag("least cosine of a pair", 0.75)
    max_pairs: int = flag("keep only the best pairs", 500_000)
    mutual: bool = flag("only pairs of rows that are in each other's top k", False, action="store_true")
    strict: bool = flag("no row in more than top_k pairs", False, action="store_true")
    margin: bool = flag("score pairs by the ratio to their neighbourhoods", False, action="store_true")
    max_lexical_overlap: float = flag("leave out pairs that share more of their words (Jaccard, 0 to 1)", 1.0)
    cross_encoder: str | None = flag("a sequence-classification model that scores the pairs in the end", None)
    group_column: str | None = flag("a column whose values say which rows to compare, with --pairing", None)
    pairing: str = flag("all, or only rows within or across values of --group_column", "all")
    duplicate_score: float = flag("least cosine of near-identical rows", 0.95)
    keep: str = flag("which duplicate to keep: first (by id), longest or newest", "first")
    newest_column: str | None = flag("the column that says which row is newest", None)
    index: str = flag("exact, or routed: compare only within cells, and measure what was missed", "exact")
    routes: int = flag("routed: cells that each row is sent to", 3)
    cells: int = flag("routed: number of cells (0: as suits the corpus)", 0)
    audit_rows: int = flag("routed: rows whose neighbours are checked against the exact answer", 1000)
    embedding_column: str | None = flag("name of the embedding column, if it is not the embed job's", None)
    block_rows: int = flag("rows compared at once", 8192)
    workers: int = flag(WORKERS, 1)

    def __post_init__(self) -> None:
        for name in ("top_k", "block_rows", "workers"):
            if getattr(self, name) < 1:
                raise DataError(f"--{name} must be at least 1, got {getattr(self, name)}")
        for name in ("min_score", "min_neighbor_score", "duplicate_score"):
            if not -1 <= getattr(self, name) <= 1:
                raise DataError(f"--{name} is a cosine, between -1 and 1; got {getattr(self, name)}")
        if self.index not in ("exact", "routed"):
            raise DataError(f"--index is exact or routed, got {self.index!r}")
        if self.min_neighbor_score > self.min_score:
            raise DataError("--min_neighbor_score is above --min_score: pairs are made of neighbours")
        if self.margin and self.min_neighbor_score > -1:
            raise DataError("--margin is about all neighbours: leave out --min_neighbor_score")

    def folder(self, name: str) -> str:
        """Where a result goes: neighbors, pairs or duplicates."""
        return f"{self.output.rstrip('/')}/{name}"

    @property
    def neighbor_floor(self) -> float:
        """The least score of a neighbour."""
        return self.min_neighbor_score if self.min_neighbor_score > -1 else -math.inf

    @property
    def results(self) -> tuple[str, ...]:
        """Which datasets there will be: duplicates only within one corpus."""
        return ("neighbors", "pairs") if self.other else ("neighbors", "pairs", "duplicates")
