"""Clusters of a corpus: the cluster of every row, and what each cluster is about."""

import dataclasses
from collections.abc import Sequence

import apache_beam as beam
import numpy as np

from sbert_core.clusters.algorithm import (
    CentroidAlgorithm,
    Clustering,
    ClusteringFields,
    ClusteringSettings,
    InMemoryAlgorithm,
)
from sbert_core.clusters.algorithms import Leiden, find_algorithm
from sbert_core.clusters.noise import NOISE
from sbert_core.clusters.two_levels import choose_levels
from sbert_core.data.manifest import Manifest
from transforms.clusters.block_neighbors import find_mined_parts
from transforms.clusters.cluster_centers import AddSums, store_centers, sum_block
from transforms.clusters.cluster_input import StoredInput
from transforms.clusters.cluster_plan import ClusterPlan, block_numbers, make_plan, store_all_labels
from transforms.clusters.describe_clusters import ClusterOutput, DescribeClusters
from transforms.clusters.distributed_kmeans import label_in_rounds
from transforms.clusters.existing_clusters import assign_block, store_existing
from transforms.clusters.label_in_levels import label_in_two_levels
from transforms.dataset.assign_ordinals import AssignOrdinals
from transforms.dataset.corpus import BLOCK_ROWS, Corpus, open_corpus
from transforms.dataset.ordinal_files import ORDINALS_FOLDER
from transforms.dataset.published import Draft

_FINAL_SUMS = "final"


@dataclasses.dataclass(kw_only=True, eq=False)
class ClusterCorpus(beam.PTransform):
    """Clusters the rows of an embedded corpus and describes the clusters.

    Input is a pipeline. Writes the datasets `assignments` and `summary` (and `over_time` with a time column) below
    `folder`; output is one `Draft` for each of them. Algorithms on the neighbour graph need the `neighbors` that
    mining wrote. With `existing`, a folder of clusters, rows are assigned to the nearest of those clusters and nothing
    is clustered: numbers, names, terms, centres and radii do not change, sizes, exemplars and cohesion are of the new
    rows. The same rows give the same labels, however they are divided into files. Clusters are numbered by size,
    noise is -1.
    """

    embeddings: str
    neighbors: str
    folder: str
    work: str
    settings: ClusteringSettings = dataclasses.field(default_factory=ClusteringSettings)
    existing: str | None = None
    labels_column: str | None = None
    time_column: str | None = None
    period: str = "M"
    block_rows: int = BLOCK_ROWS
    ordinals: Sequence[str] = ()  # folders of ordinals; see AssignOrdinals. Empty: below `work`
    manifest: Manifest = dataclasses.field(default_factory=Manifest)
    levels: int | None = None  # of leiden; None: chosen by the size of the corpus when the pipeline is built

    def __post_init__(self) -> None:
        super().__init__()
        find_algorithm(self.settings.algorithm)

    def expand(self, root: beam.Pipeline) -> beam.PCollection[Draft]:
        """Labels all rows, computes the centres of the clusters, and describes them."""
        plan = (
            root
            | "Folder" >> beam.Create([self.work])
            | "Plan"
            >> beam.Map(
                make_plan,
                embeddings=self.embeddings,
                neighbors=self.neighbors,
                settings=self.settings,
                existing=self.existing,
                block_rows=self.block_rows,
            )
            | "AssignOrdinals" >> AssignOrdinals(folders=self.ordinals or [f"{self.work}/{ORDINALS_FOLDER}"])
        )
        planned = beam.pvalue.AsSingleton(plan)
        blocks = plan | "Blocks" >> beam.FlatMap(block_numbers) | "SpreadBlocks" >> beam.Reshuffle()
        fields = self._label(plan, blocks) if self.existing is None else self._assign_to_existing(plan, blocks)
        decided = beam.pvalue.AsSingleton(fields)
        summed = (
            blocks
            | "Sums" >> beam.FlatMap(sum_block, planned, decided)
            | "AllSums" >> AddSums(plan=plan, name=_FINAL_SUMS)
        )
        centers = plan | "Centers" >> beam.Map(store_centers, beam.pvalue.AsSingleton(summed), decided, _FINAL_SUMS)
        output = ClusterOutput(
            folder=self.folder,
            labels_column=self.labels_column,
            time_column=self.time_column,
            period=self.period,
            manifest=self.manifest,
            existing=self.existing,
        )
        describe = DescribeClusters(output=output, plan=plan, n_clusters=centers, fields=fields)
        return blocks | "Describe" >> describe

    def _label(
        self, plan: beam.PCollection[ClusterPlan], blocks: beam.PCollection[int]
    ) -> beam.PCollection[ClusteringFields]:
        algorithm = find_algorithm(self.settings.algorithm)
        if isinstance(algorithm, CentroidAlgorithm):
            return label_in_rounds(plan, blocks, algorithm)
        if isinstance(algorithm, Leiden) and self._count_levels() == 2:
            return label_in_two_levels(plan, blocks)
        return plan | "Label" >> beam.Map(_label_rows, algorithm)

    def _assign_to_existing(
        self, plan: beam.PCollection[ClusterPlan], blocks: beam.PCollection[int]
    ) -> beam.PCollection[ClusteringFields]:
        """Assigns rows to clusters of an earlier run; the output comes when the labels of all blocks are stored."""
        known = plan | "Existing" >> beam.Map(store_existing, self.existing)
        stored = (
            blocks
            | "Assign" >> beam.Map(assign_block, beam.pvalue.AsSingleton(plan), beam.pvalue.AsSingleton(known))
            | "AllAssigned" >> beam.combiners.Count.Globally()
        )
        return plan | "Known" >> beam.Map(_known, beam.pvalue.AsSingleton(known), beam.pvalue.AsSingleton(stored))

    def _count_levels(self) -> int:
        if self.levels is not None:
            return self.levels
        return levels_of(open_corpus(self.embeddings, self.block_rows), self.neighbors)


def levels_of(corpus: Corpus, neighbors: str) -> int:
    """The number of levels in which the default algorithm clusters a corpus with these mined neighbours."""
    if not corpus.rows:
        return 1
    return choose_levels(corpus.rows, corpus.dim, find_mined_parts(neighbors, corpus).top_k)


def _label_rows(plan: ClusterPlan, algorithm: InMemoryAlgorithm) -> ClusteringFields:
    """Runs an algorithm that needs all rows at once, and stores the labels of every block."""
    if plan.corpus.rows:
        clustering = algorithm.cluster(StoredInput(plan.corpus, plan.neighbors), plan.settings)
    else:
        clustering = Clustering(np.empty(0, np.int64), np.empty(0, np.float32))
    store_all_labels(plan, clustering)
    n_clusters = int(clustering.labels.max(initial=NOISE)) + 1
    return dataclasses.replace(clustering.manifest_fields, clusters=n_clusters)


def _known(plan: ClusterPlan, fields: ClusteringFields, n_stored: int) -> ClusteringFields:
    return fields
