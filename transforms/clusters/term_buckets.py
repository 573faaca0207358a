"""Counts of terms, merged in buckets of terms, so that no worker holds the terms of all texts.

The counts of a bucket go to the next step in a file: those of many clusters are too large for one element.
"""

import dataclasses
import json
import pickle
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import apache_beam as beam

from sbert_core.clusters.names.term_counts import Key, merge_counts, trim_counts
from transforms.clusters.cluster_plan import ClusterPlan
from transforms.dataset.work_files import need_checked, store_checked

N_BUCKETS = 32
MAX_TERMS = 320_000  # different terms that names are chosen from
MAX_ELEMENT_CHARACTERS = 2**20  # of terms in one element, before compression


@dataclasses.dataclass(kw_only=True, eq=False)
class MergeTerms(beam.PTransform):
    """Adds up how often terms occur and stores the counts for `read_buckets`.

    Input are the (bucket, bytes) pairs of `partition_terms`, output are the numbers of the buckets that were stored.
    Counts are exact. Of a corpus with more than `MAX_TERMS` different terms about that many are kept, the most
    frequent. `name` differs between the steps of a pipeline that store terms.
    """

    plan: beam.PCollection[ClusterPlan]  # one
    name: str

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, counts: beam.PCollection[tuple[int, bytes]]) -> beam.PCollection[int]:
        """Brings all counts of a term to its bucket."""
        plan = beam.pvalue.AsSingleton(self.plan)
        return counts | "Meet" >> beam.GroupByKey() | "Merge" >> beam.Map(_store_bucket, plan, self.name)


def partition_terms(counts: Mapping[Key, Mapping[str, int]]) -> Iterator[tuple[int, bytes]]:
    """The counts in buckets by term; as bytes, because Python objects take ten times the memory.

    A bucket with very many terms comes in several pieces.
    """
    buckets: dict[int, dict[Key, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    characters: Counter[int] = Counter()
    for key, counter in counts.items():
        for term, count in counter.items():
            bucket = zlib.crc32(term.encode()) % N_BUCKETS
            buckets[bucket][key][term] = count
            characters[bucket] += len(term)
            if characters[bucket] > MAX_ELEMENT_CHARACTERS:
                yield bucket, _compress(buckets.pop(bucket))
                characters[bucket] = 0
    for bucket, found in buckets.items():
        yield bucket, _compress(found)


def _compress(counts: Mapping[Key, Mapping[str, int]]) -> bytes:
    return zlib.compress(pickle.dumps(dict(counts)), 1)


def merge_bucket(parts: Iterable[bytes], max_terms: int = MAX_TERMS // N_BUCKETS) -> dict[Key, Counter[str]]:
    """The counts of the most frequent terms of a bucket, sorted, in whatever order the parts come."""
    merged = trim_counts(merge_counts(pickle.loads(zlib.decompress(part)) for part in parts), max_terms)
    return {key: Counter(dict(sorted(merged[key].items()))) for key in sorted(merged)}


def _path(plan: ClusterPlan, name: str, bucket: int) -> str:
    return f"{plan.work}/{name}-{bucket:02d}.json.z"


def _store_bucket(item: tuple[int, Iterable[bytes]], plan: ClusterPlan, name: str) -> int:
    bucket, parts = item
    content = json.dumps(list(merge_bucket(parts).items()))
    store_checked(_path(plan, name, bucket), zlib.compress(content.encode(), 1))
    return bucket


def read_buckets(plan: ClusterPlan, name: str, buckets: Iterable[int]) -> dict[Any, Counter[str]]:
    """The counts of all buckets, by cluster or by cluster and period, in the order of buckets."""
    stored = (json.loads(zlib.decompress(need_checked(_path(plan, name, bucket)))) for bucket in sorted(buckets))
    # JSON has no tuples: a cluster and a period come back as a list.
    return merge_counts({tuple(key) if isinstance(key, list) else key: each for key, each in found} for found in stored)
