"""What clusters are about: the assignments of rows, names, exemplars and figures, as datasets."""

import dataclasses
from collections import Counter
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pandas as pd
import pyarrow as pa

from sbert_core.clusters.algorithm import Clustering, ClusteringFields
from sbert_core.clusters.algorithms import find_algorithm
from sbert_core.clusters.density import reduce_vectors
from sbert_core.clusters.membership import link_centers, strength_by_centers
from sbert_core.clusters.names.cluster_names import ClusterPeriod
from sbert_core.clusters.names.term_counts import count_terms
from sbert_core.clusters.noise import NOISE
from sbert_core.clusters.quality import density_quality, quality_with_labels, quality_without_labels
from sbert_core.data.manifest import Manifest, Part, digest_of, part_name
from sbert_core.data.schema import assignments_schema
from sbert_core.errors import DataError
from sbert_core.sampling import is_sampled
from transforms.clusters.cluster_centers import read_centers
from transforms.clusters.cluster_files import (
    read_nearest,
    read_tally,
    read_vectors_of,
    store_radii,
    store_tally,
    store_vectors,
)
from transforms.clusters.cluster_plan import ClusterPlan, read_labels
from transforms.clusters.existing_clusters import read_existing_again
from transforms.clusters.summary_tables import over_time_table, summary_table
from transforms.clusters.tally import LabeledRows, Tally, far_cosines, merge_tallies, tally_ranges
from transforms.clusters.term_buckets import MergeTerms, partition_terms, read_buckets
from transforms.dataset.corpus import BlockRef, corpus_states, read_columns, read_vectors
from transforms.dataset.ordinals import ids_of, ordinals_of_block
from transforms.dataset.published import Draft
from transforms.dataset.write_parts import write_rows
from transforms.merge_values import MergeFn

QUALITY_ROWS = 3000  # rows that the quality is measured on

# Outputs of the blocks, beside their tallies.
TERMS, PERIODS, FAR, PARTS, LABELS, SAMPLED = "terms", "periods", "far", "parts", "labels", "sampled"

CANDIDATES, SAMPLE = "candidates", "quality"  # names of files with vectors of some rows of a block


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterOutput:
    """Where the datasets go, and which columns describe the clusters; it travels to every worker."""

    folder: str
    labels_column: str | None = None
    time_column: str | None = None
    period: str = "M"
    manifest: Manifest = dataclasses.field(default_factory=Manifest)
    existing: str | None = None  # the folder of clusters that rows were assigned to

    def part_name(self, kind: str, plan: ClusterPlan, number: int) -> str:
        """The name of a part of one of the datasets."""
        return part_name(kind, number, digest_of(self.manifest.source, self.manifest.settings, plan.digest))


@dataclasses.dataclass(kw_only=True, eq=False)
class DescribeClusters(beam.PTransform):
    """Writes `assignments` and `summary` (and `over_time` with a time column) of clusters.

    Input are the numbers of all blocks, output is one `Draft` for each dataset. Each block is described where it is
    read; one worker reads the merged tally and the terms. `plan` and `fields` hold one element each, `n_clusters` one
    number, when the centres are stored.
    """

    output: ClusterOutput
    plan: beam.PCollection[ClusterPlan]
    n_clusters: beam.PCollection[int]
    fields: beam.PCollection[ClusteringFields]

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, blocks: beam.PCollection[int]) -> beam.PCollection[Draft]:
        """Describes the blocks, merges what they contribute, and writes the tables."""
        plan, n_clusters, fields = map(beam.pvalue.AsSingleton, (self.plan, self.n_clusters, self.fields))
        described = blocks | "DescribeBlock" >> beam.FlatMap(
            _describe_block, self.output, plan, n_clusters
        ).with_outputs(TERMS, PERIODS, FAR, PARTS, LABELS, SAMPLED, main="tallies")
        tallies = (
            described.tallies
            | "AllTallies" >> beam.CombinePerKey(MergeFn(merge_tallies))
            | "StoreTallies" >> beam.Map(store_tally, plan)
        )
        radii = described[FAR] | "GroupFar" >> beam.GroupByKey() | "StoreRadii" >> beam.Map(store_radii, plan)
        ranges = beam.pvalue.AsList(tallies)
        side_inputs = {
            "ranges": ranges,
            "radii": radii | "AllRadii" >> beam.combiners.Count.Globally(),
            "candidates": blocks | "Candidates" >> beam.FlatMap(_store_candidates, plan, ranges),
            "terms": described[TERMS] | "MergeTerms" >> MergeTerms(plan=self.plan, name=TERMS),
            "periods": described[PERIODS] | "MergePeriods" >> MergeTerms(plan=self.plan, name=PERIODS),
            "parts": described[PARTS],
            "label_counts": described[LABELS] | "CountLabels" >> beam.CombinePerKey(sum),
            "sampled": described[SAMPLED],
        }
        as_lists = {name: each if name == "ranges" else beam.pvalue.AsList(each) for name, each in side_inputs.items()}
        return self.plan | "Summarize" >> beam.FlatMap(_summarize, self.output, fields, **as_lists)


def _describe_block(number: int, output: ClusterOutput, plan: ClusterPlan, n_clusters: int) -> Iterator[Any]:
    """Writes the assignments of a block; yields its tallies and, by tag, what else it contributes."""
    corpus, block, centers = plan.corpus, plan.corpus.blocks[number], read_centers(plan)
    stored = read_labels(plan, number)
    labels = stored.labels
    vectors, _ = read_vectors(corpus, block)
    scores = vectors @ centers.vectors.T if len(centers) else np.zeros((len(vectors), 1), np.float32)
    cosines = scores[np.arange(len(labels)), np.maximum(labels, 0)]
    strengths = strength_by_centers(scores, labels) if stored.strengths is None else stored.strengths
    part = _write_assignments(number, output, plan, dataclasses.replace(stored, strengths=strengths), 1 - cosines)
    yield _tagged(PARTS, part)
    rows = LabeledRows(labels, ordinals_of_block(corpus, block), cosines, vectors)
    yield from tally_ranges(rows, n_clusters)
    yield from (_tagged(FAR, each) for each in far_cosines(rows, centers))
    sample = rows[np.flatnonzero(is_sampled(rows.ordinals, corpus.rows, QUALITY_ROWS))]
    if len(sample):
        arrays = {"ordinals": sample.ordinals, "labels": sample.labels, "vectors": sample.vectors}
        yield _tagged(SAMPLED, store_vectors(plan, SAMPLE, number, **arrays))
    yield from _count_columns(block, output, plan, labels)


def _tagged(tag: str, value: Any) -> beam.pvalue.TaggedOutput:
    return beam.pvalue.TaggedOutput(tag, value)


def _count_columns(block: BlockRef, output: ClusterOutput, plan: ClusterPlan, labels: np.ndarray) -> Iterator[Any]:
    """What the columns of a block contribute: counts of its terms, and of its true labels."""
    column = plan.corpus.text_column
    table = read_columns(block, [c for c in (column, output.time_column, output.labels_column) if c])
    texts = [text or "" for text in table[column].cast(pa.string()).to_pylist()]
    yield from (_tagged(TERMS, counts) for counts in partition_terms(count_terms(texts, labels.tolist())))
    if output.time_column:
        counts_by_period = _count_by_period(table[output.time_column], output.period, texts, labels)
        yield from (_tagged(PERIODS, counts) for counts in partition_terms(counts_by_period))
    if output.labels_column:
        true_labels = table[output.labels_column].cast(pa.string()).to_pylist()
        found = Counter(zip(map(str, true_labels), labels.tolist(), strict=True))
        yield from (_tagged(LABELS, each) for each in found.items())


def _store_candidates(number: int, plan: ClusterPlan, ranges: list[int]) -> Iterator[int]:
    """Stores the unit vectors of the rows of a block that may become exemplars; yields its number if there are some."""
    block = plan.corpus.blocks[number]
    ordinals = ordinals_of_block(plan.corpus, block)
    chosen = np.flatnonzero(np.isin(ordinals, read_nearest(plan, ranges)))
    if len(chosen):
        vectors = read_vectors(plan.corpus, block)[0][chosen]
        yield store_vectors(plan, CANDIDATES, number, ordinals=ordinals[chosen], vectors=vectors)


def _write_assignments(
    number: int, output: ClusterOutput, plan: ClusterPlan, clustering: Clustering, distances: np.ndarray
) -> Part:
    """Writes the part of a block, from its clustering and the distances (n,) to the own centre."""
    corpus, block = plan.corpus, plan.corpus.blocks[number]
    ids = ids_of(corpus, ordinals_of_block(corpus, block))
    labels, outlier_scores = clustering.labels, clustering.outlier_scores
    is_noise = labels == NOISE
    batch = pa.record_batch(
        [
            ids,
            pa.array(labels),
            pa.array(clustering.strengths, pa.float32()),
            pa.array(is_noise),
            pa.nulls(len(labels), pa.float32()) if outlier_scores is None else pa.array(outlier_scores, pa.float32()),
            pa.array(distances, pa.float32(), mask=is_noise),
        ],
        schema=assignments_schema(ids.type),
    )
    name = output.part_name("assignments", plan, block.first_row)
    return write_rows(batch, f"{output.folder}/assignments", name)


def _count_by_period(
    column: pa.ChunkedArray, period: str, texts: list[str], labels: np.ndarray
) -> dict[ClusterPeriod, Counter[str]]:
    """How often terms occur in the texts of each cluster in each period; texts without a time are left out."""
    times = pd.to_datetime(column.to_pandas(), utc=True).dt.tz_localize(None)
    periods = times.dt.to_period(period).astype(str).to_numpy()
    counts: dict[ClusterPeriod, Counter[str]] = {}
    for each in np.unique(periods[times.notna()]):
        rows = np.flatnonzero(periods == each)
        found = count_terms([texts[row] for row in rows], labels[rows].tolist())
        counts |= {(cluster, str(each)): counter for cluster, counter in found.items()}
    return counts


def _summarize(
    plan: ClusterPlan,
    output: ClusterOutput,
    fields: ClusteringFields,
    *,
    ranges: list[int],
    radii: list[int],
    candidates: list[int],
    terms: list[int],
    periods: list[int],
    parts: list[Part],
    label_counts: list[tuple[tuple[str, int], int]],
    sampled: list[int],
) -> Iterator[Draft]:
    """Writes the tables of the clusters; yields a draft for each dataset.

    Lists are the numbers of what the steps before have stored. An empty corpus has no tally.
    """
    corpora = corpus_states([plan.corpus])
    if output.manifest.corpora not in (None, corpora):
        raise DataError(f"{plan.corpus.name} was replaced while it was read: run the same command again")
    centers = read_centers(plan)
    tally = read_tally(plan, ranges) if plan.corpus.rows else None
    manifest = dataclasses.replace(
        output.manifest,
        fingerprint=plan.corpus.fingerprint,
        corpora=corpora,
        quality=_measure_quality(plan, tally, sampled, label_counts if output.labels_column else None),
        hierarchy=link_centers(centers.vectors),
        **dataclasses.asdict(fields),
    )
    existing = read_existing_again(plan, output.existing) if output.existing is not None else None
    stored = read_vectors_of(plan, CANDIDATES, candidates)
    vectors = {
        int(ordinal): row for each in stored for ordinal, row in zip(each["ordinals"], each["vectors"], strict=True)
    }
    counts = read_buckets(plan, TERMS, terms)
    tables = {"summary": summary_table(plan.corpus, centers, tally, counts, existing, vectors)}
    if output.time_column:
        tables["over_time"] = over_time_table(read_buckets(plan, PERIODS, periods))
    written = {"assignments": parts}
    for kind, table in tables.items():
        written[kind] = [write_rows(table, f"{output.folder}/{kind}", output.part_name(kind, plan, 0))]
    for kind, each in written.items():
        yield Draft(f"{output.folder}/{kind}", dataclasses.replace(manifest, kind=kind).with_parts(each))


def _measure_quality(
    plan: ClusterPlan, tally: Tally | None, sampled: list[int], label_counts: list[tuple[tuple[str, int], int]] | None
) -> dict[str, Any]:
    """The measures for the manifest; silhouette and DBCV are those of a sample of the rows."""
    if tally is None:
        return {"noise_share": 0.0, "silhouette": None}
    stored = read_vectors_of(plan, SAMPLE, sampled)
    order = np.argsort(np.concatenate([each["ordinals"] for each in stored]))
    vectors, labels = (np.concatenate([each[name] for each in stored])[order] for name in ("vectors", "labels"))
    quality: dict[str, Any] = quality_without_labels(vectors, labels)
    quality["noise_share"] = tally.n_noise / plan.corpus.rows
    if find_algorithm(plan.settings.algorithm).is_density_based and len(labels):
        quality["dbcv"] = density_quality(reduce_vectors(vectors), labels)
    if label_counts is not None:
        pairs, counts = zip(*sorted(label_counts), strict=True)
        true_labels, found = (np.repeat(np.array(column), counts) for column in zip(*pairs, strict=True))
        quality |= quality_with_labels(true_labels, found)
    return quality
