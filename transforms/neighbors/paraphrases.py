"""Paraphrases: pairs of rows that mean the same, derived from the neighbours of each row."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from sbert_core.data.manifest import Manifest, Part, digest_of
from sbert_core.data.schema import pairs_schema
from sbert_core.neighbors.pair_policy import PairPolicy, ScoredPairs
from sbert_core.neighbors.pairs import Pairs, mean_scores
from transforms.dataset.ordinals import ids_of
from transforms.dataset.published import Draft
from transforms.neighbors.mining_plan import BlockNeighbors, MinedHint, MiningPlan
from transforms.neighbors.pair_buckets import bucket_path, by_bucket, read_all_pairs, store_pairs
from transforms.neighbors.pair_texts import PairTexts
from transforms.neighbors.score_pairs import Chunk, ChunkScores, ScorePairs, join_scores, make_chunks
from transforms.neighbors.write_neighbors import draft_mined, write_in_parts

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
        # Several of these transforms may use the files of one plan.
        self._files = f"pairs_{digest_of(self.folder, dataclasses.asdict(self.policy))[:8]}"

    def expand(self, mined: MinedHint) -> beam.PCollection[Draft]:
        """Merges pairs in buckets, and scores their texts, on many workers; one worker orders and writes them."""
        plan, audit = beam.pvalue.AsSingleton(mined.plan), beam.pvalue.AsSingleton(mined.audit)
        merged = (
            mined.neighbors
            | "PartitionPairs" >> beam.FlatMap(partition_pairs, plan, self.policy)
            | "GroupByBucket" >> beam.GroupByKey()
            | "MergePairs" >> beam.Map(_merge_bucket, plan, policy=self.policy, files=self._files)
        )
        means: Any = []
        if self.margin:
            means = beam.pvalue.AsList(mined.neighbors | "MeanScores" >> beam.Map(_mean_scores))
        buckets = merged | "AllBuckets" >> beam.combiners.ToList()
        select = {"policy": self.policy, "files": self._files}
        scores: Any = None
        if self.cross_encoder:
            scored = (
                buckets
                | "TextsOfPairs" >> beam.FlatMap(_chunks_of_texts, plan, means, **select)
                | "ScorePairs" >> ScorePairs(cross_encoder=self.cross_encoder, workers=self.workers)
            )
            scores = beam.pvalue.AsList(scored | "Scores" >> beam.Values())
        return (
            buckets
            | "Write"
            >> beam.Map(_write_pairs, plan, means, scores, **select, folder=self.folder, manifest=self.manifest)
            | "Draft" >> beam.Map(draft_mined, plan, audit, folder=self.folder, manifest=self.manifest)
        )


def partition_pairs(found: BlockNeighbors, plan: MiningPlan, policy: PairPolicy) -> Iterator[tuple[int, Pairs]]:
    """The pairs of a block, by bucket. A pair has the same bucket whichever of its rows found it."""
    side = ("first", "second")[found.side] if len(plan.corpora) == 2 else "either"
    pairs = policy.pairs_of_rows(found.candidates, plan.ordinals_of(found), side)
    for bucket, which in by_bucket(pairs.first, plan):
        yield bucket, pairs[which]


def _merge_bucket(item: tuple[int, Iterable[Pairs]], plan: MiningPlan, *, policy: PairPolicy, files: str) -> int:
    """Stores each pair of a bucket once; returns its number."""
    bucket, parts = item
    store_pairs(bucket_path(plan, files, bucket), policy.merge(list(parts)))
    return bucket


@dataclasses.dataclass(frozen=True, eq=False)
class BlockMeans:
    """The mean score (rows,) of the neighbours of each row that neighbours were found for."""

    found: BlockNeighbors  # without candidates
    means: np.ndarray


def _mean_scores(found: BlockNeighbors) -> BlockMeans:
    return BlockMeans(dataclasses.replace(found, candidates=found.candidates[:, :0]), mean_scores(found.candidates))


def _means_by_ordinal(plan: MiningPlan, side: int, parts: list[BlockMeans]) -> np.ndarray:
    """The means (rows of the corpus,) of all blocks of one side."""
    result = np.zeros(plan.corpora[side].rows, np.float32)
    for part in parts:
        if part.found.side == side:
            result[plan.ordinals_of(part.found)] = part.means
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


def _select_pairs(
    buckets: list[int], plan: MiningPlan, means: list[BlockMeans], policy: PairPolicy, files: str
) -> _SelectedPairs:
    """Orders and selects the pairs of all buckets."""
    by_side = [_means_by_ordinal(plan, side, means) for side in range(len(plan.corpora))] if policy.margin else [None]
    scored = policy.score(read_all_pairs(plan, files, buckets), by_side[0], by_side[-1])
    texts = PairTexts.read(plan, scored.pairs)
    overlaps = texts.overlaps()
    keep = policy.select(scored.pairs, plan.k, one_corpus=len(plan.corpora) == 1, overlaps=overlaps)
    return _SelectedPairs(scored, texts, overlaps)[keep]


def _chunks_of_texts(
    buckets: list[int], plan: MiningPlan, means: list[BlockMeans], *, policy: PairPolicy, files: str
) -> Iterator[Chunk]:
    """The texts of the selected pairs, in groups by their order. Reading them in each chunk would open all files."""
    texts = _select_pairs(buckets, plan, means, policy, files).texts.tuples()
    return make_chunks(0, [texts[start : start + PAIRS_PER_GROUP] for start in range(0, len(texts), PAIRS_PER_GROUP)])


def _write_pairs(
    buckets: list[int],
    plan: MiningPlan,
    means: list[BlockMeans],
    scores: list[ChunkScores] | None,
    *,
    policy: PairPolicy,
    files: str,
    folder: str,
    manifest: Manifest,
) -> list[Part]:
    """Orders, selects and writes the pairs of all buckets; `scores` are those of a cross-encoder."""
    selected = _select_pairs(buckets, plan, means, policy, files)
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
