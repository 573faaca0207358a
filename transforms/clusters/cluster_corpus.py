"""Clusters of a corpus: every row's cluster, and what each cluster is about.

Workers meet through sums: of the vectors and the sizes of clusters, as whole numbers, so that the order in which they
are added has no effect. Labels are kept block by block; no step of k-means holds those of all rows.
"""

import dataclasses
import hashlib
import json
from typing import Any

import apache_beam as beam
import numpy as np

from sbert_core.clusters.communities import NOISE
from sbert_core.clusters.kmeans import add_up, assign, move_centers
from sbert_core.clusters.membership import strength_by_centers
from sbert_core.data.manifest import Manifest
from sbert_core.neighbors.cells import MAX_SAMPLE
from sbert_core.neighbors.cosine import unit_rows
from transforms.clusters.describe_clusters import DescribeClusters
from transforms.clusters.existing_clusters import ExistingClusters, read_existing
from transforms.clusters.labels import (
    KMEANS,
    Clustering,
    Labels,
    label_rows,
    number_clusters,
    read_labels,
    sample_block,
    start_kmeans,
    store_labels,
)
from transforms.clusters.sums import WHOLE, AddUpFn
from transforms.clusters.tally import Centers
from transforms.dataset.corpus import BLOCK_ROWS, Corpus, open_corpus, rank_rows, ranks_of_block, read_vectors
from transforms.dataset.published import Draft
from transforms.dataset.work_files import need_arrays, store_arrays
from transforms.neighbors.exact import check_size

KMEANS_ROUNDS = 8
_LAST = np.iinfo(np.int64).max


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterPlan:
    """What is to be clustered; it travels to every worker."""

    corpus: Corpus
    neighbors: str
    how: Clustering
    work: str

    @property
    def digest(self) -> str:
        """Stands for all that decides the labels."""
        return self.work.rsplit("/", 1)[-1]

    def labels_path(self, number: int) -> str:
        """Where the labels of a block are kept for workers."""
        return f"{self.work}/labels-{number:06d}.npz"


@dataclasses.dataclass(kw_only=True, eq=False)
class ClusterCorpus(beam.PTransform):
    """Clusters the rows of an embedded corpus and describes the clusters.

    Input is a pipeline. Writes the datasets `assignments` and `summary` (and `over_time` with a time column) below
    `folder`; output is one `Draft` for each of them. Graph algorithms need the `neighbors` that mining wrote. With
    `existing`, a folder of clusters, rows are assigned to the nearest of those and nothing is clustered anew: numbers,
    names, terms, centres and reaches stay as they are, sizes, exemplars and cohesions are of the new rows. The same
    rows give the same labels, however they are cut into files; clusters are numbered by size, noise is -1.
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
    manifest: Manifest = dataclasses.field(default_factory=Manifest)

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, root: beam.Pipeline) -> beam.PCollection[Draft]:
        """Labels all rows, finds the centres of the clusters, and describes them."""
        plan = root | "Folder" >> beam.Create([self.work]) | "Plan" >> beam.Map(lambda _: self.make_plan())
        planned = beam.pvalue.AsSingleton(plan)
        blocks = (
            plan
            | "Blocks" >> beam.FlatMap(lambda plan: range(len(plan.corpus.blocks)))
            | "SpreadBlocks" >> beam.Reshuffle()
        )
        existing: Any = None
        if self.existing is not None:
            known = plan | "Existing" >> beam.Map(lambda _, folder: read_existing(folder), self.existing)
            existing = beam.pvalue.AsSingleton(known)
            labeled = self._assign(known, blocks, planned)
        elif self.how.algorithm == KMEANS:
            labeled = self._kmeans(plan, blocks)
        else:
            labeled = plan | "Label" >> beam.Map(_label)
        centers = (
            blocks
            | "Sums" >> beam.Map(_block_sums, planned, beam.pvalue.AsSingleton(labeled))
            | "AllSums" >> beam.CombineGlobally(AddUpFn())
            | "Centers" >> beam.Map(_centers, planned, existing)
        )
        return {"plan": plan, "blocks": blocks, "centers": centers, "facts": labeled} | "Describe" >> DescribeClusters(
            folder=self.folder,
            existing=self.existing,
            labels_column=self.labels_column,
            time_column=self.time_column,
            period=self.period,
            manifest=self.manifest,
        )

    def _kmeans(self, plan: Any, blocks: Any) -> Any:
        """Sums of the vectors of each cluster, block by block, move the centres; a few rounds of it."""
        planned = beam.pvalue.AsSingleton(plan)
        centers = (
            blocks
            | "Sample" >> beam.Map(lambda number, plan: sample_block(plan.corpus, number, MAX_SAMPLE), planned)
            | "AllSamples" >> beam.combiners.ToList()
            | "Start" >> beam.Map(lambda samples, plan: start_kmeans(samples, plan.corpus, plan.how), planned)
        )
        for number in range(KMEANS_ROUNDS):
            centers = (
                blocks
                | f"Sums{number}" >> beam.Map(_assigned_sums, planned, beam.pvalue.AsSingleton(centers))
                | f"AllSums{number}" >> beam.CombineGlobally(AddUpFn())
                | f"Move{number}" >> beam.Map(_moved, beam.pvalue.AsSingleton(centers))
            )
        numbers = (
            blocks
            | "Nearest" >> beam.Map(_store_nearest, planned, beam.pvalue.AsSingleton(centers))
            | "Sizes" >> beam.CombineGlobally(_SizesFn())
            | "Number" >> beam.Map(_number, planned)
        )
        stored = (
            blocks
            | "StoreLabels" >> beam.Map(_store_numbered, planned, beam.pvalue.AsSingleton(numbers))
            | "AllStored" >> beam.combiners.Count.Globally()
        )
        return numbers | "Decided" >> beam.Map(_decided, beam.pvalue.AsSingleton(stored))

    def _assign(self, known: Any, blocks: Any, planned: Any) -> Any:
        """Rows to the nearest cluster of an earlier clustering."""
        stored = (
            blocks
            | "Assign" >> beam.Map(_assign_block, planned, beam.pvalue.AsSingleton(known))
            | "AllAssigned" >> beam.combiners.Count.Globally()
        )
        return known | "Known" >> beam.Map(
            lambda known, _: {"clusters": len(known.named), "existing": True}, beam.pvalue.AsSingleton(stored)
        )

    def make_plan(self) -> ClusterPlan:
        """Looks into the corpus and ranks its rows."""
        corpus = open_corpus(self.embeddings, self.block_rows)
        check_size(corpus)
        decides = [corpus.digest, dataclasses.asdict(self.how), self.existing]
        work = f"{self.work}/{hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:16]}"
        ranked = rank_rows(corpus, f"{work}/corpus")
        return ClusterPlan(corpus=ranked, neighbors=self.neighbors, how=self.how, work=work)


def _label(plan: ClusterPlan) -> dict[str, Any]:
    """Labels from an algorithm that sees all rows at once."""
    labels = label_rows(plan.corpus, plan.neighbors, plan.how)
    for block in plan.corpus.blocks:
        store_labels(plan.labels_path(block.number), labels.take(ranks_of_block(plan.corpus, block)))
    return {**labels.facts, "clusters": int(labels.labels.max(initial=NOISE)) + 1}


class _SizesFn(AddUpFn):
    """Adds the sizes of clusters, and keeps the first row of each."""

    def add_input(self, accumulator: Any, found: Any) -> Any:
        return found if accumulator is None else (accumulator[0] + found[0], np.minimum(accumulator[1], found[1]))


def _whole_sums(vectors: np.ndarray, labels: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The sums (k, dim) of the vectors of each cluster, in whole parts, and its rows (k,)."""
    sums, counts = add_up(np.rint(vectors * np.float32(WHOLE)), labels, k)
    return sums.astype(np.int64), counts


def _assigned_sums(number: int, plan: ClusterPlan, centers: np.ndarray) -> tuple[np.ndarray, ...]:
    vectors, some = read_vectors(plan.corpus, plan.corpus.blocks[number])
    return _whole_sums(vectors[some], assign(vectors[some], centers)[0], len(centers))


def _moved(sums: tuple[np.ndarray, ...] | None, centers: np.ndarray) -> np.ndarray:
    return centers if sums is None else move_centers(centers, sums[0] / WHOLE)


def _nearest_path(plan: ClusterPlan, number: int) -> str:
    return f"{plan.work}/nearest-{number:06d}.npz"


def _store_nearest(number: int, plan: ClusterPlan, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Keeps the nearest centre of each row of a block; returns each cluster's size (k,) and first rank (k,)."""
    block = plan.corpus.blocks[number]
    vectors, some = read_vectors(plan.corpus, block)
    nearest = np.where(some, assign(vectors, centers)[0], NOISE)
    store_arrays(_nearest_path(plan, number), {"nearest": nearest})
    first = np.full(len(centers), _LAST)
    np.minimum.at(first, nearest[some], ranks_of_block(plan.corpus, block)[some])
    return np.bincount(nearest[some], minlength=len(centers)), first


def _number(found: tuple[np.ndarray, np.ndarray] | None, plan: ClusterPlan) -> np.ndarray:
    return np.empty(0, np.int64) if found is None else number_clusters(*found, plan.how.min_size)


def _store_numbered(number: int, plan: ClusterPlan, numbers: np.ndarray) -> int:
    nearest = need_arrays(_nearest_path(plan, number))["nearest"]
    store_labels(plan.labels_path(number), Labels(np.append(numbers, NOISE)[nearest]))  # NOISE is the last place
    return number


def _decided(numbers: np.ndarray, _: int) -> dict[str, Any]:
    """What the manifest tells, when all labels are stored."""
    return {"k": len(numbers), "clusters": int(numbers.max(initial=NOISE)) + 1}


def _assign_block(number: int, plan: ClusterPlan, existing: ExistingClusters) -> int:
    """Rows to the nearest of the existing centres; a row out of its reach is noise."""
    centers = existing.centers
    vectors, some = read_vectors(plan.corpus, plan.corpus.blocks[number])
    own, scores = assign(vectors, centers)
    own = np.where(some & (scores >= existing.reaches[own]), own, NOISE)
    store_labels(plan.labels_path(number), Labels(own, strength_by_centers(vectors @ centers.T, own)))
    return number


def _block_sums(number: int, plan: ClusterPlan, facts: dict[str, Any]) -> tuple[np.ndarray, ...]:
    """The sums of the vectors of each cluster in a block, and its rows."""
    labels = read_labels(plan.labels_path(number)).labels
    vectors, _ = read_vectors(plan.corpus, plan.corpus.blocks[number])
    inside = labels != NOISE
    return _whole_sums(vectors[inside], labels[inside], facts["clusters"])


def _centers(sums: tuple[np.ndarray, ...] | None, plan: ClusterPlan, existing: ExistingClusters | None) -> Centers:
    """The directions of the sums, one per cluster, and the sizes; existing clusters keep their centres."""
    if existing is not None:
        return Centers(existing.centers, np.zeros(len(existing.named), np.int64) if sums is None else sums[1])
    if sums is None:
        return Centers(np.empty((0, plan.corpus.dim), np.float32), np.empty(0, np.int64))
    return Centers(unit_rows(sums[0] / WHOLE)[0], sums[1])
