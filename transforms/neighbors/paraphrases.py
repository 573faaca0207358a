"""Paraphrases: pairs of rows that mean the same, derived from the neighbours of each row."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from sbert_core.data.manifest import Manifest, Part
from sbert_core.data.schema import pairs_schema
from sbert_core.neighbors.pair_policy import PairPolicy, ScoredPairs
from sbert_core.neighbors.pairs import Pairs, mean_scores
from transforms.dataset.ordinals import ids_of, ordinals_of_block
from transforms.dataset.published import Draft
from transforms.neighbors.mining_plan import BlockNeighbors, MinedHint, MiningPlan
from transforms.neighbors.pair_texts import PairTexts
from transforms.neighbors.score_pairs import Chunk, ChunkScores, ScorePairs, join_scores, make_chunks
from transforms.neighbors.write_neighbors import draft_mined, write_in_parts

BUCKETS = 64  # of pairs that are merged by one worker
PAIRS_PER_GROUP = 128  # that a cross-encoder scores in one call


@dataclasses.dataclass(kw_only=True, eq=False)
class MineParaphrases(beam.PTransform):
    """Writes the pairs of rows that are near each other, best first.

    Input is `MinedNeighbors`, output one `Draft`. A pair counts if one row is among the k nearest of the other, or with
    `mutual`, if both are, and if their cosine is at least `min_score`. `margin` scores by the ratio of the cosine to
    those of the neighbourhood; `max_lexical_overlap` leaves out pairs that share more of their words; with `strict`, no
    row is in more than k pairs; `cross_encoder` is a model that scores the remaining pairs.
    """

    folder: str
    min_score: float = 0.75
    max_pairs: int = 500_000
    mutual: bool = False
    strict: bool = False
    margin: bool = False
    max_lexical_overlap: float = 1.0
    cross_encoder: str | None = None
    workers: int = 1  # processes on a machine, which share its cores
    manifest: Manifest = dataclasses.field(default_factory=Manifest)

    def __post_init__(self) -> None:
        super().__init__()
        self.manifest = dataclasses.replace(self.manifest, kind="pairs")
        self.policy = PairPolicy(
            min_score=self.min_score,
            max_pairs=self.max_pairs,
            mutual=self.mutual,
            strict=self.strict,
            margin=self.margin,
            max_lexical_overlap=self.max_lexical_overlap,
        )

    def expand(self, mined: MinedHint) -> beam.PCollection[Draft]:
        """Merges pairs in buckets, and scores their texts, on many workers; one worker orders and writes them."""
        plan, audit = beam.pvalue.AsSingleton(mined.plan), beam.pvalue.AsSingleton(mined.audit)
        merged = (
            mined.neighbors
            | "PartitionPairs" >> beam.FlatMap(partition_pairs, plan, self.policy)
            | "GroupByBucket" >> beam.GroupByKey()
            | "MergePairs" >> beam.Map(_merge_bucket, self.policy)
        )
        means: Any = []
        if self.margin:
            means = beam.pvalue.AsList(mined.neighbors | "MeanScores" >> beam.Map(_mean_scores))
        pairs = merged | "AllPairs" >> beam.combiners.ToList()
        scores: Any = None
        if self.cross_encoder:
            scored = (
                pairs
                | "TextsOfPairs" >> beam.FlatMap(_chunks_of_texts, plan, means, policy=self.policy)
                | "ScorePairs" >> ScorePairs(cross_encoder=self.cross_encoder, workers=self.workers)
            )
            scores = beam.pvalue.AsList(scored | "Scores" >> beam.Values())
        return (
            pairs
            | "Write"
            >> beam.Map(
                _write_pairs, plan, means, scores, policy=self.policy, folder=self.folder, manifest=self.manifest
            )
            | "Draft" >> beam.Map(draft_mined, plan, audit, folder=self.folder, manifest=self.manifest)
        )


def partition_pairs(found: BlockNeighbors, plan: MiningPlan, policy: PairPolicy) -> Iterator[tuple[int, Pairs]]:
    """The pairs of a block, by bucket. A pair has the same bucket whichever of its rows found it."""
    corpus = plan.corpora[found.side]
    side = ("first", "second")[found.side] if len(plan.corpora) == 2 else "either"
    ordinals = ordinals_of_block(corpus, corpus.blocks[found.block])
    pairs = policy.pairs_of_rows(found.candidates, ordinals, side)
    buckets = pairs.first.astype(np.int64) * BUCKETS // max(plan.corpora[0].rows, 1)
    for bucket in np.unique(buckets).tolist():
        yield bucket, pairs[buckets == bucket]


def _merge_bucket(bucket: tuple[int, Iterable[Pairs]], policy: PairPolicy) -> Pairs:
    _, parts = bucket
    return policy.merge(list(parts))


@dataclasses.dataclass(frozen=True, eq=False)
class BlockMeans:
    """The mean score (rows,) of the neighbours of each row of a block."""

    side: int
    block: int
    means: np.ndarray


def _mean_scores(found: BlockNeighbors) -> BlockMeans:
    return BlockMeans(found.side, found.block, mean_scores(found.candidates))


def _means_by_ordinal(plan: MiningPlan, side: int, parts: list[BlockMeans]) -> np.ndarray:
    """The means (rows of the corpus,) of all blocks of one side."""
    corpus = plan.corpora[side]
    result = np.zeros(corpus.rows, np.float32)
    for part in parts:
        if part.side == side:
            result[ordinals_of_block(corpus, corpus.blocks[part.block])] = part.means
    return result


@dataclasses.dataclass(frozen=True, eq=False)
class _SelectedPairs:
    """The pairs of the dataset, best first, with their texts and the share of words that they have in common."""

    scored: ScoredPairs
    texts: PairTexts
    overlaps: np.ndarray

    def __getitem__(self, which: np.ndarray) -> "_SelectedPairs":
        return _SelectedPairs(self.scored[which], self.texts[which], self.overlaps[which])

    def with_scores(self, scores: np.ndarray) -> "_SelectedPairs":
        """The same pairs with other scores, in their order."""
        pairs = dataclasses.replace(self.scored.pairs, scores=scores)
        selected = dataclasses.replace(self, scored=dataclasses.replace(self.scored, pairs=pairs))
        return selected[np.argsort(-scores, kind="stable")]


def _select_pairs(parts: list[Pairs], plan: MiningPlan, means: list[BlockMeans], policy: PairPolicy) -> _SelectedPairs:
    """Orders and selects the pairs of all buckets; the order of `parts` has no effect."""
    by_side = [_means_by_ordinal(plan, side, means) for side in range(len(plan.corpora))] if policy.margin else [None]
    scored = policy.score(parts, by_side[0], by_side[-1])
    texts = PairTexts.read(plan, scored.pairs)
    overlaps = texts.overlaps()
    keep = policy.select(scored.pairs, plan.k, one_corpus=len(plan.corpora) == 1, overlaps=overlaps)
    return _SelectedPairs(scored, texts, overlaps)[keep]


def _chunks_of_texts(
    parts: list[Pairs], plan: MiningPlan, means: list[BlockMeans], *, policy: PairPolicy
) -> Iterator[Chunk]:
    """The texts of the selected pairs, in groups by their order. Reading them in each chunk would open all files."""
    texts = _select_pairs(parts, plan, means, policy).texts.tuples()
    return make_chunks(0, [texts[start : start + PAIRS_PER_GROUP] for start in range(0, len(texts), PAIRS_PER_GROUP)])


def _write_pairs(
    parts: list[Pairs],
    plan: MiningPlan,
    means: list[BlockMeans],
    scores: list[ChunkScores] | None,
    *,
    policy: PairPolicy,
    folder: str,
    manifest: Manifest,
) -> list[Part]:
    """Orders, selects and writes the pairs of all buckets; `scores` are those of a cross-encoder."""
    selected = _select_pairs(parts, plan, means, policy)
    if scores is not None:
        selected = selected.with_scores(join_scores(scores))
    return write_in_parts(_pairs_table(plan, selected), folder, manifest, plan)


def _pairs_table(plan: MiningPlan, selected: _SelectedPairs) -> pa.Table:
    """The rows of the dataset of pairs."""
    scored, texts = selected.scored, selected.texts
    ids, other_ids = ids_of(plan.corpora[0], scored.pairs.first), ids_of(plan.corpora[-1], scored.pairs.second)
    columns = [
        ids,
        other_ids,
        pa.array(scored.pairs.scores, pa.float32()),
        pa.array(scored.cosines, pa.float32()),
        pa.array(selected.overlaps, pa.float32()),
        *texts.contrasts(),
        texts.first.values(),
        texts.second.values(),
    ]
    return pa.table(columns, schema=pairs_schema(ids.type, other_ids.type))
