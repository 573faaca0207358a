"""Counts of terms, merged in buckets of terms, so that no worker holds the terms of all texts."""

import dataclasses
import pickle
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

import apache_beam as beam

from sbert_core.clusters.names.term_counts import Key, merge_counts, trim_counts

N_BUCKETS = 32
MAX_TERMS = 320_000  # different terms that names are chosen from


@dataclasses.dataclass(kw_only=True, eq=False)
class MergeTerms(beam.PTransform):
    """Adds up how often terms occur.

    Input are the (bucket, bytes) pairs of `partition_terms`, output is one (bucket, counts) pair per bucket, for
    `join_buckets`. Counts are exact. Of a corpus with more than `MAX_TERMS` different terms about that many are kept,
    the most frequent.
    """

    def __post_init__(self) -> None:
        super().__init__()

    def expand(
        self, counts: beam.PCollection[tuple[int, bytes]]
    ) -> beam.PCollection[tuple[int, dict[Key, Counter[str]]]]:
        """Brings all counts of a term to its bucket."""
        return counts | "Meet" >> beam.GroupByKey() | "Merge" >> beam.MapTuple(_merge_numbered)


def partition_terms(counts: Mapping[Key, Mapping[str, int]]) -> Iterator[tuple[int, bytes]]:
    """The counts in buckets by term; as bytes, because Python objects take ten times the memory."""
    buckets: dict[int, dict[Key, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for key, counter in counts.items():
        for term, count in counter.items():
            buckets[zlib.crc32(term.encode()) % N_BUCKETS][key][term] = count
    for bucket, found in buckets.items():
        yield bucket, zlib.compress(pickle.dumps(dict(found)), 1)


def merge_bucket(parts: Iterable[bytes], max_terms: int = MAX_TERMS // N_BUCKETS) -> dict[Key, Counter[str]]:
    """The counts of the most frequent terms of a bucket, sorted, in whatever order the parts come."""
    merged = trim_counts(merge_counts(pickle.loads(zlib.decompress(part)) for part in parts), max_terms)
    return {key: Counter(dict(sorted(merged[key].items()))) for key in sorted(merged)}


def _merge_numbered(bucket: int, parts: Iterable[bytes]) -> tuple[int, dict[Key, Counter[str]]]:
    return bucket, merge_bucket(parts)


def join_buckets(buckets: Iterable[tuple[int, dict[Key, Counter[str]]]]) -> dict[Key, Counter[str]]:
    """The counts of all buckets, in the order of buckets."""
    return merge_counts(counts for _, counts in sorted(buckets, key=lambda bucket: bucket[0]))
