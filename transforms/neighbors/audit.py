"""How many neighbours a search that does not look everywhere has missed, measured on a sample of rows."""

import dataclasses
from typing import Any

import apache_beam as beam
import numpy as np
import torch

from sbert_core.neighbors.cells import recall_interval, sample_of
from sbert_core.neighbors.cosine import Block, compare
from sbert_core.neighbors.topk import EMPTY, TopK, ranks_of, scores_of
from transforms.dataset.corpus import ranks_of_block
from transforms.neighbors.exact import BestFn, Found, Plan, cached_block


@dataclasses.dataclass(kw_only=True, eq=False)
class AuditNeighbors(beam.PTransform):
    """Compares what was found for about `rows` random rows with the exact answer.

    Input is a dictionary: `plan`, `blocks` (their numbers) and `found`. Output is one dictionary: the share of
    neighbours that score at least `min_score` and were found, and its 95 % interval. The sample is chosen by id, so
    it is the same in every run.
    """

    rows: int = 1000
    min_score: float = 0.75

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, mined: Any) -> beam.PCollection[dict[str, Any]]:
        """Searches every block for the sample, and sets the outcome beside what was found."""
        plan = beam.pvalue.AsSingleton(mined["plan"])
        sample = mined["blocks"] | "Sample" >> beam.Map(_audited_rows, plan, self.rows)
        exact = (
            mined["blocks"]
            | "Search" >> beam.Map(_search_sample, plan, beam.pvalue.AsList(sample))
            | "Exact" >> beam.CombineGlobally(BestFn()).without_defaults()
        )
        return (
            mined["found"]
            | "Claimed" >> beam.Map(_claimed, plan, self.rows)
            | "AllClaimed" >> beam.combiners.ToList()
            | "Recall"
            >> beam.Map(_measure_recall, beam.pvalue.AsList(sample), beam.pvalue.AsList(exact), self.min_score)
        )


def _audited_rows(number: int, plan: Plan, wanted: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The rows of a block that the audit looks up: ranks, vectors and groups."""
    corpus = plan.corpora[0]
    block, _ = cached_block(corpus, number, plan.group_column)
    chosen = sample_of(block.ranks, corpus.rows, wanted, seed=1)
    groups = None if block.groups is None else block.groups[chosen]
    return block.ranks[chosen], block.vectors.numpy()[chosen], groups


def _search_sample(number: int, plan: Plan, sample: list[tuple[np.ndarray, np.ndarray, Any]]) -> np.ndarray:
    """The exact best of the audited rows (in the order of their ranks) in one block."""
    corpus = plan.corpora[0]
    block, _ = cached_block(corpus, number, plan.group_column)
    ranks = np.concatenate([part[0] for part in sample])
    order = np.argsort(ranks)
    groups = np.concatenate([part[2] for part in sample])[order] if plan.group_column else None
    asked = Block(torch.from_numpy(np.concatenate([part[1] for part in sample])[order]), ranks[order], groups)
    best = TopK(len(asked), plan.k + 1, plan.min_score)  # one more: a row finds itself
    same_group = None if plan.pairing == "all" else plan.pairing == "within"
    compare(asked, block, best, same_group=same_group)
    result = best.best()
    result[ranks_of(result) == asked.ranks[:, None]] = EMPTY
    return np.sort(result, axis=1)[:, ::-1][:, : plan.k]


def _claimed(found: Found, plan: Plan, wanted: int) -> tuple[np.ndarray, np.ndarray]:
    """What was found for the audited rows of a block: ranks and candidates."""
    corpus = plan.corpora[0]
    ranks = ranks_of_block(corpus, corpus.blocks[found.block])
    chosen = sample_of(ranks, corpus.rows, wanted, seed=1)
    return ranks[chosen], found.best[chosen]


def _measure_recall(
    claimed: list[tuple[np.ndarray, np.ndarray]],
    sample: list[tuple[np.ndarray, np.ndarray, Any]],
    exact: list[np.ndarray],
    score: float,
) -> dict[str, Any]:
    """The share of true neighbours of at least `score` that were found, over all audited rows."""
    claims = {rank: best for ranks, bests in claimed for rank, best in zip(ranks.tolist(), bests, strict=True)}
    asked = sorted(rank for part in sample for rank in part[0].tolist())
    found = total = 0
    for rank, truth in zip(asked, exact[0] if asked else (), strict=True):
        true = ranks_of(truth[(truth != EMPTY) & (scores_of(truth) >= score)])
        claim = claims[rank]
        found += int(np.isin(true, ranks_of(claim[claim != EMPTY])).sum())
        total += len(true)
    low, high = recall_interval(found, total)
    return {
        "rows": len(asked),
        "min_score": score,
        "neighbors": total,
        "found": found,
        "recall": found / total if total else None,
        "interval_95": [low, high],
    }
