"""The exact neighbours of a random sample of rows, by which an approximate search is planned and judged."""

import dataclasses
from collections.abc import Iterator

import apache_beam as beam
import numpy as np
import torch

from sbert_core.neighbors.candidates import EMPTY, merge_candidates, ordinals_of
from sbert_core.neighbors.cosine import Block, compare
from sbert_core.neighbors.topk import TopK
from transforms.merge_values import MergeFn
from transforms.neighbors.block_cache import recent_block
from transforms.neighbors.mining_plan import MiningPlan
from transforms.neighbors.sampled_rows import SampledRows, join_samples, sample_block

CHUNK_ROWS = 512  # sampled rows whose candidates travel together: 131 KB with 32 neighbours


@dataclasses.dataclass(frozen=True, eq=False)
class SampleNeighbors:
    """Some sampled rows, by ordinal (n,), and their true candidates (n, k), best first."""

    ordinals: np.ndarray
    candidates: np.ndarray


@dataclasses.dataclass(kw_only=True, eq=False)
class SearchSample(beam.PTransform):
    """Finds the exact neighbours of about `rows` random rows.

    Input are the numbers of all blocks, output is `SampleNeighbors` of at most `CHUNK_ROWS` rows each; together they
    have all sampled rows. The sample depends on ids and `seed` only: it is the same in every run, and those of two
    seeds are independent of each other.
    """

    plan: beam.PCollection[MiningPlan]  # one
    rows: int
    seed: int

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, blocks: beam.PCollection[int]) -> beam.PCollection[SampleNeighbors]:
        """Draws the sample, and searches every block for it."""
        plan = beam.pvalue.AsSingleton(self.plan)
        sample = beam.pvalue.AsList(blocks | "Sample" >> beam.Map(sample_block, plan, self.rows, self.seed))
        return (
            blocks
            | "Search" >> beam.FlatMap(_search_block, plan, sample)
            | "MergeBlocks" >> beam.CombinePerKey(MergeFn(_merge_two))
            | "Chunks" >> beam.Map(_with_ordinals, sample)
        )


def _search_block(number: int, plan: MiningPlan, sample: list[SampledRows]) -> Iterator[tuple[int, np.ndarray]]:
    """The candidates (n, k) of the sampled rows in one block, by the number of their chunk."""
    block = recent_block(plan.corpora[0], number, plan.group_column).block
    rows = join_samples(sample)
    sampled = Block(torch.from_numpy(rows.vectors), rows.ordinals, rows.groups)
    topk = TopK(len(sampled), plan.k + 1, plan.min_score)  # one more: a row finds itself
    compare(sampled, block, topk, same_group=plan.same_group)
    candidates = topk.candidates()
    candidates[ordinals_of(candidates) == sampled.ordinals[:, None]] = EMPTY
    candidates = np.sort(candidates, axis=1)[:, ::-1][:, : plan.k]
    for start in range(0, len(candidates), CHUNK_ROWS):
        yield start // CHUNK_ROWS, candidates[start : start + CHUNK_ROWS]


def _with_ordinals(chunk: tuple[int, np.ndarray], sample: list[SampledRows]) -> SampleNeighbors:
    number, candidates = chunk
    ordinals = join_samples(sample).ordinals[number * CHUNK_ROWS :]
    return SampleNeighbors(ordinals[: len(candidates)], candidates)


def _merge_two(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Merges candidates (n, k) that were found for the same rows in two sets of blocks."""
    return merge_candidates([first, second], first.shape[1])
