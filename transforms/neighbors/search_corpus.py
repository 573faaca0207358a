"""The rows of a corpus that are nearest to queries."""

import dataclasses

import apache_beam as beam
import numpy as np
import pyarrow as pa
import torch

from sbert_core.data.manifest import Manifest, Part
from sbert_core.data.schema import search_schema
from sbert_core.neighbors.candidates import EMPTY, ordinals_of, scores_of
from sbert_core.neighbors.cosine import Block, compare, unit_rows
from sbert_core.neighbors.topk import TopK
from transforms.dataset.corpus import BLOCK_ROWS, Corpus, ordinals_of_block, read_vectors, sorted_ids, take_rows
from transforms.dataset.published import Draft
from transforms.dataset.write_parts import write_rows
from transforms.neighbors.exact import FindNeighbors
from transforms.neighbors.mining_plan import BlockNeighbors, MinedNeighbors, MiningPlan
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
        )
        plan, audit = beam.pvalue.AsSingleton(mined.plan), beam.pvalue.AsSingleton(mined.audit)
        return (
            mined.neighbors
            | "WritePart"
            >> beam.Map(_write_hits, plan, folder=self.folder, manifest=self.manifest, cross_encoder=self.cross_encoder)
            | "AllParts" >> beam.combiners.ToList()
            | "Draft" >> beam.Map(draft_mined, plan, audit, folder=self.folder, manifest=self.manifest)
        )


def _write_hits(
    found: BlockNeighbors, plan: MiningPlan, folder: str, manifest: Manifest, cross_encoder: str | None
) -> Part:
    """Writes what was found for a block of queries, ordered by the ids of queries."""
    queries, corpus = plan.corpora
    block = queries.blocks[found.block]
    ordinals = ordinals_of_block(queries, block)
    order = np.argsort(ordinals)
    texts = take_rows(queries, ordinals[order], [queries.text_column])[queries.text_column]
    ids = sorted_ids(queries.work).take(pa.array(ordinals[order]))
    table = describe_hits(found.candidates[order], ids, texts.cast(pa.string()), corpus, cross_encoder)
    return write_rows(table, folder, mined_part_name(manifest, plan, block.first_row))


def describe_hits(
    candidates: np.ndarray,
    query_ids: pa.Array,
    queries: pa.ChunkedArray,
    corpus: Corpus,
    cross_encoder: str | None = None,
) -> pa.Table:
    """The candidates (n, k) of n queries as rows of the search dataset, in the order of queries, best first."""
    rows, slots = np.nonzero(candidates != EMPTY)
    ordinals, cosines = ordinals_of(candidates[rows, slots]), scores_of(candidates[rows, slots])
    distinct, index = np.unique(ordinals, return_inverse=True)
    column = take_rows(corpus, distinct, [corpus.text_column])[corpus.text_column]
    texts = column.cast(pa.string()).take(pa.array(index))
    query_of_hit = queries.take(pa.array(rows))
    scores = cosines
    if cross_encoder:
        from sbert_core.encoder.cross_encoder import CrossEncoder  # importing it takes seconds, and few jobs need it

        pairs = zip(query_of_hit.to_pylist(), texts.to_pylist(), strict=True)
        scores = CrossEncoder.load(cross_encoder).score(list(pairs)).astype(np.float32)
    order = np.lexsort((ordinals, -cosines, -scores, rows))
    first_hit = np.searchsorted(rows, rows)  # of the same query
    ids = sorted_ids(corpus.work)
    columns = [
        query_ids.take(pa.array(rows[order])),
        query_of_hit.take(pa.array(order)),
        pa.array(np.arange(len(rows)) - first_hit + 1, pa.int32()),
        ids.take(pa.array(ordinals[order])),
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
