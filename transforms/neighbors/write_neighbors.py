"""Writes what mining found as Parquet datasets that are published together; first of them, the neighbours."""

import dataclasses

import apache_beam as beam
import numpy as np
import pyarrow as pa

from sbert_core.data.manifest import Manifest, Part, digest_of, part_name
from sbert_core.data.schema import neighbors_schema
from sbert_core.errors import DataError
from sbert_core.neighbors.candidates import EMPTY, ordinals_of, scores_of
from transforms.dataset.corpus import corpus_states
from transforms.dataset.ordinals import ids_of
from transforms.dataset.published import Draft
from transforms.dataset.write_parts import write_rows
from transforms.neighbors.audit import RecallAudit
from transforms.neighbors.mining_plan import BlockNeighbors, MinedHint, MiningPlan

PART_ROWS = 100_000


def mined_part_name(manifest: Manifest, plan: MiningPlan, number: int) -> str:
    """The name of a part of a mined dataset."""
    return part_name(str(manifest.kind), number, digest_of(manifest.source, manifest.settings, plan.digest))


def write_in_parts(table: pa.Table, folder: str, manifest: Manifest, plan: MiningPlan) -> list[Part]:
    """Writes the rows of a table as parts of at most PART_ROWS, in their order.

    A table without rows becomes one part, so that readers see its columns.
    """
    starts = range(0, max(len(table), 1), PART_ROWS)
    return [
        write_rows(table.slice(start, PART_ROWS), folder, mined_part_name(manifest, plan, start)) for start in starts
    ]


def draft_mined(
    parts: list[Part], plan: MiningPlan, audit: RecallAudit | str, folder: str, manifest: Manifest
) -> Draft:
    """A mined dataset that is ready to be published."""
    corpora = corpus_states(plan.corpora)
    if manifest.corpora not in (None, corpora):
        raise DataError(f"{plan.corpora[0].name} was replaced while it was read: run the same command again")
    complete = dataclasses.replace(
        manifest,
        fingerprint=plan.corpora[0].fingerprint,
        corpora=corpora,
        audit=audit if isinstance(audit, str) else dict(audit),
    )
    return Draft(folder, complete.with_parts(parts))


@dataclasses.dataclass(kw_only=True, eq=False)
class WriteNeighbors(beam.PTransform):
    """Writes the neighbours of the rows of the first corpus: id, neighbor_id, rank, score.

    There is one part per block, or several if k is large: see `divide_rows`.

    Input is `MinedNeighbors`, output one `Draft` for PublishDatasets.
    """

    folder: str
    manifest: Manifest = dataclasses.field(default_factory=Manifest)

    def __post_init__(self) -> None:
        super().__init__()
        self.manifest = dataclasses.replace(self.manifest, kind="neighbors")

    def expand(self, mined: MinedHint) -> beam.PCollection[Draft]:
        """Writes each block where it is."""
        plan, audit = beam.pvalue.AsSingleton(mined.plan), beam.pvalue.AsSingleton(mined.audit)
        return (
            mined.neighbors
            | "FirstCorpus" >> beam.Filter(_is_of_first_corpus)
            | "WritePart" >> beam.Map(_write_rows, plan, folder=self.folder, manifest=self.manifest)
            | "AllParts" >> beam.combiners.ToList()
            | "Draft" >> beam.Map(draft_mined, plan, audit, folder=self.folder, manifest=self.manifest)
        )


def _is_of_first_corpus(found: BlockNeighbors) -> bool:
    return found.side == 0


def _write_rows(found: BlockNeighbors, plan: MiningPlan, folder: str, manifest: Manifest) -> Part:
    corpus, other = plan.corpora[0], plan.corpora[-1]
    rows, slots = np.nonzero(found.candidates != EMPTY)
    candidates = found.candidates[rows, slots]
    ordinals, other_ordinals = plan.ordinals_of(found)[rows], ordinals_of(candidates)
    ids, other_ids = ids_of(corpus, ordinals), ids_of(other, other_ordinals)
    columns = [
        ids,
        other_ids,
        pa.array(slots + 1, pa.int32()),
        pa.array(scores_of(candidates)),
        pa.array(ordinals),
        pa.array(other_ordinals),
    ]
    table = pa.table(columns, schema=neighbors_schema(ids.type, other_ids.type))
    return write_rows(table, folder, mined_part_name(manifest, plan, plan.first_row(found)))
