"""Measures on a sample of rows how many neighbours an approximate search has missed."""

import dataclasses
from collections.abc import Iterable
from typing import Any, TypedDict

import apache_beam as beam
import numpy as np
import torch

from sbert_core.neighbors.candidates import EMPTY, merge_candidates, ordinals_of, scores_of
from sbert_core.neighbors.cosine import Block, compare
from sbert_core.neighbors.recall import recall_interval
from sbert_core.neighbors.topk import TopK
from sbert_core.sampling import is_sampled
from transforms.dataset.ordinals import ordinals_of_block
from transforms.neighbors.block_cache import block_cache
from transforms.neighbors.mining_plan import BlockNeighbors, MiningPlan
from transforms.neighbors.row_candidates import RowCandidates
from transforms.neighbors.sampled_rows import SampledRows, join_samples, sample_block

SAMPLE_SEED = 1  # another sample than the one that cells are learned from


class Recall(TypedDict):
    """How many true neighbours of the audited rows were found."""

    neighbors: int  # true ones
    found: int  # of these
    recall: float | None  # None if there are no neighbours
    interval_95: list[float]


class RecallAudit(Recall):
    """What the audit measured, as it is written to manifests: the recall of all k neighbours, and of the near ones."""

    rows: int  # audited
    min_score: float  # of a near neighbour
    near: Recall  # of neighbours with at least this score


@dataclasses.dataclass(kw_only=True, eq=False)
class AuditNeighbors(beam.PTransform):
    """Compares the neighbours found for about `rows` random rows with the exact result.

    Input is the `BlockNeighbors` of all blocks, output one `RecallAudit`: the share of all k neighbours that were
    found, and of those with a score of at least `min_score`, with 95 % intervals. The sample depends on ids only: it is
    the same in every run, and independent of the one that cells are learned from.
    """

    plan: beam.PCollection[MiningPlan]  # one
    blocks: beam.PCollection[int]  # the numbers of all blocks
    rows: int = 1000
    min_score: float = 0.75

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, neighbors: beam.PCollection[BlockNeighbors]) -> beam.PCollection[dict[str, Any]]:
        """Searches every block for the sampled rows, and compares the result with what was found."""
        plan = beam.pvalue.AsSingleton(self.plan)
        sample = beam.pvalue.AsList(self.blocks | "Sample" >> beam.Map(sample_block, plan, self.rows, SAMPLE_SEED))
        exact = (
            self.blocks
            | "Search" >> beam.Map(_search_block, plan, sample)
            | "Exact" >> beam.CombineGlobally(_MergeCandidatesFn()).without_defaults()
        )
        return (
            neighbors
            | "FoundOfSample" >> beam.Map(_found_of_sample, plan, self.rows)
            | "AllFound" >> beam.combiners.ToList()
            | "Recall" >> beam.Map(measure_recall, sample, beam.pvalue.AsList(exact), self.min_score)
        )


def _search_block(number: int, plan: MiningPlan, sample: list[SampledRows]) -> np.ndarray:
    """The exact candidates (n, k) of the sampled rows, ordered by ordinal, in one block."""
    block = block_cache().get(plan.corpora[0], number, plan.group_column).block
    rows = join_samples(sample)
    sampled = Block(torch.from_numpy(rows.vectors), rows.ordinals, rows.groups)
    topk = TopK(len(sampled), plan.k + 1, plan.min_score)  # one more: a row finds itself
    compare(sampled, block, topk, same_group=plan.same_group)
    candidates = topk.candidates()
    candidates[ordinals_of(candidates) == sampled.ordinals[:, None]] = EMPTY
    return np.sort(candidates, axis=1)[:, ::-1][:, : plan.k]


class _MergeCandidatesFn(beam.CombineFn):
    """Merges candidates (n, k) that were found for the same rows in several blocks."""

    def create_accumulator(self) -> np.ndarray | None:
        return None

    def add_input(self, accumulator: np.ndarray | None, candidates: np.ndarray) -> np.ndarray:
        return candidates if accumulator is None else merge_candidates([accumulator, candidates], candidates.shape[1])

    def merge_accumulators(self, accumulators: Iterable[np.ndarray | None]) -> np.ndarray | None:
        parts = [accumulator for accumulator in accumulators if accumulator is not None]
        return merge_candidates(parts, parts[0].shape[1]) if parts else None

    def extract_output(self, accumulator: np.ndarray) -> np.ndarray:
        return accumulator


def _found_of_sample(found: BlockNeighbors, plan: MiningPlan, sample_size: int) -> RowCandidates:
    """The candidates found for the sampled rows of a block, by ordinal."""
    corpus = plan.corpora[0]
    ordinals = ordinals_of_block(corpus, corpus.blocks[found.block])
    chosen = is_sampled(ordinals, corpus.rows, sample_size, SAMPLE_SEED)
    return RowCandidates(ordinals[chosen], found.candidates[chosen])


def measure_recall(
    found: list[RowCandidates], sample: list[SampledRows], exact: list[np.ndarray], min_score: float
) -> RecallAudit:
    """The share of true neighbours that were found: of all of them, and of those that score at least `min_score`.

    `exact` holds one array of the true candidates (n, k) of the sampled rows, ordered by ordinal; none if there are no
    blocks.
    """
    found_by_ordinal = {
        ordinal: candidates
        for part in found
        for ordinal, candidates in zip(part.rows.tolist(), part.candidates, strict=True)
    }
    sampled = sorted(ordinal for part in sample for ordinal in part.ordinals.tolist())
    counts = np.zeros((len(sampled), 4), np.int64)
    for place, (ordinal, true) in enumerate(zip(sampled, exact[0] if sampled else (), strict=True)):
        true = true[true != EMPTY]
        own = found_by_ordinal[ordinal]
        is_found, is_near = np.isin(ordinals_of(true), ordinals_of(own[own != EMPTY])), scores_of(true) >= min_score
        counts[place] = is_found.sum(), len(true), (is_found & is_near).sum(), is_near.sum()
    return RecallAudit(
        rows=len(sampled), min_score=min_score, **_recall(*counts[:, :2].T), near=_recall(*counts[:, 2:].T)
    )


def _recall(found: np.ndarray, total: np.ndarray) -> Recall:
    n_found, n_true = int(found.sum()), int(total.sum())
    return Recall(
        neighbors=n_true,
        found=n_found,
        recall=n_found / n_true if n_true else None,
        interval_95=list(recall_interval(found, total)),
    )
