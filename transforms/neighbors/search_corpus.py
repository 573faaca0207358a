"""The rows of a corpus that are nearest to queries."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import torch

from sbert_core.data.manifest import Manifest, Part
from sbert_core.data.schema import search_schema
from sbert_core.neighbors.candidates import EMPTY, ordinals_of, scores_of
from sbert_core.neighbors.cosine import Block, compare, unit_rows
from sbert_core.neighbors.topk import TopK
from transforms.dataset.corpus import BLOCK_ROWS, Corpus, read_vectors
from transforms.dataset.ordinals import ids_of, ordinals_of_block, take_rows
from transforms.dataset.published import Draft
from transforms.dataset.write_parts import write_rows
from transforms.neighbors.exact import FindNeighbors
from transforms.neighbors.mining_plan import BlockNeighbors, MinedNeighbors, MiningPlan
from transforms.neighbors.score_pairs import Chunk, ScorePairs, TextPair, join_scores, make_chunks
from transforms.neighbors.write_neighbors import draft_mined, mined_part_name


@dataclasses.dataclass(kw_only=True, eq=False)
class SearchCorpus(beam.PTransform):
    """Writes the `top_k` nearest rows of a corpus for each query: query_id, query, rank, id, score, cosine, text.

    Input is a pipeline, output one `Draft`. Queries and corpus are datasets of the embed job, made with the same model.
    `cross_encoder` is a model that scores and orders what was found; without it the score is the cosine.
    """

    queries: str
    corpus: str
    folder: str
    work: str
    top_k: int = 10
    cross_encoder: str | None = None
    block_rows: int = BLOCK_ROWS
    workers: int = 1  # processes on a machine, which share its cores
    ordinals: Sequence[str] = ()  # folders of ordinals; see AssignOrdinals. Empty: below `work`
    manifest: Manifest = dataclasses.field(default_factory=Manifest)

    def __post_init__(self) -> None:
        super().__init__()
        self.manifest = dataclasses.replace(self.manifest, kind="search")

    def expand(self, root: beam.Pipeline) -> beam.PCollection[Draft]:
        """Finds the neighbours of queries in the corpus, but not those of the corpus among the queries."""
        mined: MinedNeighbors = root | "FindNeighbors" >> FindNeighbors(
            corpus=self.queries,
            other=self.corpus,
            work=self.work,
            k=self.top_k,
            both_sides=False,
            block_rows=self.block_rows,
            workers=self.workers,
            ordinals=self.ordinals,
        )
        plan, audit = beam.pvalue.AsSingleton(mined.plan), beam.pvalue.AsSingleton(mined.audit)
        inputs = {"found": mined.neighbors | "ByRow" >> beam.Map(_by_row, plan)}
        if self.cross_encoder:
            inputs["scores"] = (
                mined.neighbors
                | "TextsOfHits" >> beam.FlatMap(_chunks_of_hits, plan)
                | "ScorePairs" >> ScorePairs(cross_encoder=self.cross_encoder, workers=self.workers)
            )
        return (
            inputs
            | "GroupByRow" >> beam.CoGroupByKey()
            | "WritePart" >> beam.Map(_write_hits, plan, folder=self.folder, manifest=self.manifest)
            | "AllParts" >> beam.combiners.ToList()
            | "Draft" >> beam.Map(draft_mined, plan, audit, folder=self.folder, manifest=self.manifest)
        )


def _by_row(found: BlockNeighbors, plan: MiningPlan) -> tuple[int, BlockNeighbors]:
    """Neighbours by the number of their first query: scores have the same key."""
    return plan.first_row(found), found


@dataclasses.dataclass(frozen=True, eq=False)
class _Queries:
    """Queries, ordered by their ordinals, with their candidates (n, k)."""

    ids: pa.Array
    texts: pa.ChunkedArray
    candidates: np.ndarray


def _queries_of(found: BlockNeighbors, plan: MiningPlan) -> _Queries:
    queries = plan.corpora[0]
    ordinals = plan.ordinals_of(found)
    order = np.argsort(ordinals)
    texts = take_rows(queries, ordinals[order], [queries.text_column])[queries.text_column]
    return _Queries(ids_of(queries, ordinals[order]), texts.cast(pa.string()), found.candidates[order])


def _chunks_of_hits(found: BlockNeighbors, plan: MiningPlan) -> Iterator[Chunk]:
    """The texts of what was found for queries."""
    queries = _queries_of(found, plan)
    return make_chunks(plan.first_row(found), pairs_of_queries(queries.candidates, queries.texts, plan.corpora[1]))


def _write_hits(item: tuple[int, dict[str, Iterable[Any]]], plan: MiningPlan, folder: str, manifest: Manifest) -> Part:
    """Writes what was found for queries, ordered by their ids."""
    first_row, grouped = item
    (found,) = grouped["found"]
    queries = _queries_of(found, plan)
    scores = join_scores(list(grouped["scores"])) if "scores" in grouped else None
    table = describe_hits(queries.candidates, queries.ids, queries.texts, plan.corpora[1], scores)
    return write_rows(table, folder, mined_part_name(manifest, plan, first_row))


def _texts_of_hits(corpus: Corpus, ordinals: np.ndarray) -> pa.ChunkedArray:
    """The texts (n,) of rows (n,), each read once."""
    distinct, index = np.unique(ordinals, return_inverse=True)
    column = take_rows(corpus, distinct, [corpus.text_column])[corpus.text_column]
    return column.cast(pa.string()).take(pa.array(index))


def pairs_of_queries(candidates: np.ndarray, queries: pa.ChunkedArray, corpus: Corpus) -> list[list[TextPair]]:
    """The text of each of n queries with the texts of its candidates (n, k), for a cross-encoder.

    The pairs of a query are a group: its scores do not depend on the other queries.
    """
    rows, slots = np.nonzero(candidates != EMPTY)
    texts = [text or "" for text in _texts_of_hits(corpus, ordinals_of(candidates[rows, slots])).to_pylist()]
    bounds = np.searchsorted(rows, np.arange(len(candidates) + 1)).tolist()
    return [
        [(query or "", text) for text in texts[start:end]]
        for query, (start, end) in zip(queries.to_pylist(), itertools.pairwise(bounds), strict=True)
    ]


def describe_hits(
    candidates: np.ndarray,
    query_ids: pa.Array,
    queries: pa.ChunkedArray,
    corpus: Corpus,
    scores: np.ndarray | None = None,
) -> pa.Table:
    """The candidates (n, k) of n queries as rows of the search dataset, in the order of queries, best first.

    `scores` are those of a cross-encoder for the pairs of `pairs_of_queries`, one after the other; without them the
    score is the cosine.
    """
    rows, slots = np.nonzero(candidates != EMPTY)
    ordinals, cosines = ordinals_of(candidates[rows, slots]), scores_of(candidates[rows, slots])
    texts = _texts_of_hits(corpus, ordinals)
    query_of_hit = queries.take(pa.array(rows))
    if scores is None:
        scores = cosines
    order = np.lexsort((ordinals, -cosines, -scores, rows))
    first_hit = np.searchsorted(rows, rows)  # of the same query
    ids = ids_of(corpus, ordinals[order])
    columns = [
        query_ids.take(pa.array(rows[order])),
        query_of_hit.take(pa.array(order)),
        pa.array(np.arange(len(rows)) - first_hit + 1, pa.int32()),
        ids,
        pa.array(scores[order]),
        pa.array(cosines[order]),
        texts.take(pa.array(order)),
    ]
    return pa.table(columns, schema=search_schema(query_ids.type, ids.type))


def search_in_process(vectors: np.ndarray, corpus: Corpus, k: int) -> np.ndarray:
    """The candidates (n, k) of a few vectors (n, dim), found in this process. Rows of the corpus must have ordinals."""
    unit, _ = unit_rows(vectors)
    queries = Block(torch.from_numpy(unit), np.zeros(len(unit), np.uint32))
    topk = TopK(len(unit), min(k, max(corpus.rows, 1)))
    for block in corpus.blocks:
        rows, has_direction = read_vectors(corpus, block)
        ordinals = ordinals_of_block(corpus, block)[has_direction]
        compare(queries, Block(torch.from_numpy(rows[has_direction]), ordinals), topk)
    return topk.candidates()
