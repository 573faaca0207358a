"""What is compared with what, and the results that travel between the steps of mining."""

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import apache_beam as beam
import numpy as np

from sbert_core.errors import DataError
from sbert_core.neighbors.candidates import MAX_ORDINAL
from transforms.dataset.corpus import BlockRef, Corpus
from transforms.dataset.ordinals import ordinals_of_block

MAX_ELEMENT_SLOTS = 2**18  # rows * k of candidates in one element: 2 MiB, and 3 MiB as pairs of rows
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

    def first_row(self, found: "BlockNeighbors") -> int:
        """The number in its corpus of the first row whose neighbours were found."""
        return self.block((found.side, found.block)).first_row + found.first

    def ordinals_of(self, found: "BlockNeighbors") -> np.ndarray:
        """The ordinals (n,) of the rows whose neighbours were found."""
        block = self.block((found.side, found.block))
        return ordinals_of_block(self.corpora[found.side], block)[found.first : found.first + len(found.candidates)]

    def with_corpora(self, corpora: tuple[Corpus, ...]) -> "MiningPlan":
        """The plan with the same corpora, whose rows have ordinals now."""
        return dataclasses.replace(self, corpora=corpora)


@dataclasses.dataclass(frozen=True, eq=False)
class BlockNeighbors:
    """The nearest neighbours of consecutive rows of one block, as candidates (rows, k), best first.

    Ordinals of candidates are those of the other corpus if there are two.
    """

    side: int  # 0 or 1: the corpus of the block
    block: int
    candidates: np.ndarray
    first: int = 0  # of the rows, in the block


def divide_rows(n_rows: int, k: int) -> Iterator[slice]:
    """The rows of a block in runs of which the candidates fit into one element."""
    length = max(MAX_ELEMENT_SLOTS // k, 1)
    return (slice(first, min(first + length, n_rows)) for first in range(0, n_rows, length))


class MinedNeighbors(NamedTuple):
    """What FindNeighbors and FindRoutedNeighbors return, and what the transforms that follow take."""

    plan: beam.PCollection[MiningPlan]  # one
    neighbors: beam.PCollection[BlockNeighbors]  # of all rows of all blocks
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
