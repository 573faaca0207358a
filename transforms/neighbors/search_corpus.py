"""The rows of a corpus that are nearest to queries."""

import dataclasses

import apache_beam as beam
import numpy as np
import pyarrow as pa
import torch

from sbert_core.data.manifest import Manifest, Part
from sbert_core.data.schema import search_schema
from sbert_core.neighbors.cosine import Block, compare, unit_rows
from sbert_core.neighbors.topk import EMPTY, TopK, ranks_of, scores_of
from transforms.dataset.corpus import BLOCK_ROWS, Corpus, ranks_of_block, read_vectors, sorted_ids, take_rows
from transforms.dataset.published import Draft
from transforms.dataset.write_parts import write_rows
from transforms.neighbors.exact import FindNeighbors, Found, Plan
from transforms.neighbors.write_neighbors import audit_of, draft_mined, mined_part_name


@dataclasses.dataclass(kw_only=True, eq=False)
class SearchCorpus(beam.PTransform):
    """Writes for each query the `top_k` nearest rows of a corpus: query_id, query, rank, id, score, cosine, text.

    Input is a pipeline, output one `Draft`. Queries and corpus are datasets of the embed job, made with one model.
    `cross_encoder` names a model that scores and orders what was found; without it the score is the cosine.
    """

    queries: str
    corpus: str
    folder: str
    work: str
    top_k: int = 10
    cross_encoder: str | None = None
    block_rows: int = BLOCK_ROWS
    workers: int = 1  # processes on a machine: they share its cores
    manifest: Manifest = dataclasses.field(default_factory=Manifest)

    def __post_init__(self) -> None:
        super().__init__()
        self.manifest = dataclasses.replace(self.manifest, kind="search")

    def expand(self, root: beam.Pipeline) -> beam.PCollection[Draft]:
        """Finds the neighbours of queries in the corpus, not the other way round."""
        mined = root | "FindNeighbors" >> FindNeighbors(
            corpus=self.queries,
            other=self.corpus,
            work=self.work,
            k=self.top_k,
            both_sides=False,
            block_rows=self.block_rows,
            workers=self.workers,
        )
        plan = beam.pvalue.AsSingleton(mined["plan"])
        return (
            mined["found"]
            | "WritePart" >> beam.Map(self._write_hits, plan)
            | "AllParts" >> beam.combiners.ToList()
            | "Draft" >> beam.Map(draft_mined, plan, audit_of(mined), folder=self.folder, manifest=self.manifest)
        )

    def _write_hits(self, found: Found, plan: Plan) -> Part:
        queries, corpus = plan.corpora
        block = queries.blocks[found.block]
        ranks = ranks_of_block(queries, block)
        order = np.argsort(ranks)
        column = take_rows(queries, ranks[order], [queries.text_column])[queries.text_column]
        ids = sorted_ids(queries.work).take(pa.array(ranks[order]))
        table = describe_hits(found.best[order], ids, column.cast(pa.string()), corpus, self.cross_encoder)
        return write_rows(table, self.folder, mined_part_name(self.manifest, plan, block.first_row))


def describe_hits(
    best: np.ndarray, query_ids: pa.Array, queries: pa.ChunkedArray, corpus: Corpus, cross_encoder: str | None = None
) -> pa.Table:
    """The best candidates (n, k) of queries as rows for people, best first."""
    rows, places = np.nonzero(best != EMPTY)
    candidates = best[rows, places]
    ranks, cosines = ranks_of(candidates), scores_of(candidates)
    distinct, where = np.unique(ranks, return_inverse=True)
    column = take_rows(corpus, distinct, [corpus.text_column])[corpus.text_column]
    texts = column.cast(pa.string()).take(pa.array(where))
    asked = queries.take(pa.array(rows))
    scores = cosines
    if cross_encoder:
        from sbert_core.encoder.cross_encoder import CrossEncoder  # takes seconds, and few need it

        pairs = zip(asked.to_pylist(), texts.to_pylist(), strict=True)
        scores = CrossEncoder.load(cross_encoder).score(list(pairs)).astype(np.float32)
    order = np.lexsort((ranks, -cosines, -scores, rows))
    first = np.searchsorted(rows, rows)  # where the hits of each row's query begin
    ids = sorted_ids(corpus.work)
    columns = [
        query_ids.take(pa.array(rows[order])),
        asked.take(pa.array(order)),
        pa.array(np.arange(len(rows)) - first + 1, pa.int32()),
        ids.take(pa.array(ranks[order])),
        pa.array(scores[order]),
        pa.array(cosines[order]),
        texts.take(pa.array(order)),
    ]
    return pa.table(columns, schema=search_schema(query_ids.type, ids.type))


def search_here(vectors: np.ndarray, corpus: Corpus, k: int) -> np.ndarray:
    """The best candidates (n, k) of a few vectors, found in this process; the corpus must be ranked."""
    unit, _ = unit_rows(vectors)
    queries = Block(torch.from_numpy(unit), np.zeros(len(unit), np.uint32))
    best = TopK(len(unit), min(k, max(corpus.rows, 1)))
    for block in corpus.blocks:
        rows, some = read_vectors(corpus, block)
        compare(queries, Block(torch.from_numpy(rows[some]), ranks_of_block(corpus, block)[some]), best)
    return best.best()
