"""Groups of near-identical rows, derived from the neighbours of each row."""

import dataclasses
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbert_core.duplicates import best_scores, choose_kept, group_rows
from sbert_core.errors import DataError
from sbert_core.pairs import Pairs, join_pairs, pairs_of
from sbert_core.schema import duplicates_schema
from sbert_core.topk import EMPTY, scores_of
from transforms.corpus import ranks_of_block, sorted_ids, take_rows
from transforms.mined import audit_of, commit_mined, write_all
from transforms.neighbors import Found, Plan

KEEP_RULES = ("first", "longest", "newest")


@dataclasses.dataclass(kw_only=True, eq=False)
class GroupDuplicates(beam.PTransform):
    """Writes the groups of near-identical rows, and which row of each to keep.

    Input is the dictionary of FindNeighbors of one corpus, output the manifest. Rows are in a group if a chain of
    neighbours with a cosine of at least `min_score` connects them. `keep` is "first" (the lowest id), "longest" (by
    text) or "newest" (by `newest_column`). Where a row has k neighbours above the threshold some links may be missing:
    `saturated_rows` of the manifest counts these rows, and 0 means that the groups are complete.
    """

    folder: str
    min_score: float = 0.95
    keep: str = "first"
    newest_column: str | None = None
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()
        if self.keep not in KEEP_RULES:
            raise DataError(f"keep must be one of {', '.join(KEEP_RULES)}, got {self.keep!r}")
        if (self.keep == "newest") != (self.newest_column is not None):
            raise DataError("keep newest and a newest column belong together: give both or neither")

    def expand(self, mined: Any) -> beam.PCollection[dict[str, Any]]:
        """Few rows have a duplicate: one worker connects them."""
        plan = beam.pvalue.AsSingleton(mined["plan"])
        return (
            mined["found"]
            | "NearPairs" >> beam.Map(near_pairs, plan, min_score=self.min_score)
            | "AllPairs" >> beam.combiners.ToList()
            | "Write" >> beam.Map(self._write, plan, audit_of(mined))
        )

    def _write(self, found: list[tuple[Pairs, int]], plan: Plan, audit: list[dict[str, Any]]) -> dict[str, Any]:
        corpus = plan.corpora[0]
        pairs = join_pairs([pairs for pairs, _ in found])
        rows, groups = group_rows(pairs)
        if self.newest_column and self.newest_column not in corpus.columns:
            raise DataError(f"{corpus.name} has no column {self.newest_column!r}: see --newest_column")
        wanted = [corpus.text_column, *([self.newest_column] if self.newest_column else [])]
        table = take_rows(corpus, rows, wanted)
        texts = table[corpus.text_column].cast(pa.string()).combine_chunks()
        values = np.zeros(len(rows))
        if self.keep == "longest":
            values = pc.fill_null(pc.utf8_length(texts), -1).to_numpy(zero_copy_only=False)
        elif self.keep == "newest":
            column = table[self.newest_column]
            values = np.where(column.is_null(), 0, pc.rank(column, sort_keys="ascending", tiebreaker="min")).astype(
                np.int64
            )
        ids = sorted_ids(corpus.work)
        sizes = np.bincount(groups)[groups] if len(groups) else groups
        columns = [
            pa.array(groups, pa.int64()),
            pa.array(sizes, pa.int64()),
            ids.take(pa.array(rows)),
            pa.array(choose_kept(groups, values)),
            pa.array(best_scores(pairs, rows)),
            texts,
        ]
        result = pa.table(columns, schema=duplicates_schema(ids.type)).take(pa.array(np.argsort(groups, kind="stable")))
        facts = {**self.facts, "groups": int(groups.max() + 1) if len(groups) else 0}
        facts["saturated_rows"] = sum(saturated for _, saturated in found)
        return commit_mined(write_all(result, self.folder, "duplicates", plan), plan, audit, self.folder, facts)


def near_pairs(found: Found, plan: Plan, min_score: float) -> tuple[Pairs, int]:
    """The pairs of a block that are near enough, and how many of its rows have no place for more of them."""
    corpus = plan.corpora[0]
    pairs = pairs_of(found.best, ranks_of_block(corpus, corpus.blocks[found.block]))
    last = found.best[:, -1]
    saturated = int(((last != EMPTY) & (scores_of(last) >= min_score)).sum())
    return pairs[pairs.scores >= min_score], saturated
