"""What clusters are about: assignments of rows, names, exemplars and figures, as datasets."""

import dataclasses
from collections import Counter
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pandas as pd
import pyarrow as pa

from sbert_core.clusters.communities import NOISE
from sbert_core.clusters.density import reduce_vectors
from sbert_core.clusters.exemplars import choose_exemplars
from sbert_core.clusters.membership import link_centers, nearest_centers, strength_by_centers
from sbert_core.clusters.names.terms import count_terms, name_clusters, terms_over_time
from sbert_core.clusters.quality import density_quality, quality_with_labels, quality_without_labels
from sbert_core.data.manifest import Manifest, Part, digest_of, part_name
from sbert_core.data.schema import assignments_schema, clusters_schema, over_time_schema
from sbert_core.errors import DataError
from transforms.clusters.existing_clusters import ExistingClusters, read_existing
from transforms.clusters.labels import read_labels
from transforms.clusters.tally import Centers, MergeTerms, Rows, Tally, TallyFn, deal_terms, join_buckets, tally_block
from transforms.dataset.corpus import corpus_states, ranks_of_block, read_columns, read_vectors, sorted_ids, take_rows
from transforms.dataset.published import Draft
from transforms.dataset.write_parts import write_rows

EXEMPLARS = 5


@dataclasses.dataclass(kw_only=True, eq=False)
class DescribeClusters(beam.PTransform):
    """Writes `assignments` and `summary` (and `over_time`) of clusters below `folder`.

    Input is a dictionary: the `plan` of ClusterCorpus, its `blocks`, the `centers` and the `facts` of the labels.
    Output is one `Draft` for each dataset.
    """

    folder: str
    existing: str | None = None  # of these clusters the names, terms and reaches stay
    labels_column: str | None = None
    time_column: str | None = None
    period: str = "M"
    manifest: Manifest = dataclasses.field(default_factory=Manifest)

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, clustered: Any) -> beam.PCollection[Draft]:
        """Each block is described where it is read; one worker gets a tally, and the terms that count."""
        plan, centers, facts = (beam.pvalue.AsSingleton(clustered[name]) for name in ("plan", "centers", "facts"))
        tags = ("terms", "periods")
        described = clustered["blocks"] | "DescribeBlock" >> beam.FlatMap(self._describe, plan, centers).with_outputs(
            *tags, main="tallies"
        )
        terms, periods = (
            beam.pvalue.AsList(described[tag] | f"Merge{tag.capitalize()}" >> MergeTerms()) for tag in tags
        )
        return (
            described.tallies
            | "AllBlocks" >> beam.CombineGlobally(TallyFn())
            | "Summarize" >> beam.FlatMap(self._summarize, plan, centers, facts, terms, periods)
        )

    def _describe(self, number: int, plan: Any, centers: Centers) -> Iterator[Any]:
        corpus = plan.corpus
        block = corpus.blocks[number]
        ranks, known = ranks_of_block(corpus, block), read_labels(plan.labels_path(number))
        labels = known.labels
        vectors, _ = read_vectors(corpus, block)
        scores = vectors @ centers.vectors.T if len(centers) else np.zeros((len(vectors), 1), np.float32)
        cosines = scores[np.arange(len(labels)), np.maximum(labels, 0)]
        strengths = strength_by_centers(scores, labels) if known.strengths is None else known.strengths
        columns = {"strengths": strengths, "outliers": known.outlier_scores, "distances": 1 - cosines}
        part = self._write_assignments(plan, number, labels, columns)
        wanted = [column for column in (corpus.text_column, self.time_column, self.labels_column) if column]
        table = read_columns(block, wanted)
        texts = [text or "" for text in table[corpus.text_column].cast(pa.string()).to_pylist()]
        truth = table[self.labels_column].cast(pa.string()).to_pylist() if self.labels_column else []
        yield tally_block(part, Rows(labels, ranks, cosines, vectors), truth, centers, corpus.rows)
        for tag, counts in (
            ("terms", count_terms(texts, labels.tolist())),
            ("periods", self._count_over_time(table, texts, labels)),
        ):
            for dealt in deal_terms(counts):
                yield beam.pvalue.TaggedOutput(tag, dealt)

    def _write_assignments(
        self, plan: Any, number: int, labels: np.ndarray, columns: dict[str, np.ndarray | None]
    ) -> Part:
        corpus = plan.corpus
        block = corpus.blocks[number]
        ids = sorted_ids(corpus.work).take(pa.array(ranks_of_block(corpus, block)))
        noise, outliers = labels == NOISE, columns["outliers"]
        batch = pa.record_batch(
            [
                ids,
                pa.array(labels),
                pa.array(columns["strengths"], pa.float32()),
                pa.array(noise),
                pa.nulls(len(labels), pa.float32()) if outliers is None else pa.array(outliers, pa.float32()),
                pa.array(columns["distances"], pa.float32(), mask=noise),
            ],
            schema=assignments_schema(ids.type),
        )
        name = self._part_name("assignments", plan, block.first_row)
        return write_rows(batch, f"{self.folder}/assignments", name)

    def _part_name(self, kind: str, plan: Any, number: int) -> str:
        return part_name(kind, number, digest_of(self.manifest.source, self.manifest.settings, plan.digest))

    def _count_over_time(self, table: pa.Table, texts: list[str], labels: np.ndarray) -> dict[Any, Counter[str]]:
        if self.time_column is None:
            return {}
        times = pd.to_datetime(table[self.time_column].to_pandas(), utc=True).dt.tz_localize(None)
        periods = times.dt.to_period(self.period).astype(str).to_numpy()
        counts: dict[Any, Counter[str]] = {}
        for period in np.unique(periods[times.notna()]):
            chosen = np.flatnonzero(periods == period)
            found = count_terms([texts[row] for row in chosen], labels[chosen].tolist())
            counts |= {(cluster, str(period)): counter for cluster, counter in found.items()}
        return counts

    def _summarize(
        self,
        tallies: list[Tally],
        plan: Any,
        centers: Centers,
        facts: dict[str, Any],
        terms: list[tuple[int, dict[int, Counter[str]]]],
        periods: list[tuple[int, dict[tuple[int, str], Counter[str]]]],
    ) -> list[Draft]:
        tally = tallies[0] if tallies else None
        corpus = plan.corpus
        corpora = corpus_states([corpus])
        if self.manifest.corpora not in (None, corpora):
            raise DataError(f"{corpus.name} was replaced while it was read: run the same command again")
        manifest = dataclasses.replace(
            self.manifest,
            fingerprint=corpus.fingerprint,
            corpora=corpora,
            quality=self._quality(plan, tally),
            hierarchy=link_centers(centers.vectors),
            **facts,
        )
        existing = read_existing(self.existing) if self.existing else None
        tables = {"summary": _summary_table(corpus, tally, centers, join_buckets(terms), existing)}
        if self.time_column:
            tables["over_time"] = _over_time_table(join_buckets(periods))
        parts = {"assignments": tally.parts if tally else []}
        for kind, table in tables.items():
            parts[kind] = [write_rows(table, f"{self.folder}/{kind}", self._part_name(kind, plan, 0))]
        return [
            Draft(f"{self.folder}/{kind}", dataclasses.replace(manifest, kind=kind).with_parts(written))
            for kind, written in parts.items()
        ]

    def _quality(self, plan: Any, tally: Tally | None) -> dict[str, Any]:
        if tally is None:
            return {"noise_share": 0.0, "silhouette": None}
        sample = tally.sample[np.argsort(tally.sample.ranks)]
        quality: dict[str, Any] = quality_without_labels(sample.vectors, sample.labels)
        quality["noise_share"] = tally.noise / plan.corpus.rows
        if plan.how.algorithm.startswith("hdbscan") and len(sample.labels):
            quality["dbcv"] = density_quality(reduce_vectors(sample.vectors), sample.labels)
        if self.labels_column:
            kinds, counts = list(tally.truth), np.array(list(tally.truth.values()))
            truth, labels = (np.repeat(np.array(column), counts) for column in zip(*kinds, strict=True))
            quality |= quality_with_labels(truth, labels)
        return quality


def _over_time_table(counts: dict[tuple[int, str], Counter[str]]) -> pa.Table:
    rows = [
        {"cluster": cluster, "period": period, "terms": list(terms)}
        for (cluster, period), terms in terms_over_time(counts).items()
    ]
    return pa.Table.from_pylist(rows, schema=over_time_schema())


def _summary_table(
    corpus: Any,
    tally: Tally | None,
    centers: Centers,
    counts: dict[int, Counter[str]],
    existing: ExistingClusters | None,
) -> pa.Table:
    """One row per cluster, noise last; an existing cluster without rows has no exemplars and no cohesion."""
    wordless: dict[int, Counter[str]] = {int(cluster): Counter() for cluster in np.flatnonzero(centers.sizes)}
    named = {each.cluster: each for each in (existing.named if existing else name_clusters(wordless | counts))}
    nearest, nearness = nearest_centers(centers.vectors)
    chosen = [_exemplars(cluster, tally, centers) for cluster in range(len(centers))]
    ranks = np.unique(np.concatenate([*chosen, np.empty(0, np.uint32)])).astype(np.uint32)
    column = take_rows(corpus, ranks, [corpus.text_column])[corpus.text_column].cast(pa.string())
    texts = dict(zip(ranks.tolist(), column.to_pylist(), strict=True))
    ids = sorted_ids(corpus.work)
    rows = []
    for cluster, size in enumerate(centers.sizes.tolist()):
        exemplars = chosen[cluster].tolist()
        rows.append(
            {
                "cluster": cluster,
                "size": size,
                "name": named[cluster].name if cluster in named else f"cluster {cluster}",
                "terms": list(named[cluster].terms) if cluster in named else [],
                "exemplar_texts": [texts[rank] for rank in exemplars],
                "cohesion": tally.cohesion(cluster, size) if tally and size else None,
                "separation": float(1 - nearness[cluster]) if nearest[cluster] >= 0 else None,
                "nearest_cluster": int(nearest[cluster]) if nearest[cluster] >= 0 else None,
                "reach": _reach(cluster, size, tally, existing),
                "center": centers.vectors[cluster].tolist(),
            }
        )
    dim = centers.vectors.shape[1]
    if tally and tally.noise:
        empty: dict[str, Any] = {"terms": [], "exemplar_texts": [], "center": [0] * dim}
        rows.append({"cluster": NOISE, "size": tally.noise, "name": "noise", **empty})
        chosen.append(np.empty(0, np.uint32))
    schema = clusters_schema(ids.type, dim)
    place = schema.get_field_index("exemplar_ids")
    # Not from Python values: Arrow makes no lists of UUIDs from them.
    starts = np.cumsum([0, *map(len, chosen)]).astype(np.int32)
    flat = np.concatenate([*chosen, np.empty(0, np.uint32)]).astype(np.uint32)
    exemplar_ids = pa.ListArray.from_arrays(pa.array(starts), ids.take(pa.array(flat)))
    table = pa.Table.from_pylist(rows, schema=schema.remove(place))
    return table.add_column(place, schema.field(place), exemplar_ids)


def _reach(cluster: int, size: int, tally: Tally | None, existing: ExistingClusters | None) -> float | None:
    if existing:
        return float(existing.reaches[cluster])
    return tally.reach(cluster, size) if tally and size else None


def _exemplars(cluster: int, tally: Tally | None, centers: Centers) -> np.ndarray:
    """The ranks of the rows that show a cluster best."""
    if tally is None:
        return np.empty(0, np.uint32)
    near = tally.near.of(cluster)
    return near.ranks[choose_exemplars(near.vectors, centers.vectors[cluster], EXEMPLARS)]
