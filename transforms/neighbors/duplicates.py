"""Groups of near-identical rows, derived from the neighbours of each row."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbert_core.data.manifest import Manifest, digest_of
from sbert_core.data.schema import duplicates_schema
from sbert_core.errors import DataError
from sbert_core.neighbors.candidates import EMPTY, scores_of
from sbert_core.neighbors.contrasts import Contrasts
from sbert_core.neighbors.duplicate_groups import (
    assign_by_chains,
    assign_to_kept,
    choose_kept,
    index_pairs,
    keep_order,
)
from sbert_core.neighbors.pairs import Pairs, join_pairs, pairs_of
from sbert_core.numbering import number_labels
from transforms.dataset.corpus import Corpus, read_vectors
from transforms.dataset.ordinals import ids_of, ordinals_of_block, take_rows
from transforms.dataset.published import Draft
from transforms.neighbors.audit import RecallAudit
from transforms.neighbors.mining_plan import BlockNeighbors, MinedHint, MiningPlan
from transforms.neighbors.pair_buckets import bucket_path, by_bucket, read_pairs, store_pairs
from transforms.neighbors.write_neighbors import draft_mined, write_in_parts

KEEP_RULES = ("first", "longest", "newest")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DuplicateRule:
    """When rows are duplicates, and which one is kept."""

    min_score: float
    keep: str
    newest_column: str | None
    chains: bool

    def __post_init__(self) -> None:
        if self.keep not in KEEP_RULES:
            raise DataError(f"keep must be one of {', '.join(KEEP_RULES)}, got {self.keep!r}")
        if (self.keep == "newest") != (self.newest_column is not None):
            raise DataError("keep newest and a newest column belong together: give both or neither")

    @property
    def columns(self) -> list[str]:
        """The columns that the rule needs besides the text."""
        return [self.newest_column] if self.newest_column else []


@dataclasses.dataclass(kw_only=True, eq=False)
class GroupDuplicates(beam.PTransform):
    """Writes the groups of near-identical rows, and which row of each group to keep.

    Input is `MinedNeighbors` of one corpus, output one `Draft`. `keep` is an order of the rows: "first" (lowest id
    first), "longest" (by text) or "newest" (by `newest_column`), equal ones by id. In this order a row is kept unless
    its cosine to a row kept before it is at least `min_score`. A row that is not kept is in the group of the kept row
    with the highest cosine. With `chains`, rows are in one group if a chain of such cosines connects them, and the
    first in order is kept.

    If all k neighbours of a row are near, it may have more of them that were not found. `saturated_rows` of the
    manifest counts such rows among those that can change a group: kept rows, or with `chains` all rows. If it is 0, the
    groups are complete.
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
        self.rule = DuplicateRule(
            min_score=self.min_score, keep=self.keep, newest_column=self.newest_column, chains=self.chains
        )
        # Several of these transforms may use the files of one plan.
        self._files = f"near_{digest_of(self.folder, self.min_score)[:8]}"

    def expand(self, mined: MinedHint) -> beam.PCollection[Draft]:
        """Finds near pairs on many workers; one worker groups them, as few rows have a duplicate."""
        plan, audit = beam.pvalue.AsSingleton(mined.plan), beam.pvalue.AsSingleton(mined.audit)
        return (
            mined.neighbors
            | "NearPairs" >> beam.FlatMap(near_pairs, plan, min_score=self.min_score)
            | "GroupByBucket" >> beam.GroupByKey()
            | "StorePairs" >> beam.Map(_store_bucket, plan, files=self._files)
            | "AllBuckets" >> beam.combiners.ToList()
            | "Write"
            >> beam.Map(
                _write_duplicates,
                plan,
                audit,
                rule=self.rule,
                files=self._files,
                folder=self.folder,
                manifest=self.manifest,
            )
        )


@dataclasses.dataclass(frozen=True, eq=False)
class NearPairs:
    """Near pairs, and rows (n,), by ordinal, that may have more near neighbours than were found."""

    pairs: Pairs
    saturated: np.ndarray


def near_pairs(found: BlockNeighbors, plan: MiningPlan, min_score: float) -> Iterator[tuple[int, NearPairs]]:
    """The pairs with a cosine of at least `min_score` of the rows whose neighbours were found, by bucket."""
    ordinals = plan.ordinals_of(found)
    pairs = pairs_of(found.candidates, ordinals)
    pairs = pairs[pairs.scores >= min_score]
    last = found.candidates[:, -1]
    is_saturated = (last != EMPTY) & (scores_of(last) >= min_score) & (plan.k < plan.corpora[0].rows - 1)
    for bucket, which in by_bucket(pairs.first, plan):
        yield bucket, NearPairs(pairs[which], ordinals[:0])
    for bucket, which in by_bucket(ordinals[is_saturated], plan):
        yield bucket, NearPairs(pairs[:0], ordinals[is_saturated][which])


def _store_bucket(item: tuple[int, Iterable[NearPairs]], plan: MiningPlan, *, files: str) -> int:
    """Stores what was found for a bucket; returns its number."""
    bucket, found = item
    parts = list(found)
    saturated = np.concatenate([part.saturated for part in parts])
    store_pairs(bucket_path(plan, files, bucket), join_pairs([part.pairs for part in parts]), saturated=saturated)
    return bucket


def _read_buckets(plan: MiningPlan, files: str, buckets: Sequence[int]) -> NearPairs:
    """What was found for all rows."""
    stored = [read_pairs(bucket_path(plan, files, bucket)) for bucket in sorted(buckets)]
    saturated = [np.empty(0, np.uint32), *(others["saturated"] for _, others in stored)]
    return NearPairs(join_pairs([pairs for pairs, _ in stored]), np.concatenate(saturated))


@dataclasses.dataclass(frozen=True, eq=False)
class _Grouping:
    """The group of each of n rows that have a near neighbour."""

    kept_rows: np.ndarray  # (n,) the row that is kept instead of each row, among the n
    scores: np.ndarray  # (n,) the cosine to it
    can_change_groups: np.ndarray  # (n,) bool: whether further neighbours of a row would change a group


def _write_duplicates(
    buckets: list[int],
    plan: MiningPlan,
    audit: RecallAudit | str,
    *,
    rule: DuplicateRule,
    files: str,
    folder: str,
    manifest: Manifest,
) -> Draft:
    """Groups the near pairs of all buckets and writes the groups."""
    corpus, found = plan.corpora[0], _read_buckets(plan, files, buckets)
    ordinals, pairs = index_pairs(found.pairs)
    table = take_rows(corpus, ordinals, [corpus.text_column, *rule.columns])
    texts = table[corpus.text_column].cast(pa.string()).combine_chunks()
    grouping = _group(corpus, ordinals, pairs, keep_order(_keep_values(rule, table, texts)), rule.chains)
    saturated = np.isin(ordinals, found.saturated)
    result = _duplicates_table(corpus, ordinals, grouping, texts)
    parts = write_in_parts(result, folder, manifest, plan)
    complete = dataclasses.replace(
        manifest,
        groups=len(pc.unique(result["group"])),
        saturated_rows=int((saturated & grouping.can_change_groups).sum()),
    )
    return draft_mined(parts, plan, audit, folder, complete)


def _keep_values(rule: DuplicateRule, table: pa.Table, texts: pa.Array) -> np.ndarray:
    """The value (n,) of each row by which rows are kept, the greatest first."""
    if rule.keep == "longest":
        return pc.fill_null(pc.utf8_length(texts), -1).to_numpy(zero_copy_only=False)
    if rule.keep == "newest":
        column = table[rule.newest_column]
        positions = pc.rank(column, sort_keys="ascending", tiebreaker="min").to_numpy().astype(np.int64)
        return np.where(column.is_null(), 0, positions)
    return np.zeros(len(table))


def _group(corpus: Corpus, ordinals: np.ndarray, pairs: Pairs, order: np.ndarray, chains: bool) -> _Grouping:
    if chains:
        kept_rows = assign_by_chains(pairs, order)
        scores = cosines_between(corpus, ordinals, ordinals[kept_rows])
        return _Grouping(kept_rows, scores, np.ones(len(ordinals), bool))
    is_kept = choose_kept(pairs, order)
    return _Grouping(*assign_to_kept(pairs, order, is_kept), is_kept)


def _duplicates_table(corpus: Corpus, ordinals: np.ndarray, grouping: _Grouping, texts: pa.Array) -> pa.Table:
    """The rows of groups of two and more, ordered by group and id."""
    rows, kept_rows = np.arange(len(ordinals)), grouping.kept_rows
    groups = number_labels(kept_rows)
    sizes = np.bincount(groups)[groups]
    contrasts = Contrasts.of([text or "" for text in texts.to_pylist()])
    ids = ids_of(corpus, ordinals)
    columns = [
        pa.array(groups, pa.int64()),
        pa.array(sizes, pa.int64()),
        ids,
        pa.array(kept_rows == rows),
        ids.take(pa.array(kept_rows)),
        pa.array(grouping.scores),
        pa.array(contrasts.numbers_differ(rows, kept_rows)),
        contrasts.negation_differs(rows, kept_rows),
        texts,
    ]
    by_group = np.argsort(groups, kind="stable")
    # A kept row is alone if all rows near it are nearer to other kept rows.
    in_groups = by_group[sizes[by_group] > 1]
    return pa.table(columns, schema=duplicates_schema(ids.type)).take(pa.array(in_groups))


def cosines_between(corpus: Corpus, ordinals: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The cosine (n,) of each row (n,), by ascending ordinal, to another row (n,).

    Blocks are read one by one; the vectors of all distinct `others` are held in memory.
    """
    distinct, index = np.unique(others, return_inverse=True)
    vectors = np.empty((len(distinct), corpus.dim), np.float32)
    for block in corpus.blocks:
        own = ordinals_of_block(corpus, block)
        chosen = np.flatnonzero(np.isin(own, distinct))
        if len(chosen):
            vectors[np.searchsorted(distinct, own[chosen])] = read_vectors(corpus, block)[0][chosen]
    cosines = np.empty(len(ordinals), np.float32)
    for block in corpus.blocks:
        own = ordinals_of_block(corpus, block)
        chosen = np.flatnonzero(np.isin(own, ordinals))
        if len(chosen):
            rows = np.searchsorted(ordinals, own[chosen])
            unit = read_vectors(corpus, block)[0][chosen]
            cosines[rows] = np.einsum("nd,nd->n", unit, vectors[index[rows]])
    cosines[ordinals == others] = 1
    return cosines
