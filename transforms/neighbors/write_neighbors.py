"""What mining writes: Parquet datasets, to be published together; and the first of them, the neighbours."""

import dataclasses
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from sbert_core.data.manifest import Manifest, Part, digest_of, part_name
from sbert_core.data.schema import neighbors_schema
from sbert_core.errors import DataError
from sbert_core.neighbors.topk import EMPTY, ranks_of, scores_of
from transforms.dataset.corpus import corpus_states, ranks_of_block, sorted_ids
from transforms.dataset.published import Draft
from transforms.dataset.write_parts import write_rows
from transforms.neighbors.exact import Found, Plan

PART_ROWS = 100_000


def mined_part_name(manifest: Manifest, plan: Plan, number: int) -> str:
    """The name of a part of a dataset that is mined."""
    return part_name(str(manifest.kind), number, digest_of(manifest.source, manifest.settings, plan.digest))


def write_all(table: pa.Table, folder: str, manifest: Manifest, plan: Plan) -> list[Part]:
    """Commits rows as parts of bounded size, in their order; no rows are one part that tells the columns."""
    starts = range(0, max(len(table), 1), PART_ROWS)
    return [
        write_rows(table.slice(start, PART_ROWS), folder, mined_part_name(manifest, plan, start)) for start in starts
    ]


def draft_mined(parts: list[Part], plan: Plan, audit: list[dict[str, Any]], folder: str, manifest: Manifest) -> Draft:
    """A dataset that was mined, ready to be published."""
    corpora = corpus_states(plan.corpora)
    if manifest.corpora not in (None, corpora):
        raise DataError(f"{plan.corpora[0].name} was replaced while it was read: run the same command again")
    fingerprint = plan.corpora[0].fingerprint
    whole = dataclasses.replace(
        manifest, fingerprint=fingerprint, corpora=corpora, audit=audit[0] if audit else "exact"
    )
    return Draft(folder, whole.with_parts(parts))


def audit_of(mined: dict[str, Any]) -> Any:
    """What FindRoutedNeighbors measured of itself; nothing for the exact answer."""
    return beam.pvalue.AsList(mined["audit"]) if "audit" in mined else []


@dataclasses.dataclass(kw_only=True, eq=False)
class WriteNeighbors(beam.PTransform):
    """Writes the neighbours that FindNeighbors found: id, neighbor_id, rank, score; one part per block.

    Input is the dictionary of FindNeighbors, output one `Draft` for PublishDatasets.
    """

    folder: str
    manifest: Manifest = dataclasses.field(default_factory=Manifest)

    def __post_init__(self) -> None:
        super().__init__()
        self.manifest = dataclasses.replace(self.manifest, kind="neighbors")

    def expand(self, mined: Any) -> beam.PCollection[Draft]:
        """Writes the blocks of the first corpus."""
        plan = beam.pvalue.AsSingleton(mined["plan"])
        return (
            mined["found"]
            | "OwnSide" >> beam.Filter(lambda found: found.side == 0)
            | "WritePart" >> beam.Map(_write_neighbors, plan, folder=self.folder, manifest=self.manifest)
            | "AllParts" >> beam.combiners.ToList()
            | "Draft" >> beam.Map(draft_mined, plan, audit_of(mined), folder=self.folder, manifest=self.manifest)
        )


def _write_neighbors(found: Found, plan: Plan, folder: str, manifest: Manifest) -> Part:
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
    return write_rows(table, folder, mined_part_name(manifest, plan, corpus.blocks[found.block].first_row))
