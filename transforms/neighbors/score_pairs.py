"""Scores of a cross-encoder, computed on many workers.

A score depends, in its last bits, on the other pairs of the same batch. So what is scored together is fixed by the
data, in groups, and never by how groups are divided among workers.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import apache_beam as beam
import numpy as np
import torch
from apache_beam.metrics import Metrics
from apache_beam.utils.shared import Shared

from sbert_core.cores import share_of_cores

PAIRS_PER_CHUNK = 512
CHARACTERS_PER_CHUNK = 500_000  # an element stays below 4 MB, unless one group has very long texts

TextPair = tuple[str, str]


class PairScorer(Protocol):
    """What is needed of a cross-encoder."""

    def score(self, pairs: Sequence[TextPair]) -> np.ndarray:
        """One score (n,) per pair."""


class Chunk(NamedTuple):
    """Some groups of pairs, to be scored by one worker."""

    key: int  # of the result that the scores belong to
    first: int  # the place of the first pair in that result
    groups: list[list[TextPair]]  # each is scored in one call


class ChunkScores(NamedTuple):
    """The scores of a chunk."""

    first: int
    scores: np.ndarray  # (pairs of the chunk,) float32


def load_cross_encoder(source: str) -> PairScorer:
    """Loads a cross-encoder. Importing it takes seconds, and few jobs need it."""
    from sbert_core.encoder.cross_encoder import CrossEncoder

    return CrossEncoder.load(source)


def score_groups(scorer: PairScorer, groups: Sequence[Sequence[TextPair]]) -> np.ndarray:
    """The scores of the pairs of all groups, one after the other: (n,) float32."""
    scores = [np.asarray(scorer.score(group), np.float32) for group in groups if group]
    return np.concatenate([np.empty(0, np.float32), *scores])


def make_chunks(key: int, groups: Sequence[list[TextPair]]) -> Iterator[Chunk]:
    """Divides groups into chunks of about the same work; a group is never divided."""
    chunk: list[list[TextPair]] = []
    first = pairs = characters = 0
    for group in groups:
        size = sum(len(one) + len(other) for one, other in group)
        if chunk and (pairs + len(group) > PAIRS_PER_CHUNK or characters + size > CHARACTERS_PER_CHUNK):
            yield Chunk(key, first, chunk)
            first += pairs
            chunk, pairs, characters = [], 0, 0
        chunk.append(group)
        pairs += len(group)
        characters += size
    if pairs:
        yield Chunk(key, first, chunk)


def join_scores(parts: Sequence[ChunkScores]) -> np.ndarray:
    """The scores (n,) of all chunks of one result, in the order of its pairs."""
    ordered = sorted(parts, key=lambda part: part.first)
    return np.concatenate([np.empty(0, np.float32), *(part.scores for part in ordered)])


@dataclasses.dataclass(kw_only=True, eq=False)
class ScorePairs(beam.PTransform):
    """Scores pairs of texts with a cross-encoder, which is loaded once per worker process.

    Input is `Chunk`, output `ChunkScores` by the key of the chunk. Counter: `mine/scored_pairs`.
    """

    cross_encoder: str
    workers: int = 1  # processes on a machine, which share its cores
    load: Callable[[str], Any] = load_cross_encoder  # returns a PairScorer; the seam for tests

    def __post_init__(self) -> None:
        super().__init__()
        self._shared = Shared()

    def acquire(self) -> PairScorer:
        """Loads the cross-encoder, or returns the one that this process has, as long as it is referenced."""
        scorer: PairScorer = self._shared.acquire(lambda: self.load(self.cross_encoder))
        return scorer

    def expand(self, chunks: beam.PCollection[Chunk]) -> beam.PCollection[tuple[int, ChunkScores]]:
        """Spreads the chunks over all workers."""
        return chunks | "Spread" >> beam.Reshuffle() | "Score" >> beam.ParDo(_ScoreFn(self))


class _ScoreFn(beam.DoFn):
    def __init__(self, transform: ScorePairs) -> None:
        self._transform = transform
        self._n_pairs = Metrics.counter("mine", "scored_pairs")

    def setup(self) -> None:
        torch.set_num_threads(share_of_cores(self._transform.workers))
        self._scorer = self._transform.acquire()

    def process(self, chunk: Chunk) -> Iterator[tuple[int, ChunkScores]]:
        scores = score_groups(self._scorer, chunk.groups)
        self._n_pairs.inc(len(scores))
        yield chunk.key, ChunkScores(chunk.first, scores)
