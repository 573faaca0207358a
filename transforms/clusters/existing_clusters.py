"""Clusters of an earlier run, to which new rows are assigned."""

import dataclasses

import numpy as np
import pyarrow.compute as pc

from sbert_core.clusters.names.terms import ClusterTerms
from sbert_core.errors import DataError
from transforms.dataset.corpus import Corpus
from transforms.dataset.published import read_dataset, read_manifest

_COLUMNS = ["cluster", "name", "terms", "center", "reach"]


@dataclasses.dataclass(frozen=True, eq=False)
class ExistingClusters:
    """What stays as it was when rows are assigned: numbers, names, terms, centres and reaches."""

    named: list[ClusterTerms]
    centers: np.ndarray  # (clusters, dim)
    reaches: np.ndarray  # (clusters,): a row with a lower cosine to the centre is noise
    fingerprint: str | None  # of the encoder that made the vectors; None: not known

    def check(self, corpus: Corpus, folder: str) -> None:
        """Refuses vectors that say nothing about these clusters; an empty corpus has none."""
        if not corpus.rows:
            return
        dim = self.centers.shape[1]
        if corpus.dim != dim:
            raise DataError(
                f"{corpus.name} has vectors of {corpus.dim} dimensions, the clusters in {folder} of {dim}:"
                " embed with the model of these clusters"
            )
        if self.fingerprint and corpus.fingerprint and self.fingerprint != corpus.fingerprint:
            raise DataError(
                f"{corpus.name} and the clusters in {folder} are of different models:"
                " embed with the model of these clusters, or cluster anew without --clusters"
            )


def read_existing(folder: str) -> ExistingClusters:
    """Reads the clusters that an earlier run wrote below `folder`."""
    table = read_dataset(f"{folder}/summary", _COLUMNS)
    table = table.filter(pc.greater_equal(table["cluster"], 0)).sort_by("cluster")
    numbers = table["cluster"].to_pylist()
    if not numbers:
        raise DataError(f"{folder} has no clusters to assign rows to")
    if numbers != list(range(len(numbers))):
        raise DataError(f"{folder}/summary has clusters that are not numbered from 0 without gaps: cluster anew")
    named = zip(numbers, table["terms"].to_pylist(), table["name"].to_pylist(), strict=True)
    return ExistingClusters(
        named=[ClusterTerms(cluster, tuple(terms), name) for cluster, terms, name in named],
        centers=table["center"].combine_chunks().flatten().to_numpy().reshape(len(table), -1),
        reaches=table["reach"].to_numpy(),
        fingerprint=read_manifest(f"{folder}/summary").fingerprint,
    )
