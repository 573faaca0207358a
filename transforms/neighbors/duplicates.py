"""Groups of near-identical rows, derived from the neighbours of each row."""

import dataclasses
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbert_core.data.manifest import Manifest
from sbert_core.data.schema import duplicates_schema
from sbert_core.errors import DataError
from sbert_core.neighbors.contrasts import Contrasts
from sbert_core.neighbors.duplicate_groups import (
    choose_kept,
    join_chains,
    join_to_kept,
    keep_order,
    number_groups,
    places_of,
)
from sbert_core.neighbors.pairs import Pairs, join_pairs, pairs_of
from sbert_core.neighbors.topk import EMPTY, scores_of
from transforms.dataset.corpus import Corpus, ranks_of_block, read_vectors, sorted_ids, take_rows
from transforms.dataset.published import Draft
from transforms.neighbors.exact import Found, Plan
from transforms.neighbors.write_neighbors import audit_of, draft_mined, write_all

KEEP_RULES = ("first", "longest", "newest")


@dataclasses.dataclass(kw_only=True, eq=False)
class GroupDuplicates(beam.PTransform):
    """Writes the groups of near-identical rows, and which row of each to keep.

    Input is the dictionary of FindNeighbors of one corpus, output one `Draft`. `keep` is an order of the rows:
    "first" (lowest id first), "longest" (by text) or "newest" (by `newest_column`), equal ones by id. In this order a
    row is kept unless it has a cosine of at least `min_score` to a row that is kept already; a row that is not kept is
    in the group of the kept row with the highest cosine. With `chains`, rows are in a group if a chain of such cosines
    connects them, and the first in order is kept.

    A row of which all k neighbours are near may have more of them: `saturated_rows` of the manifest counts such rows
    among those that can change a group: the kept rows, or with `chains` all rows. 0 means that the groups are complete.
    """

    folder: str
    min_score: float = 0.95
    keep: str = "first"
    newest_column: str | None = None
    chains: bool = False
    manifest: Manifest = dataclasses.field(default_factory=Manifest)

    def __post_init__(self) -> None:
        super().__init__()
        self.manifest = dataclasses.replace(self.manifest, kind="duplicates")
        if self.keep not in KEEP_RULES:
            raise DataError(f"keep must be one of {', '.join(KEEP_RULES)}, got {self.keep!r}")
        if (self.keep == "newest") != (self.newest_column is not None):
            raise DataError("keep newest and a newest column belong together: give both or neither")

    def expand(self, mined: Any) -> beam.PCollection[Draft]:
        """Few rows have a duplicate: one worker groups them."""
        plan = beam.pvalue.AsSingleton(mined["plan"])
        return (
            mined["found"]
            | "NearPairs" >> beam.Map(near_pairs, plan, min_score=self.min_score)
            | "AllPairs" >> beam.combiners.ToList()
            | "Write" >> beam.Map(self._write, plan, audit_of(mined))
        )

    def _write(self, found: list[tuple[Pairs, np.ndarray]], plan: Plan, audit: list[dict[str, Any]]) -> Draft:
        corpus = plan.corpora[0]
        rows, pairs = places_of(join_pairs([pairs for pairs, _ in found]))
        table = take_rows(corpus, rows, [corpus.text_column, *([self.newest_column] if self.newest_column else [])])
        texts = table[corpus.text_column].cast(pa.string()).combine_chunks()
        order = keep_order(self._values(table, texts))
        saturated = np.isin(rows, np.concatenate([np.empty(0, np.uint32), *(ranks for _, ranks in found)]))
        if self.chains:
            own = join_chains(pairs, order)
            scores = cosines_between(corpus, rows, rows[own])
        else:
            kept = choose_kept(pairs, order)
            own, scores = join_to_kept(pairs, order, kept)
            saturated &= kept
        groups, sizes = number_groups(own)
        contrasts = Contrasts.of([text or "" for text in texts.to_pylist()])
        ids, places = sorted_ids(corpus.work), np.arange(len(rows))
        columns = [
            pa.array(groups, pa.int64()),
            pa.array(sizes, pa.int64()),
            ids.take(pa.array(rows)),
            pa.array(own == places),
            ids.take(pa.array(rows[own])),
            pa.array(scores),
            pa.array(contrasts.numbers_differ(places, own)),
            contrasts.negation_differs(places, own),
            texts,
        ]
        inside = np.argsort(groups, kind="stable")
        inside = inside[sizes[inside] > 1]  # a kept row is alone if all near it went to rows still nearer
        result = pa.table(columns, schema=duplicates_schema(ids.type)).take(pa.array(inside))
        parts = write_all(result, self.folder, self.manifest, plan)
        manifest = dataclasses.replace(
            self.manifest,
            groups=int(groups[inside].max(initial=-1)) + 1,
            saturated_rows=int(saturated.sum()),
        )
        return draft_mined(parts, plan, audit, self.folder, manifest)

    def _values(self, table: pa.Table, texts: pa.Array) -> np.ndarray:
        """What orders the rows (n,): the greatest value is kept first."""
        if self.keep == "longest":
            return pc.fill_null(pc.utf8_length(texts), -1).to_numpy(zero_copy_only=False)
        if self.keep == "newest":
            column = table[self.newest_column]
            ranks = pc.rank(column, sort_keys="ascending", tiebreaker="min").to_numpy().astype(np.int64)
            return np.where(column.is_null(), 0, ranks)
        return np.zeros(len(table))


def near_pairs(found: Found, plan: Plan, min_score: float) -> tuple[Pairs, np.ndarray]:
    """The pairs of a block that are near enough, and the ranks of its rows that have no place for more of them."""
    corpus = plan.corpora[0]
    ranks = ranks_of_block(corpus, corpus.blocks[found.block])
    pairs = pairs_of(found.best, ranks)
    last = found.best[:, -1]
    full = (last != EMPTY) & (scores_of(last) >= min_score) & (plan.k < corpus.rows - 1)
    return pairs[pairs.scores >= min_score], ranks[full]


def cosines_between(corpus: Corpus, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The cosine (n,) of each row (n,) to the other (n,), by rank; `rows` are sorted. Vectors of `others` are held."""
    held, places = np.unique(others, return_inverse=True)
    vectors = np.empty((len(held), corpus.dim), np.float32)
    for block in corpus.blocks:
        ranks = ranks_of_block(corpus, block)
        chosen = np.flatnonzero(np.isin(ranks, held))
        if len(chosen):
            vectors[np.searchsorted(held, ranks[chosen])] = read_vectors(corpus, block)[0][chosen]
    cosines = np.empty(len(rows), np.float32)
    for block in corpus.blocks:
        ranks = ranks_of_block(corpus, block)
        chosen = np.flatnonzero(np.isin(ranks, rows))
        if len(chosen):
            own = np.searchsorted(rows, ranks[chosen])
            unit = read_vectors(corpus, block)[0][chosen]
            cosines[own] = np.einsum("nd,nd->n", unit, vectors[places[own]])
    cosines[rows == others] = 1
    return cosines
