"""Measures on a sample of rows how many neighbours an approximate search has missed."""

import dataclasses
from typing import Any, TypedDict

import apache_beam as beam
import numpy as np

from sbert_core.neighbors.candidates import EMPTY, ordinals_of, scores_of
from sbert_core.neighbors.recall import recall_interval
from sbert_core.sampling import is_sampled
from transforms.neighbors.mining_plan import BlockNeighbors, MiningPlan
from transforms.neighbors.row_candidates import RowCandidates
from transforms.neighbors.search_sample import SampleNeighbors, SearchSample

SAMPLE_SEED = 1  # independent of the samples by which cells are learned and probes are chosen


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
    found, and of those with a score of at least `min_score`, with 95 % intervals. The sample is independent of those by
    which the search was planned.
    """

    plan: beam.PCollection[MiningPlan]  # one
    blocks: beam.PCollection[int]  # the numbers of all blocks
    rows: int = 1000
    min_score: float = 0.75

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, neighbors: beam.PCollection[BlockNeighbors]) -> beam.PCollection[dict[str, Any]]:
        """Searches every block for the sampled rows, and compares the result with what was found."""
        exact = self.blocks | "Exact" >> SearchSample(plan=self.plan, rows=self.rows, seed=SAMPLE_SEED)
        found = neighbors | "FoundOfSample" >> beam.Map(_found_of_sample, beam.pvalue.AsSingleton(self.plan), self.rows)
        return self.plan | "Recall" >> beam.Map(
            _measure, beam.pvalue.AsList(found), beam.pvalue.AsList(exact), self.min_score
        )


def _found_of_sample(found: BlockNeighbors, plan: MiningPlan, sample_size: int) -> RowCandidates:
    """The candidates found for the sampled rows of a block, by ordinal."""
    ordinals = plan.ordinals_of(found)
    chosen = is_sampled(ordinals, plan.corpora[0].rows, sample_size, SAMPLE_SEED)
    return RowCandidates(ordinals[chosen], found.candidates[chosen])


def _measure(
    plan: MiningPlan, found: list[RowCandidates], exact: list[SampleNeighbors], min_score: float
) -> RecallAudit:
    return measure_recall(found, exact, min_score)


def measure_recall(found: list[RowCandidates], exact: list[SampleNeighbors], min_score: float) -> RecallAudit:
    """The share of true neighbours that were found: of all of them, and of those that score at least `min_score`.

    The rows of `found` are ordinals; rows that are not in `exact` do not count.
    """
    found_by_ordinal = {
        ordinal: candidates
        for part in found
        for ordinal, candidates in zip(part.rows.tolist(), part.candidates, strict=True)
    }
    counts = []
    for part in exact:
        for ordinal, candidates in zip(part.ordinals.tolist(), part.candidates, strict=True):
            true, own = candidates[candidates != EMPTY], found_by_ordinal[ordinal]
            is_found = np.isin(ordinals_of(true), ordinals_of(own[own != EMPTY]))
            is_near = scores_of(true) >= min_score
            counts.append((is_found.sum(), len(true), (is_found & is_near).sum(), is_near.sum()))
    found_all, all_true, found_near, near_true = np.array(counts, np.int64).reshape(-1, 4).T
    return RecallAudit(
        rows=len(counts), min_score=min_score, **_recall(found_all, all_true), near=_recall(found_near, near_true)
    )


def _recall(found: np.ndarray, total: np.ndarray) -> Recall:
    n_found, n_true = int(found.sum()), int(total.sum())
    return Recall(
        neighbors=n_true,
        found=n_found,
        recall=n_found / n_true if n_true else None,
        interval_95=list(recall_interval(found, total)),
    )
