"""The texts of pairs of rows, and what is compared of them."""

import dataclasses

import numpy as np
import pyarrow as pa

from sbert_core.neighbors.contrasts import Contrasts
from sbert_core.neighbors.lexical import lexical_overlap, word_matrix
from sbert_core.neighbors.pairs import Pairs
from transforms.dataset.corpus import Corpus
from transforms.dataset.ordinals import take_rows
from transforms.neighbors.mining_plan import MiningPlan


@dataclasses.dataclass(frozen=True, eq=False)
class SideTexts:
    """The texts of one side of n pairs: those of the distinct rows (m,), and which of them (n,) each pair has."""

    distinct: pa.Array
    index: np.ndarray

    @classmethod
    def read(cls, corpus: Corpus, ordinals: np.ndarray) -> "SideTexts":
        """Reads the texts of rows (n,); each once."""
        rows, index = np.unique(ordinals, return_inverse=True)
        column = take_rows(corpus, rows, [corpus.text_column])[corpus.text_column]
        return cls(column.cast(pa.string()).combine_chunks(), index)

    def __getitem__(self, which: np.ndarray) -> "SideTexts":
        """The texts of some of the pairs; texts that none of them has are left out."""
        used, index = np.unique(self.index[which], return_inverse=True)
        return SideTexts(self.distinct.take(pa.array(used)), index)

    def values(self) -> pa.Array:
        """The text (n,) of each pair."""
        return self.distinct.take(pa.array(self.index))

    def strings(self) -> list[str]:
        """The distinct texts (m,); a null is an empty text."""
        return [text or "" for text in self.distinct.to_pylist()]


@dataclasses.dataclass(frozen=True, eq=False)
class PairTexts:
    """The texts of both sides of n pairs."""

    first: SideTexts
    second: SideTexts

    @classmethod
    def read(cls, plan: MiningPlan, pairs: Pairs) -> "PairTexts":
        """Reads the texts of pairs from their corpora."""
        return cls(SideTexts.read(plan.corpora[0], pairs.first), SideTexts.read(plan.corpora[-1], pairs.second))

    def __getitem__(self, which: np.ndarray) -> "PairTexts":
        return PairTexts(self.first[which], self.second[which])

    def tuples(self) -> list[tuple[str, str]]:
        """The two texts of each pair; a null is an empty text."""
        sides = ([text or "" for text in side.values().to_pylist()] for side in (self.first, self.second))
        return list(zip(*sides, strict=True))

    def overlaps(self) -> np.ndarray:
        """The share (n,) of common words of each pair."""
        words = word_matrix(self.first.strings() + self.second.strings())
        return lexical_overlap(words, self.first.index, self.second.index + len(self.first.distinct))

    def contrasts(self) -> tuple[pa.Array, pa.Array]:
        """Whether the numbers (n,) and the negation (n,) of the two texts differ; see Contrasts."""
        contrasts = Contrasts.of(self.first.strings() + self.second.strings())
        first, second = self.first.index, self.second.index + len(self.first.distinct)
        return pa.array(contrasts.numbers_differ(first, second)), contrasts.negation_differs(first, second)
