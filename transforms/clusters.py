"""Clusters of a corpus: every row's cluster, and what each cluster is about."""

import dataclasses
import hashlib
import json
from typing import Any

import apache_beam as beam
import numpy as np

from sbert_core.communities import NOISE, drop_small
from sbert_core.cosine import unit_rows
from sbert_core.kmeans import add_up, assign, move_centers
from sbert_core.membership import strength_by_centers
from transforms.corpus import BLOCK_ROWS, Corpus, open_corpus, rank_rows, ranks_of_block, read_vectors
from transforms.describe import DescribeClusters
from transforms.label import Clustering, Labels, existing_centers, label_rows, read_labels, start_kmeans, store_labels

KMEANS_ROUNDS = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterPlan:
    """What is to be clustered; it travels to every worker."""

    corpus: Corpus
    neighbors: str
    how: Clustering
    work: str

    @property
    def labels_path(self) -> str:
        """Where the labels of all rows are kept for workers."""
        return f"{self.work}/labels.npz"


@dataclasses.dataclass(kw_only=True, eq=False)
class ClusterCorpus(beam.PTransform):
    """Clusters the rows of an embedded corpus and describes the clusters.

    Input is a pipeline. Writes the datasets `assignments` and `summary` (and `over_time` with a time column) below
    `folder`; output is the manifest of the summary. Graph algorithms need the `neighbors` that mining wrote. With
    `existing`, a folder of clusters, rows are assigned to the nearest of those and nothing is clustered anew. The
    same rows give the same labels, however they are cut into files; clusters are numbered by size, noise is -1.
    """

    embeddings: str
    neighbors: str
    folder: str
    work: str
    how: Clustering = dataclasses.field(default_factory=Clustering)
    existing: str | None = None
    labels_column: str | None = None
    time_column: str | None = None
    period: str = "M"
    block_rows: int = BLOCK_ROWS
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, root: beam.Pipeline) -> beam.PCollection[dict[str, Any]]:
        """Labels all rows, finds the centres of the clusters, and describes them."""
        plan = root | "Folder" >> beam.Create([self.work]) | "Plan" >> beam.Map(lambda _: self.make_plan())
        planned = beam.pvalue.AsSingleton(plan)
        blocks = (
            plan
            | "Blocks" >> beam.FlatMap(lambda plan: range(len(plan.corpus.blocks)))
            | "SpreadBlocks" >> beam.Reshuffle()
        )
        if self.existing is not None:
            labeled = plan | "Assign" >> beam.Map(_assign_all, self.existing)
        elif self.how.algorithm == "kmeans":
            labeled = self._kmeans(plan, blocks)
        else:
            labeled = plan | "Label" >> beam.Map(_label)
        facts = beam.pvalue.AsSingleton(labeled)
        centers = (
            blocks
            | "Sums" >> beam.Map(_block_sums, planned, facts)
            | "AllSums" >> beam.combiners.ToList()
            | "Centers" >> beam.Map(_centers, planned)
        )
        return {"plan": plan, "blocks": blocks, "centers": centers, "facts": labeled} | "Describe" >> DescribeClusters(
            folder=self.folder,
            labels_column=self.labels_column,
            time_column=self.time_column,
            period=self.period,
            facts=self.facts,
        )

    def _kmeans(self, plan: Any, blocks: Any) -> Any:
        """Sums of the vectors of each cluster, block by block, move the centres; a few rounds of it."""
        planned = beam.pvalue.AsSingleton(plan)
        centers = plan | "Start" >> beam.Map(lambda plan: start_kmeans(plan.corpus, plan.how))
        for number in range(KMEANS_ROUNDS):
            centers = (
                blocks
                | f"Sums{number}" >> beam.Map(_assigned_sums, planned, beam.pvalue.AsSingleton(centers))
                | f"AllSums{number}" >> beam.combiners.ToList()
                | f"Move{number}" >> beam.Map(_moved, beam.pvalue.AsSingleton(centers))
            )
        return (
            blocks
            | "Nearest" >> beam.Map(_nearest, planned, beam.pvalue.AsSingleton(centers))
            | "AllNearest" >> beam.combiners.ToList()
            | "Store" >> beam.Map(_store_kmeans, planned, beam.pvalue.AsSingleton(centers))
        )

    def make_plan(self) -> ClusterPlan:
        """Looks into the corpus and ranks its rows."""
        corpus = open_corpus(self.embeddings, self.block_rows)
        decides = [corpus.digest, dataclasses.asdict(self.how), self.existing]
        work = f"{self.work}/{hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:16]}"
        ranked = rank_rows(corpus, f"{work}/corpus")
        return ClusterPlan(corpus=ranked, neighbors=self.neighbors, how=self.how, work=work)


def _label(plan: ClusterPlan) -> dict[str, Any]:
    labels = label_rows(plan.corpus, plan.neighbors, plan.how)
    return _store(labels, plan)


def _store(labels: Labels, plan: ClusterPlan) -> dict[str, Any]:
    store_labels(plan.labels_path, labels)
    return {**labels.facts, "clusters": int(labels.labels.max(initial=NOISE)) + 1}


def _assigned_sums(number: int, plan: ClusterPlan, centers: np.ndarray) -> tuple[int, np.ndarray]:
    vectors, some = read_vectors(plan.corpus, plan.corpus.blocks[number])
    return number, add_up(vectors[some], assign(vectors[some], centers)[0], len(centers))[0]


def _moved(sums: list[tuple[int, np.ndarray]], centers: np.ndarray) -> np.ndarray:
    ordered = [part for _, part in sorted(sums, key=lambda part: part[0])]
    return move_centers(centers, np.sum(ordered, axis=0)) if ordered else centers


def _nearest(number: int, plan: ClusterPlan, centers: np.ndarray) -> tuple[int, np.ndarray]:
    vectors, some = read_vectors(plan.corpus, plan.corpus.blocks[number])
    return number, np.where(some, assign(vectors, centers)[0], NOISE)


def _store_kmeans(parts: list[tuple[int, np.ndarray]], plan: ClusterPlan, centers: np.ndarray) -> dict[str, Any]:
    labels = np.full(plan.corpus.rows, NOISE, np.int64)
    for number, own in parts:
        labels[ranks_of_block(plan.corpus, plan.corpus.blocks[number])] = own
    return _store(Labels(drop_small(labels, plan.how.min_size), facts={"k": len(centers)}), plan)


def _assign_all(plan: ClusterPlan, existing: str) -> dict[str, Any]:
    """Rows to the nearest cluster of an earlier clustering; a row out of its reach is noise."""
    centers, reach = existing_centers(existing)
    labels = np.full(plan.corpus.rows, NOISE, np.int64)
    strengths = np.zeros(plan.corpus.rows, np.float32)
    for block in plan.corpus.blocks:
        vectors, some = read_vectors(plan.corpus, block)
        own, scores = assign(vectors, centers)
        own = np.where(some & (scores >= reach[own]), own, NOISE)
        ranks = ranks_of_block(plan.corpus, block)
        labels[ranks], strengths[ranks] = own, strength_by_centers(vectors @ centers.T, own)
    store_labels(plan.labels_path, Labels(labels, strengths))
    return {"clusters": len(centers), "existing": True}


def _block_sums(number: int, plan: ClusterPlan, facts: dict[str, Any]) -> tuple[int, np.ndarray]:
    """The sums of the vectors of each cluster in a block."""
    block = plan.corpus.blocks[number]
    labels = read_labels(plan.labels_path).labels[ranks_of_block(plan.corpus, block)]
    vectors, _ = read_vectors(plan.corpus, block)
    inside = labels != NOISE
    return number, add_up(vectors[inside], labels[inside], facts["clusters"])[0]


def _centers(sums: list[tuple[int, np.ndarray]], plan: ClusterPlan) -> np.ndarray:
    """The directions of the sums, one per cluster."""
    ordered = [part for _, part in sorted(sums, key=lambda part: part[0])]
    return unit_rows(np.sum(ordered, axis=0))[0] if ordered else np.empty((0, plan.corpus.dim), np.float32)
