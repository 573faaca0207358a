"""What mining writes: Parquet datasets, each with its manifest; and the first of them, the neighbours."""

import dataclasses
from functools import partial
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from sbert_core.schema import neighbors_schema
from sbert_core.topk import EMPTY, ranks_of, scores_of
from transforms.corpus import ranks_of_block, sorted_ids
from transforms.files import commit
from transforms.neighbors import Found, Plan
from transforms.write import Part, write_manifest, write_parquet

PART_ROWS = 100_000


def write_rows(table: pa.Table, folder: str, kind: str, plan: Plan, number: int) -> Part:
    """Commits rows as the part of this number."""
    name = f"{kind}-{plan.work.rsplit('/', 1)[-1][:8]}-{number:010d}.parquet"
    batch = pa.record_batch([column.combine_chunks() for column in table.columns], schema=table.schema)
    digest = commit(f"{folder}/{name}", partial(write_parquet, batch))
    return Part(name, digest, len(table), fingerprint=plan.corpora[0].fingerprint)


def write_all(table: pa.Table, folder: str, kind: str, plan: Plan) -> list[Part]:
    """Commits rows as parts of bounded size, in their order; no rows are one part that tells the columns."""
    starts = range(0, max(len(table), 1), PART_ROWS)
    return [write_rows(table.slice(start, PART_ROWS), folder, kind, plan, start) for start in starts]


def commit_mined(
    parts: list[Part], plan: Plan, audit: list[dict[str, Any]], folder: str, facts: dict[str, Any]
) -> dict[str, Any]:
    """Commits the manifest of a dataset that was mined."""
    corpora = [{"rows": corpus.rows, "digest": corpus.digest} for corpus in plan.corpora]
    known = {**facts, "corpora": corpora, "audit": audit[0] if audit else "exact"}
    return write_manifest(parts, folder=folder, facts=known, totals=("rows",))


def audit_of(mined: dict[str, Any]) -> Any:
    """What FindRoutedNeighbors measured of itself; nothing for the exact answer."""
    return beam.pvalue.AsList(mined["audit"]) if "audit" in mined else []


@dataclasses.dataclass(kw_only=True, eq=False)
class WriteNeighbors(beam.PTransform):
    """Writes the neighbours that FindNeighbors found: id, neighbor_id, rank, score; one part per block.

    Input is the dictionary of FindNeighbors, output the manifest.
    """

    folder: str
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, mined: Any) -> beam.PCollection[dict[str, Any]]:
        """Writes the blocks of the first corpus."""
        plan = beam.pvalue.AsSingleton(mined["plan"])
        return (
            mined["found"]
            | "OwnSide" >> beam.Filter(lambda found: found.side == 0)
            | "WritePart" >> beam.Map(_write_neighbors, plan, folder=self.folder)
            | "AllParts" >> beam.combiners.ToList()
            | "Commit" >> beam.Map(commit_mined, plan, audit_of(mined), folder=self.folder, facts=self.facts)
        )


def _write_neighbors(found: Found, plan: Plan, folder: str) -> Part:
    corpus, other = plan.corpora[0], plan.corpora[-1]
    ids, other_ids = sorted_ids(corpus.work), sorted_ids(other.work)
    ranks = ranks_of_block(corpus, corpus.blocks[found.block])
    rows, places = np.nonzero(found.best != EMPTY)
    best = found.best[rows, places]
    columns = [
        ids.take(pa.array(ranks[rows])),
        other_ids.take(pa.array(ranks_of(best))),
        pa.array(places + 1, pa.int32()),
        pa.array(scores_of(best)),
    ]
    table = pa.table(columns, schema=neighbors_schema(ids.type, other_ids.type))
    return write_rows(table, folder, "neighbors", plan, corpus.blocks[found.block].first_row)
