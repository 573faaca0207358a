"""What blocks tell of clusters, put together in any order.

A tally has the same size whether it is of one block or of all of them: for each cluster its size, the rows nearest
its centre and the cosines of the farthest; of all rows a sample. Terms are put together apart, by buckets of them.
"""

import dataclasses
import pickle
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import apache_beam as beam
import numpy as np

from sbert_core.clusters.communities import NOISE, SAMPLE
from sbert_core.clusters.names.terms import merge_counts, trim_counts
from sbert_core.data.manifest import Part
from sbert_core.neighbors.cells import sample_of
from transforms.clusters.sums import WHOLE

CANDIDATES = 30  # rows near each centre that exemplars are chosen of
REACH = 0.01  # share of a cluster's rows that are out of its reach
BUCKETS = 32
MAX_TERMS = 320_000  # different ones that names are chosen of


@dataclasses.dataclass(frozen=True, eq=False)
class Centers:
    """The clusters: their directions (k, dim) and sizes (k,)."""

    vectors: np.ndarray
    sizes: np.ndarray

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def tails(self) -> np.ndarray:
        """How many of the lowest cosines (k,) of each cluster tell its reach."""
        return (REACH * np.maximum(self.sizes - 1, 0)).astype(np.int64) + 2


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """Some rows: clusters (n,), ranks (n,), cosines (n,) to the own centre, and vectors (n, dim) or none (n, 0)."""

    labels: np.ndarray
    ranks: np.ndarray
    cosines: np.ndarray
    vectors: np.ndarray

    def __getitem__(self, which: np.ndarray) -> "Rows":
        return Rows(self.labels[which], self.ranks[which], self.cosines[which], self.vectors[which])

    def lowest(self, counts: np.ndarray) -> "Rows":
        """Of each cluster so many (k,) rows that are farthest from its centre; without their vectors."""
        chosen = self[_first_of_each(self.labels, np.lexsort((self.ranks, self.cosines, self.labels)), counts)]
        return dataclasses.replace(chosen, vectors=np.empty((len(chosen.labels), 0), np.float32))

    def highest(self, count: int) -> "Rows":
        """Of each cluster so many rows that are nearest its centre; of equal ones the lower rank."""
        return self[_first_of_each(self.labels, np.lexsort((self.ranks, -self.cosines, self.labels)), count)]

    def of(self, cluster: int) -> "Rows":
        """Those of one cluster, in their order."""
        return self[np.flatnonzero(self.labels == cluster)]


def _first_of_each(labels: np.ndarray, order: np.ndarray, counts: np.ndarray | int) -> np.ndarray:
    """The first rows of each label, so many of each, of rows in an order that has those of a label together."""
    ordered = labels[order]
    places = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    return order[places < (counts if isinstance(counts, int) else counts[ordered])]


def join_rows(parts: Iterable[Rows]) -> Rows:
    """All rows of several parts; there must be a part."""
    columns = zip(*(dataclasses.astuple(part) for part in parts), strict=True)
    return Rows(*(np.concatenate(column) for column in columns))


@dataclasses.dataclass(frozen=True, eq=False)
class Tally:
    """What some blocks tell of the clusters."""

    tails: np.ndarray  # (k,), of the clusters
    parts: list[Part]
    noise: int
    cosines: np.ndarray  # (k,) int64, sums of the cosines to the own centre in whole parts
    near: Rows
    far: Rows
    sample: Rows
    truth: Counter[tuple[str, int]]  # rows of each true label and cluster

    def cohesion(self, cluster: int, size: int) -> float:
        """The mean cosine of a cluster of so many rows."""
        return float(self.cosines[cluster] / WHOLE / size)

    def reach(self, cluster: int, size: int) -> float:
        """The cosine that all but one in a hundred of its rows have."""
        lowest = self.far.of(cluster).cosines
        return float(np.interp(REACH * (size - 1), np.arange(len(lowest)), lowest))


def tally_block(part: Part, rows: Rows, truth: list[str | None], centers: Centers, corpus_rows: int) -> Tally:
    """What one block tells; `rows` are all of its rows, in the order of their true labels if there are any."""
    inside = rows[np.flatnonzero(rows.labels != NOISE)]
    sums = np.zeros(len(centers), np.int64)
    np.add.at(sums, inside.labels, np.rint(inside.cosines * WHOLE).astype(np.int64))
    return Tally(
        centers.tails,
        [part],
        len(rows.labels) - len(inside.labels),
        sums,
        inside.highest(CANDIDATES),
        inside.lowest(centers.tails),
        rows[np.flatnonzero(sample_of(rows.ranks, corpus_rows, SAMPLE))],
        Counter(zip(map(str, truth), rows.labels.tolist(), strict=False)),
    )


class TallyFn(beam.CombineFn):
    """Puts tallies together; the order has no effect."""

    def create_accumulator(self) -> list[Tally]:
        """Nothing yet."""
        return []

    def add_input(self, accumulator: list[Tally], tally: Tally) -> list[Tally]:
        """Adds a block."""
        return [join_tallies([*accumulator, tally])]

    def merge_accumulators(self, accumulators: Iterable[list[Tally]]) -> list[Tally]:
        """Adds what other workers have."""
        tallies = [tally for accumulator in accumulators for tally in accumulator]
        return [join_tallies(tallies)] if tallies else []

    def extract_output(self, accumulator: list[Tally]) -> list[Tally]:
        """One tally, or none of an empty corpus."""
        return accumulator


def join_tallies(tallies: list[Tally]) -> Tally:
    """One tally of several."""
    if len(tallies) == 1:
        return tallies[0]
    tails = tallies[0].tails
    truth: Counter[tuple[str, int]] = Counter()
    for tally in tallies:
        truth.update(tally.truth)
    return Tally(
        tails,
        [part for tally in tallies for part in tally.parts],
        sum(tally.noise for tally in tallies),
        np.sum([tally.cosines for tally in tallies], axis=0),
        join_rows(tally.near for tally in tallies).highest(CANDIDATES),
        join_rows(tally.far for tally in tallies).lowest(tails),
        join_rows(tally.sample for tally in tallies),
        truth,
    )


@dataclasses.dataclass(kw_only=True, eq=False)
class MergeTerms(beam.PTransform):
    """Adds up how often terms occur; input are `deal_terms` of blocks, output is the outcome of each bucket.

    Counts are exact. Of a corpus with more than `MAX_TERMS` different terms the rarest are left out: about so many
    stay, chosen by their counts in the whole corpus. `join_buckets` puts the outcomes together.
    """

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, dealt: beam.PCollection[tuple[int, bytes]]) -> Any:
        """All counts of a term meet in its bucket."""
        merge = beam.MapTuple(lambda bucket, parts: (bucket, merge_dealt(parts)))
        return dealt | "Meet" >> beam.GroupByKey() | "Merge" >> merge


def deal_terms(counts: Mapping[Any, Mapping[str, int]]) -> Iterator[tuple[int, bytes]]:
    """Terms and their counts, dealt to buckets by term; as bytes, since as objects they take ten times the memory."""
    buckets: dict[int, dict[Any, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for key, counter in counts.items():
        for term, count in counter.items():
            buckets[zlib.crc32(term.encode()) % BUCKETS][key][term] = count
    for bucket, found in buckets.items():
        yield bucket, zlib.compress(pickle.dumps(dict(found)), 1)


def merge_dealt(parts: Iterable[bytes], limit: int = MAX_TERMS // BUCKETS) -> dict[Any, Counter[str]]:
    """The counts of the most frequent terms of a bucket, in order, whatever the order of the parts."""
    merged = trim_counts(merge_counts(pickle.loads(zlib.decompress(part)) for part in parts), limit)
    return {key: Counter(dict(sorted(merged[key].items()))) for key in sorted(merged)}


def join_buckets(found: Iterable[tuple[int, dict[Any, Counter[str]]]]) -> dict[Any, Counter[str]]:
    """All counts, in order."""
    return merge_counts(counts for _, counts in sorted(found, key=lambda each: each[0]))
