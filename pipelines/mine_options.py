"""The options of the mine job; fast to import, for `--help`."""

import dataclasses
import math
from collections.abc import Sequence

from pipelines.flags import WORKERS, JobOptions, flag
from sbert_core.errors import DataError

INDEXES = ("exact", "routed")
PAIRINGS = ("all", "within", "across")  # those of transforms.neighbors.mining_plan, which takes seconds to import
KEEP_RULES = ("first", "longest", "newest")  # those of transforms.neighbors.duplicates
EXAMPLE = "sbert-beam mine --input out/embeddings --output out --min_score 0.8"


@dataclasses.dataclass(frozen=True, kw_only=True)
class MineOptions(JobOptions):
    """The options of the mine job."""

    input: str | Sequence[str] = flag(
        "results of embed jobs, or globs of Parquet files with ids, texts and vectors; all of them are one corpus",
        nargs="+",
    )
    output: str = flag("folder for the results: neighbors/, pairs/ and duplicates/ go below it")
    other: str | Sequence[str] | None = flag(
        "a second corpus: mine pairs across the two instead of within the first", None, nargs="+"
    )
    top_k: int = flag("neighbours per row", 32, at_least=1)
    min_neighbor_score: float = flag(
        "minimum cosine of a neighbour (-1: keep all k); makes mining faster", -1.0, between=(-1, 1), kind="a cosine"
    )
    min_score: float = flag("minimum cosine of a pair", 0.75, between=(-1, 1), kind="a cosine")
    max_pairs: int = flag("maximum number of pairs, best first", 500_000, at_least=0)
    mutual: bool = flag("only pairs of rows that are in each other's top k", False, action="store_true")
    strict: bool = flag("no row in more than top_k pairs", False, action="store_true")
    margin: bool = flag(
        "score pairs by the ratio of their cosine to those of their neighbours", False, action="store_true"
    )
    max_lexical_overlap: float = flag("maximum share of common words in a pair (Jaccard, 0 to 1)", 1.0, between=(0, 1))
    cross_encoder: str | None = flag("a sequence-classification model that scores the pairs", None)
    group_column: str | None = flag("a column that groups rows, for --pairing", None)
    pairing: str = flag(
        "which rows to compare: all, or only those within or across groups of --group_column", "all", one_of=PAIRINGS
    )
    duplicate_score: float = flag(
        "minimum cosine of a duplicate and the row that is kept instead", 0.95, between=(-1, 1), kind="a cosine"
    )
    keep: str = flag("which row of a group to keep: first (by id), longest or newest", "first", one_of=KEEP_RULES)
    newest_column: str | None = flag("the column that orders rows by age, for --keep newest", None)
    duplicate_chains: bool = flag(
        "group all rows that a chain of duplicates connects, however different its ends are", False, action="store_true"
    )
    index: str = flag(
        "exact, or routed: compare only rows of cells near each other, and measure the recall", "exact", one_of=INDEXES
    )
    recall: float = flag("routed: the share of all neighbours to find; more takes longer", 0.97, between=(0.5, 0.998))
    cells: int = flag("routed: number of cells (0: chosen by the size of the corpus)", 0, at_least=0)
    probes: int = flag("routed: cells that each row is compared with (0: chosen by --recall)", 0, at_least=0)
    audit_rows: int = flag("routed: sample rows for the recall, compared with the exact neighbours", 1000, at_least=1)
    embedding_column: str | None = flag("name of the embedding column, if no embed job wrote it", None)
    block_rows: int = flag("rows compared at once", 8192, at_least=1)
    workers: int = flag(WORKERS, 1, at_least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.pairing == "all") != (self.group_column is None):
            raise DataError("--group_column and --pairing within or across belong together: give both or none")
        if (self.keep == "newest") != (self.newest_column is not None):
            raise DataError("--keep newest and --newest_column belong together: give both or none")
        if self.other and self.index == "routed":
            raise DataError("--index routed works within one corpus: leave out --other, or use --index exact")
        if self.min_neighbor_score > self.min_score:
            raise DataError("--min_neighbor_score is above --min_score: pairs are made of neighbours")
        if self.min_neighbor_score > self.duplicate_score and "duplicates" in self.results:
            raise DataError("--min_neighbor_score is above --duplicate_score: duplicates are made of neighbours")
        if self.margin and self.min_neighbor_score > -1:
            raise DataError("--margin needs all neighbours: leave out --min_neighbor_score")

    def folder(self, name: str) -> str:
        """Where a dataset goes: neighbors, pairs or duplicates."""
        return f"{self.output.rstrip('/')}/{name}"

    @property
    def neighbor_floor(self) -> float:
        """The minimum score of a neighbour."""
        return self.min_neighbor_score if self.min_neighbor_score > -1 else -math.inf

    @property
    def results(self) -> tuple[str, ...]:
        """The names of the datasets; duplicates only within one corpus."""
        return ("neighbors", "pairs") if self.other else ("neighbors", "pairs", "duplicates")
