"""What the workers of a clustering share: the plan, and the labels of each block."""

import dataclasses
import hashlib
import json
from collections.abc import Sequence

import numpy as np

from sbert_core.clusters.algorithm import Clustering, ClusteringSettings
from transforms.dataset.corpus import Corpus, open_corpus
from transforms.dataset.ordinals import ordinals_of_block
from transforms.dataset.work_files import need_arrays, store_arrays
from transforms.neighbors.mining_plan import check_row_count


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterPlan:
    """What is to be clustered; it travels to every worker."""

    corpus: Corpus
    neighbors: str
    settings: ClusteringSettings
    work: str

    @property
    def digest(self) -> str:
        """A hash of everything that decides the labels."""
        return self.work.rsplit("/", 1)[-1]

    @property
    def corpora(self) -> tuple[Corpus, ...]:
        """The corpus."""
        return (self.corpus,)

    def with_corpora(self, corpora: tuple[Corpus, ...]) -> "ClusterPlan":
        """The plan with the same corpus, whose rows have ordinals now."""
        return dataclasses.replace(self, corpus=corpora[0])


def make_plan(
    work: str, *, embeddings: str, neighbors: str, settings: ClusteringSettings, existing: str | None, block_rows: int
) -> ClusterPlan:
    """Opens the corpus; files for workers go below `work`."""
    corpus = open_corpus(embeddings, block_rows)
    check_row_count(corpus)
    content = [corpus.digest, dataclasses.asdict(settings), existing]
    folder = f"{work}/{hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]}"
    return ClusterPlan(corpus=corpus, neighbors=neighbors, settings=settings, work=folder)


def block_numbers(plan: ClusterPlan) -> Sequence[int]:
    """The numbers of all blocks of the corpus."""
    return range(len(plan.corpus.blocks))


def store_labels(plan: ClusterPlan, number: int, clustering: Clustering) -> None:
    """Stores the labels of the rows of a block for other workers."""
    columns = {
        "labels": clustering.labels,
        "strengths": clustering.strengths,
        "outlier_scores": clustering.outlier_scores,
    }
    store_arrays(_labels_path(plan, number), {name: column for name, column in columns.items() if column is not None})


def store_all_labels(plan: ClusterPlan, clustering: Clustering) -> None:
    """Stores the labels of all rows, which are in the order of ordinals, block by block."""
    for block in plan.corpus.blocks:
        store_labels(plan, block.number, clustering.take(ordinals_of_block(plan.corpus, block)))


def read_labels(plan: ClusterPlan, number: int) -> Clustering:
    """The labels of the rows of a block, without manifest fields."""
    columns: dict[str, np.ndarray] = need_arrays(_labels_path(plan, number))
    return Clustering(columns["labels"], columns.get("strengths"), columns.get("outlier_scores"))


def _labels_path(plan: ClusterPlan, number: int) -> str:
    return f"{plan.work}/labels-{number:06d}.npz"
