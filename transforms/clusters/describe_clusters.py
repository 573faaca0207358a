"""What clusters are about: the assignments of rows, names, exemplars and figures, as datasets."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeAlias

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
from transforms.clusters.cluster_centers import Centers
from transforms.clusters.cluster_plan import ClusterPlan, read_labels
from transforms.clusters.existing_clusters import ExistingClusters
from transforms.clusters.summary_tables import over_time_table, summary_table
from transforms.clusters.tally import LabeledRows, Tally, merge_tallies, tally_block
from transforms.clusters.term_buckets import MergeTerms, join_buckets, partition_terms
from transforms.dataset.corpus import corpus_states, read_columns, read_vectors
from transforms.dataset.ordinals import ids_of, ordinals_of_block
from transforms.dataset.published import Draft
from transforms.dataset.write_parts import write_rows
from transforms.merge_values import MergeFn

TERMS, PERIODS = "terms", "periods"  # outputs of the blocks, beside their tallies

TermsOutput: TypeAlias = beam.pvalue.TaggedOutput[Literal["terms"], tuple[int, bytes]]
PeriodsOutput: TypeAlias = beam.pvalue.TaggedOutput[Literal["periods"], tuple[int, bytes]]
TermBuckets = list[tuple[int, dict[int, Counter[str]]]]
PeriodBuckets = list[tuple[int, dict[ClusterPeriod, Counter[str]]]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterOutput:
    """Where the datasets go, and which columns describe the clusters; it travels to every worker."""

    folder: str
    labels_column: str | None = None
    time_column: str | None = None
    period: str = "M"
    manifest: Manifest = dataclasses.field(default_factory=Manifest)

    def part_name(self, kind: str, plan: ClusterPlan, number: int) -> str:
        """The name of a part of one of the datasets."""
        return part_name(kind, number, digest_of(self.manifest.source, self.manifest.settings, plan.digest))


@dataclasses.dataclass(kw_only=True, eq=False)
class DescribeClusters(beam.PTransform):
    """Writes `assignments` and `summary` (and `over_time` with a time column) of clusters.

    Input are the numbers of all blocks, output is one `Draft` for each dataset. Each block is described where it is
    read; one worker gets the merged tally and the terms. `plan`, `centers` and `fields` hold one element each;
    `existing` is a side input, None without existing clusters.
    """

    output: ClusterOutput
    plan: beam.PCollection[ClusterPlan]
    centers: beam.PCollection[Centers]
    fields: beam.PCollection[ClusteringFields]
    existing: beam.pvalue.AsSingleton | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, blocks: beam.PCollection[int]) -> beam.PCollection[Draft]:
        """Describes the blocks, merges what they contribute, and writes the tables."""
        plan, centers, fields = map(beam.pvalue.AsSingleton, (self.plan, self.centers, self.fields))
        described = blocks | "DescribeBlock" >> beam.FlatMap(_describe_block, self.output, plan, centers).with_outputs(
            TERMS, PERIODS, main="tallies"
        )
        terms = described[TERMS] | "MergeTerms" >> MergeTerms()
        periods = described[PERIODS] | "MergePeriods" >> MergeTerms()
        tally = described.tallies | "AllBlocks" >> beam.CombineGlobally(MergeFn(merge_tallies))
        candidates = blocks | "Candidates" >> beam.Map(_read_candidates, plan, beam.pvalue.AsSingleton(tally))
        return tally | "Summarize" >> beam.FlatMap(
            _summarize,
            self.output,
            plan,
            centers,
            fields,
            beam.pvalue.AsList(terms),
            beam.pvalue.AsList(periods),
            self.existing,
            beam.pvalue.AsIter(candidates),
        )


def _describe_block(
    number: int, output: ClusterOutput, plan: ClusterPlan, centers: Centers
) -> Iterator[Tally | TermsOutput | PeriodsOutput]:
    """Writes the assignments of a block; yields its tally and the counts of its terms."""
    corpus, block = plan.corpus, plan.corpus.blocks[number]
    stored = read_labels(plan, number)
    labels = stored.labels
    vectors, _ = read_vectors(corpus, block)
    scores = vectors @ centers.vectors.T if len(centers) else np.zeros((len(vectors), 1), np.float32)
    cosines = scores[np.arange(len(labels)), np.maximum(labels, 0)]
    strengths = strength_by_centers(scores, labels) if stored.strengths is None else stored.strengths
    part = _write_assignments(number, output, plan, dataclasses.replace(stored, strengths=strengths), 1 - cosines)
    table = read_columns(block, [c for c in (corpus.text_column, output.time_column, output.labels_column) if c])
    texts = [text or "" for text in table[corpus.text_column].cast(pa.string()).to_pylist()]
    true_labels = table[output.labels_column].cast(pa.string()).to_pylist() if output.labels_column else []
    rows = LabeledRows(labels, ordinals_of_block(corpus, block), cosines, vectors)
    yield tally_block(part, rows, true_labels, centers, corpus.rows)
    for counts in partition_terms(count_terms(texts, labels.tolist())):
        yield beam.pvalue.TaggedOutput(TERMS, counts)
    if output.time_column:
        for counts in partition_terms(_count_by_period(table[output.time_column], output.period, texts, labels)):
            yield beam.pvalue.TaggedOutput(PERIODS, counts)


def _read_candidates(number: int, plan: ClusterPlan, tally: Tally) -> tuple[np.ndarray, np.ndarray]:
    """The ordinals (n,) and unit vectors (n, dim) of the rows of a block that may become exemplars."""
    block = plan.corpus.blocks[number]
    ordinals = ordinals_of_block(plan.corpus, block)
    chosen = np.flatnonzero(np.isin(ordinals, tally.nearest.ordinals))
    if not len(chosen):
        return ordinals[:0], np.empty((0, plan.corpus.dim), np.float32)
    return ordinals[chosen], read_vectors(plan.corpus, block)[0][chosen]


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
    tally: Tally | None,
    output: ClusterOutput,
    plan: ClusterPlan,
    centers: Centers,
    fields: ClusteringFields,
    terms: TermBuckets,
    periods: PeriodBuckets,
    existing: ExistingClusters | None,
    candidates: Iterable[tuple[np.ndarray, np.ndarray]],
) -> Iterator[Draft]:
    """Writes the tables of the clusters; yields a draft for each dataset. `tally` is None for an empty corpus."""
    corpora = corpus_states([plan.corpus])
    if output.manifest.corpora not in (None, corpora):
        raise DataError(f"{plan.corpus.name} was replaced while it was read: run the same command again")
    manifest = dataclasses.replace(
        output.manifest,
        fingerprint=plan.corpus.fingerprint,
        corpora=corpora,
        quality=_measure_quality(plan, tally, has_true_labels=output.labels_column is not None),
        hierarchy=link_centers(centers.vectors),
        **dataclasses.asdict(fields),
    )
    vectors = {int(ordinal): row for ordinals, rows in candidates for ordinal, row in zip(ordinals, rows, strict=True)}
    tables = {"summary": summary_table(plan.corpus, centers, tally, join_buckets(terms), existing, vectors)}
    if output.time_column:
        tables["over_time"] = over_time_table(join_buckets(periods))
    parts = {"assignments": tally.parts if tally else []}
    for kind, table in tables.items():
        parts[kind] = [write_rows(table, f"{output.folder}/{kind}", output.part_name(kind, plan, 0))]
    for kind, written in parts.items():
        yield Draft(f"{output.folder}/{kind}", dataclasses.replace(manifest, kind=kind).with_parts(written))


def _measure_quality(plan: ClusterPlan, tally: Tally | None, *, has_true_labels: bool) -> dict[str, Any]:
    """The measures for the manifest; silhouette and DBCV are those of a sample of the rows."""
    if tally is None:
        return {"noise_share": 0.0, "silhouette": None}
    sample = tally.sample[np.argsort(tally.sample.ordinals)]
    quality: dict[str, Any] = quality_without_labels(sample.vectors, sample.labels)
    quality["noise_share"] = tally.n_noise / plan.corpus.rows
    if find_algorithm(plan.settings.algorithm).is_density_based and len(sample):
        quality["dbcv"] = density_quality(reduce_vectors(sample.vectors), sample.labels)
    if has_true_labels:
        pairs, counts = list(tally.label_counts), np.array(list(tally.label_counts.values()))
        true_labels, labels = (np.repeat(np.array(column), counts) for column in zip(*pairs, strict=True))
        quality |= quality_with_labels(true_labels, labels)
    return quality
