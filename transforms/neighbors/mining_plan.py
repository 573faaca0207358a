"""What is compared with what, and the results that travel between the steps of mining."""

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import apache_beam as beam
import numpy as np

from sbert_core.errors import DataError
from sbert_core.neighbors.candidates import MAX_ORDINAL
from transforms.dataset.corpus import BlockRef, Corpus

PAIRINGS = ("all", "within", "across")

BlockKey = tuple[int, int]  # side (0: the first corpus, 1: the second) and number of a block


@dataclasses.dataclass(frozen=True, kw_only=True)
class MiningPlan:
    """What is compared. It is made when the corpora are inspected, and every worker gets it."""

    corpora: tuple[Corpus, ...]  # one, or the two whose rows are compared with each other
    k: int
    min_score: float
    both_sides: bool
    group_column: str | None
    pairing: str
    work: str

    @property
    def digest(self) -> str:
        """A digest of all inputs and settings that have an effect on the result."""
        return self.work.rsplit("/", 1)[-1]

    @property
    def same_group(self) -> bool | None:
        """Whether only rows of the same group (True) or of different groups (False) are compared; None: all rows."""
        return None if self.pairing == "all" else self.pairing == "within"

    @property
    def is_right_wanted(self) -> bool:
        """Whether rows of the second of two blocks that are compared need neighbours too."""
        return self.both_sides or len(self.corpora) == 1

    def block(self, key: BlockKey) -> BlockRef:
        """Where the rows of a block are."""
        side, number = key
        return self.corpora[side].blocks[number]

    def with_corpora(self, corpora: tuple[Corpus, ...]) -> "MiningPlan":
        """The plan with the same corpora, whose rows have ordinals now."""
        return dataclasses.replace(self, corpora=corpora)


@dataclasses.dataclass(frozen=True, eq=False)
class BlockNeighbors:
    """The nearest neighbours of the rows of one block, as candidates (rows, k), best first.

    Ordinals of candidates are those of the other corpus if there are two.
    """

    side: int  # 0 or 1: the corpus of the block
    block: int
    candidates: np.ndarray


class MinedNeighbors(NamedTuple):
    """What FindNeighbors and FindRoutedNeighbors return, and what the transforms that follow take."""

    plan: beam.PCollection[MiningPlan]  # one
    neighbors: beam.PCollection[BlockNeighbors]  # one per block
    audit: beam.PCollection[Any]  # one value for the manifests: "exact", or the RecallAudit of routed mining


# The type hint of `expand`. Beam ignores hints that are not collections, and logs a warning unless they are Any.
if TYPE_CHECKING:
    MinedHint = MinedNeighbors
else:
    MinedHint = Any


def check_same_model(corpus: Corpus, other: Corpus) -> None:
    """Raises a DataError if the vectors of two corpora cannot be compared."""
    if not (corpus.rows and other.rows):
        return
    if corpus.dim != other.dim:
        raise DataError(
            f"{corpus.name} has {corpus.dim} dimensions, {other.name} has {other.dim}: embed both with one model"
        )
    if corpus.fingerprint != other.fingerprint:
        raise DataError(f"{corpus.name} and {other.name} hold vectors of different models: embed both with one model")


def check_row_count(corpus: Corpus) -> None:
    """Raises a DataError if a corpus has more rows than ordinals of 32 bits can number."""
    if corpus.rows > MAX_ORDINAL:
        raise DataError(f"{corpus.name} has {corpus.rows:,} rows, the limit is {MAX_ORDINAL:,}: divide it into parts")
