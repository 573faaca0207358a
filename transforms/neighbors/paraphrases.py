"""Paraphrases: pairs of rows that say the same thing, derived from the neighbours of each row."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from sbert_core.data.manifest import Manifest, Part
from sbert_core.data.schema import pairs_schema
from sbert_core.errors import DataError
from sbert_core.neighbors.contrasts import Contrasts
from sbert_core.neighbors.lexical import lexical_overlap, word_matrix
from sbert_core.neighbors.pairs import (
    Pairs,
    join_pairs,
    limit_per_row,
    margin_scores,
    mean_scores,
    merge_pairs,
    pairs_of,
)
from transforms.dataset.corpus import Corpus, ranks_of_block, sorted_ids, take_rows
from transforms.dataset.published import Draft
from transforms.neighbors.exact import Found, Plan
from transforms.neighbors.write_neighbors import audit_of, draft_mined, write_all

BUCKETS = 64


@dataclasses.dataclass(kw_only=True, eq=False)
class MineParaphrases(beam.PTransform):
    """Writes the pairs of rows that are near each other, best first.

    Input is the dictionary of FindNeighbors, output one `Draft`. A pair counts if one row is among the k nearest of
    the other, or, if `mutual`, both are, and their cosine is at least `min_score`. `margin` scores by the ratio of the
    cosine to those of the neighbourhood; `max_lexical_overlap` leaves out pairs that share more of their words;
    `strict` lets no row be in more than k pairs; `cross_encoder` names a model that scores the pairs that are left.
    """

    folder: str
    min_score: float = 0.75
    max_pairs: int = 500_000
    mutual: bool = False
    strict: bool = False
    margin: bool = False
    max_lexical_overlap: float = 1.0
    cross_encoder: str | None = None
    manifest: Manifest = dataclasses.field(default_factory=Manifest)

    def __post_init__(self) -> None:
        super().__init__()
        self.manifest = dataclasses.replace(self.manifest, kind="pairs")
        if self.max_pairs < 0 or not 0 <= self.max_lexical_overlap <= 1:
            raise DataError("max_pairs must not be negative, and max_lexical_overlap is between 0 and 1")

    def expand(self, mined: Any) -> beam.PCollection[Draft]:
        """Pairs meet in buckets, where each is counted once; one worker sorts and writes them."""
        plan = beam.pvalue.AsSingleton(mined["plan"])
        merged = (
            mined["found"]
            | "Deal" >> beam.FlatMap(deal_pairs, plan, min_score=self.min_score)
            | "Meet" >> beam.GroupByKey()
            | "Merge" >> beam.MapTuple(lambda _, parts: self._merge(list(parts)))
        )
        means: Any = []
        if self.margin:
            means = beam.pvalue.AsList(mined["found"] | "Means" >> beam.Map(_means))
        return (
            merged
            | "AllPairs" >> beam.combiners.ToList()
            | "Write" >> beam.Map(self._write, plan, means)
            | "Draft" >> beam.Map(draft_mined, plan, audit_of(mined), folder=self.folder, manifest=self.manifest)
        )

    @property
    def _best_are_enough(self) -> bool:
        """Whether the pairs of the highest cosines are those to write, so that others need not travel."""
        return self.max_lexical_overlap == 1 and not self.strict and not self.margin

    def _merge(self, parts: list[Pairs]) -> Pairs:
        """The pairs of a bucket."""
        pairs = merge_pairs(parts, self.mutual)
        return pairs[_best_first(pairs)[: self.max_pairs]] if self._best_are_enough else pairs

    def _write(self, parts: list[Pairs], plan: Plan, means: list[tuple[int, int, np.ndarray]]) -> list[Part]:
        pairs = join_pairs(parts)
        cosines = pairs.scores
        if self.margin:
            by_rank = [_by_rank(plan, side, means) for side in range(len(plan.corpora))]
            pairs = dataclasses.replace(pairs, scores=margin_scores(pairs, by_rank[0], by_rank[-1]))
        order = _best_first(pairs)
        pairs, cosines = pairs[order], cosines[order]
        if self.max_lexical_overlap == 1 and not self.strict:
            pairs, cosines = pairs[: self.max_pairs], cosines[: self.max_pairs]
        texts = [_Texts(plan.corpora[0], pairs.first), _Texts(plan.corpora[-1], pairs.second)]
        overlap = _overlap(texts)
        keep = np.flatnonzero(overlap <= self.max_lexical_overlap)
        if self.strict:
            keep = keep[limit_per_row(pairs[keep], plan.k, one_corpus=len(plan.corpora) == 1)]
        keep = keep[: self.max_pairs]
        scores = pairs.scores
        if self.cross_encoder:
            from sbert_core.encoder.cross_encoder import CrossEncoder  # takes seconds, and few need it

            scores = scores.copy()
            scores[keep] = CrossEncoder.load(self.cross_encoder).score(
                list(zip(texts[0].take(keep).to_pylist(), texts[1].take(keep).to_pylist(), strict=True))
            )
            keep = keep[np.argsort(-scores[keep], kind="stable")]
        ids = [sorted_ids(corpus.work) for corpus in (plan.corpora[0], plan.corpora[-1])]
        columns = [
            ids[0].take(pa.array(pairs.first[keep])),
            ids[1].take(pa.array(pairs.second[keep])),
            pa.array(scores[keep], pa.float32()),
            pa.array(cosines[keep], pa.float32()),
            pa.array(overlap[keep], pa.float32()),
            *_contrasts(texts, keep),
            texts[0].take(keep),
            texts[1].take(keep),
        ]
        table = pa.table(columns, schema=pairs_schema(ids[0].type, ids[1].type))
        return write_all(table, self.folder, self.manifest, plan)


class _Texts:
    """The texts of one side of pairs; each is read once."""

    def __init__(self, corpus: Corpus, ranks: np.ndarray) -> None:
        self.rows, self.places = np.unique(ranks, return_inverse=True)
        column = take_rows(corpus, self.rows, [corpus.text_column])[corpus.text_column]
        self.texts = column.cast(pa.string()).combine_chunks()

    def take(self, which: np.ndarray) -> pa.Array:
        return self.texts.take(pa.array(self.places[which]))


def _overlap(texts: list[_Texts]) -> np.ndarray:
    """The shared words of each pair."""
    words = word_matrix([text or "" for side in texts for text in side.texts.to_pylist()])
    return lexical_overlap(words, texts[0].places, texts[1].places + len(texts[0].rows))


def _contrasts(texts: list[_Texts], keep: np.ndarray) -> list[pa.Array]:
    """Whether numbers and negation of these pairs differ; a text that is in many pairs is looked at once."""
    places = [np.unique(side.places[keep], return_inverse=True) for side in texts]
    chosen = [side.texts.take(pa.array(rows)).to_pylist() for side, (rows, _) in zip(texts, places, strict=True)]
    contrasts = Contrasts.of([text or "" for side in chosen for text in side])
    first, second = places[0][1], places[1][1] + len(chosen[0])
    return [pa.array(contrasts.numbers_differ(first, second)), contrasts.negation_differs(first, second)]


def deal_pairs(found: Found, plan: Plan, min_score: float) -> Iterator[tuple[int, Pairs]]:
    """The pairs of a block, dealt to buckets: a pair that is found from both its rows meets itself in one."""
    corpus = plan.corpora[found.side]
    side = ("first", "second")[found.side] if len(plan.corpora) == 2 else "either"
    pairs = pairs_of(found.best, ranks_of_block(corpus, corpus.blocks[found.block]), side)
    pairs = pairs[pairs.scores >= min_score]
    buckets = pairs.first.astype(np.int64) * BUCKETS // max(plan.corpora[0].rows, 1)
    for bucket in np.unique(buckets):
        yield int(bucket), pairs[buckets == bucket]


def _best_first(pairs: Pairs) -> np.ndarray:
    return np.lexsort((pairs.second, pairs.first, -pairs.scores))


def _means(found: Found) -> tuple[int, int, np.ndarray]:
    return found.side, found.block, mean_scores(found.best)


def _by_rank(plan: Plan, side: int, means: list[tuple[int, int, np.ndarray]]) -> np.ndarray:
    corpus = plan.corpora[side]
    result = np.zeros(corpus.rows, np.float32)
    for found_side, block, values in means:
        if found_side == side:
            result[ranks_of_block(corpus, corpus.blocks[block])] = values
    return result
