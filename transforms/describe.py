"""What clusters are about: assignments of rows, names, exemplars and figures, as datasets."""

import dataclasses
from collections import Counter
from functools import partial
from typing import Any

import apache_beam as beam
import numpy as np
import pandas as pd
import pyarrow as pa

from sbert_core.communities import NOISE, SAMPLE
from sbert_core.density import reduce_vectors
from sbert_core.exemplars import choose_exemplars
from sbert_core.membership import link_centers, nearest_centers, strength_by_centers
from sbert_core.quality import density_quality, quality_with_labels, quality_without_labels
from sbert_core.schema import assignments_schema, clusters_schema, over_time_schema
from sbert_core.terms import count_terms, merge_counts, name_clusters, terms_over_time
from transforms.corpus import ranks_of_block, read_columns, read_vectors, sorted_ids, take_rows
from transforms.files import commit
from transforms.label import load_vectors, read_labels
from transforms.write import Part, write_manifest, write_parquet

CANDIDATES = 30  # rows near each centre that exemplars are chosen of
EXEMPLARS = 5


@dataclasses.dataclass(frozen=True, eq=False)
class Described:
    """What one block has to say of the clusters; parts are merged in the order of blocks."""

    number: int
    part: Part
    labels: np.ndarray  # (n,) int64
    cosines: np.ndarray  # (n,) float32, to the own centre
    near: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]]  # cluster: ranks, cosines, vectors of the nearest rows
    counts: dict[int, Counter[str]]
    over_time: dict[tuple[int, str], Counter[str]]
    truth: list[str] | None


@dataclasses.dataclass(kw_only=True, eq=False)
class DescribeClusters(beam.PTransform):
    """Writes `assignments` and `summary` (and `over_time`) of clusters below `folder`.

    Input is a dictionary: the `plan` of ClusterCorpus, its `blocks`, the `centers` and the `facts` of the labels.
    Output is the manifest of the summary.
    """

    folder: str
    labels_column: str | None = None
    time_column: str | None = None
    period: str = "M"
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, clustered: Any) -> beam.PCollection[dict[str, Any]]:
        """Each block is described where it is read; one worker puts the descriptions together."""
        plan, centers, facts = (beam.pvalue.AsSingleton(clustered[name]) for name in ("plan", "centers", "facts"))
        return (
            clustered["blocks"]
            | "DescribeBlock" >> beam.Map(self._describe, plan, centers)
            | "AllBlocks" >> beam.combiners.ToList()
            | "Summarize" >> beam.Map(self._summarize, plan, centers, facts)
        )

    def _describe(self, number: int, plan: Any, centers: np.ndarray) -> Described:
        corpus = plan.corpus
        block = corpus.blocks[number]
        ranks, known = ranks_of_block(corpus, block), read_labels(plan.labels_path)
        labels = known.labels[ranks]
        vectors, _ = read_vectors(corpus, block)
        scores = vectors @ centers.T if len(centers) else np.zeros((len(vectors), 1), np.float32)
        cosines = scores[np.arange(len(labels)), np.maximum(labels, 0)]
        strengths = strength_by_centers(scores, labels) if known.strengths is None else known.strengths[ranks]
        outliers = None if known.outlier_scores is None else known.outlier_scores[ranks]
        ids = sorted_ids(corpus.work).take(pa.array(ranks))
        noise = labels == NOISE
        columns = [
            ids,
            pa.array(labels),
            pa.array(strengths, pa.float32()),
            pa.array(noise),
            pa.nulls(len(labels), pa.float32()) if outliers is None else pa.array(outliers, pa.float32()),
            pa.array(1 - cosines, pa.float32(), mask=noise),
        ]
        batch = pa.record_batch(columns, schema=assignments_schema(ids.type))
        name = f"assignments-{plan.work.rsplit('/', 1)[-1][:8]}-{block.first_row:010d}.parquet"
        digest = commit(f"{self.folder}/assignments/{name}", partial(write_parquet, batch))
        wanted = [column for column in (corpus.text_column, self.time_column, self.labels_column) if column]
        table = read_columns(block, wanted)
        texts = [text or "" for text in table[corpus.text_column].cast(pa.string()).to_pylist()]
        truth = table[self.labels_column].cast(pa.string()).to_pylist() if self.labels_column else None
        return Described(
            number,
            Part(name, digest, len(batch)),
            labels,
            cosines.astype(np.float32),
            {
                cluster: _near(cluster, labels, cosines, ranks, vectors)
                for cluster in np.unique(labels[~noise]).tolist()
            },
            count_terms(texts, labels.tolist()),
            self._count_over_time(table, texts, labels),
            truth,
        )

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
        self, described: list[Described], plan: Any, centers: np.ndarray, facts: dict[str, Any]
    ) -> dict[str, Any]:
        corpus = plan.corpus
        described = sorted(described, key=lambda part: part.number)
        labels = np.concatenate([part.labels for part in described] or [np.empty(0, np.int64)])
        cosines = np.concatenate([part.cosines for part in described] or [np.empty(0, np.float32)])
        known = {**self.facts, **facts, "quality": self._quality(plan, described, labels)}
        known["hierarchy"] = link_centers(centers)
        parts = [part.part for part in described]
        write_manifest(parts, folder=f"{self.folder}/assignments", facts=known, totals=("rows",))
        table = _summary_table(corpus, described, labels, cosines, centers)
        if self.time_column:
            self._write_over_time(described, plan, known)
        summary = [_write(table, f"{self.folder}/summary", "summary", plan)]
        return write_manifest(summary, folder=f"{self.folder}/summary", facts=known, totals=("rows",))

    def _quality(self, plan: Any, described: list[Described], labels: np.ndarray) -> dict[str, Any]:
        ranks, vectors = load_vectors(plan.corpus, SAMPLE)
        everywhere = read_labels(plan.labels_path).labels if len(labels) else labels
        sampled = everywhere[ranks]
        quality: dict[str, Any] = quality_without_labels(vectors, sampled)
        quality["noise_share"] = float((labels == NOISE).mean()) if len(labels) else 0.0
        if plan.how.algorithm.startswith("hdbscan") and len(ranks):
            quality["dbcv"] = density_quality(reduce_vectors(vectors), sampled)
        if self.labels_column:
            truth = [str(value) for part in described for value in part.truth or ()]
            quality |= quality_with_labels(np.array(truth), labels)
        return quality

    def _write_over_time(self, described: list[Described], plan: Any, known: dict[str, Any]) -> None:
        counts: dict[Any, Counter[str]] = {}
        for part in described:
            for key, counter in part.over_time.items():
                counts.setdefault(key, Counter()).update(counter)
        rows = [
            {"cluster": cluster, "period": period, "terms": list(terms)}
            for (cluster, period), terms in terms_over_time(counts).items()
        ]
        table = pa.Table.from_pylist(rows, schema=over_time_schema())
        parts = [_write(table, f"{self.folder}/over_time", "over_time", plan)]
        write_manifest(parts, folder=f"{self.folder}/over_time", facts=known, totals=("rows",))


def _near(
    cluster: int, labels: np.ndarray, cosines: np.ndarray, ranks: np.ndarray, vectors: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rows of a cluster that are nearest its centre, of equal ones the lower rank."""
    rows = np.flatnonzero(labels == cluster)
    rows = rows[np.lexsort((ranks[rows], -cosines[rows]))[:CANDIDATES]]
    return ranks[rows], cosines[rows], vectors[rows]


def _summary_table(
    corpus: Any, described: list[Described], labels: np.ndarray, cosines: np.ndarray, centers: np.ndarray
) -> pa.Table:
    """One row per cluster, noise last."""
    named = {each.cluster: each for each in name_clusters(merge_counts([part.counts for part in described]))}
    nearest, nearness = nearest_centers(centers)
    chosen = {cluster: _exemplars(cluster, described, centers) for cluster in range(len(centers))}
    ranks = np.unique(np.concatenate([*chosen.values(), np.empty(0, np.uint32)])).astype(np.uint32)
    column = take_rows(corpus, ranks, [corpus.text_column])[corpus.text_column].cast(pa.string())
    texts = dict(zip(ranks.tolist(), column.to_pylist(), strict=True))
    ids = sorted_ids(corpus.work)
    rows = []
    for cluster in range(len(centers)):
        own = cosines[labels == cluster]
        exemplars = chosen[cluster].tolist()
        rows.append(
            {
                "cluster": cluster,
                "size": len(own),
                "name": named[cluster].name if cluster in named else f"cluster {cluster}",
                "terms": list(named[cluster].terms) if cluster in named else [],
                "exemplar_ids": [ids[rank].as_py() for rank in exemplars],
                "exemplar_texts": [texts[rank] for rank in exemplars],
                "cohesion": float(own.mean()) if len(own) else None,
                "separation": float(1 - nearness[cluster]) if nearest[cluster] >= 0 else None,
                "nearest_cluster": int(nearest[cluster]) if nearest[cluster] >= 0 else None,
                "reach": float(np.quantile(own, 0.01)) if len(own) else None,
                "center": centers[cluster].tolist(),
            }
        )
    noise = int((labels == NOISE).sum())
    if noise:
        empty: dict[str, Any] = {
            "terms": [],
            "exemplar_ids": [],
            "exemplar_texts": [],
            "center": [0] * centers.shape[1],
        }
        rows.append({"cluster": NOISE, "size": noise, "name": "noise", **empty})
    return pa.Table.from_pylist(rows, schema=clusters_schema(ids.type, centers.shape[1]))


def _exemplars(cluster: int, described: list[Described], centers: np.ndarray) -> np.ndarray:
    """The ranks of the rows that show a cluster best."""
    near = [part.near[cluster] for part in described if cluster in part.near]
    if not near:
        return np.empty(0, np.uint32)
    ranks, cosines, vectors = (np.concatenate(columns) for columns in zip(*near, strict=True))
    order = np.lexsort((ranks, -cosines))[:CANDIDATES]
    return ranks[order][choose_exemplars(vectors[order], centers[cluster], EXEMPLARS)]


def _write(table: pa.Table, folder: str, kind: str, plan: Any) -> Part:
    name = f"{kind}-{plan.work.rsplit('/', 1)[-1][:8]}-{0:010d}.parquet"
    table = table.combine_chunks()
    batch = table.to_batches()[0] if len(table) else pa.RecordBatch.from_pylist([], schema=table.schema)
    return Part(name, commit(f"{folder}/{name}", partial(write_parquet, batch)), len(table))
