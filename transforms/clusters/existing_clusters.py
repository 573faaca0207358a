"""Clusters of an earlier run, to which new rows are assigned."""

import dataclasses

import numpy as np
import pyarrow.compute as pc

from sbert_core.clusters.algorithm import Clustering, ClusteringFields
from sbert_core.clusters.kmeans import assign
from sbert_core.clusters.membership import strength_by_centers
from sbert_core.clusters.names.cluster_names import ClusterTerms
from sbert_core.clusters.noise import NOISE
from sbert_core.errors import DataError
from transforms.clusters.cluster_centers import read_existing_arrays, store_existing_arrays
from transforms.clusters.cluster_plan import ClusterPlan, store_labels
from transforms.dataset.corpus import Corpus, read_vectors
from transforms.dataset.published import read_dataset, read_manifest

_COLUMNS = ["cluster", "name", "terms", "center", "radius"]


@dataclasses.dataclass(frozen=True, eq=False)
class ExistingClusters:
    """What does not change when rows are assigned: numbers, names, terms, centres and radii."""

    named: list[ClusterTerms]
    centers: np.ndarray  # (clusters, dim)
    radii: np.ndarray  # (clusters,): a row with a lower cosine to the centre is noise
    fingerprint: str | None  # of the encoder that made the vectors; None: not known

    @property
    def manifest_fields(self) -> ClusteringFields:
        """The manifest fields of a clustering that assigns rows to these clusters."""
        return ClusteringFields(clusters=len(self.named), existing=True)

    def check(self, corpus: Corpus, folder: str) -> None:
        """Raises a DataError if the vectors of a corpus are of another model; an empty corpus has no vectors."""
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
        raise DataError(f"{folder} has no clusters to assign rows to: run cluster without --clusters")
    if numbers != list(range(len(numbers))):
        raise DataError(f"{folder}/summary has clusters that are not numbered from 0 without gaps: cluster anew")
    named = zip(numbers, table["terms"].to_pylist(), table["name"].to_pylist(), strict=True)
    return ExistingClusters(
        named=[ClusterTerms(cluster, tuple(terms), name) for cluster, terms, name in named],
        centers=table["center"].combine_chunks().flatten().to_numpy().reshape(len(table), -1),
        radii=table["radius"].to_numpy(),
        fingerprint=read_manifest(f"{folder}/summary").fingerprint,
    )


def store_existing(plan: ClusterPlan, folder: str) -> ClusteringFields:
    """Stores the centres and radii of the clusters below `folder` for `assign_block`."""
    existing = read_existing(folder)
    store_existing_arrays(plan, existing.centers, existing.radii)
    return existing.manifest_fields


def read_existing_again(plan: ClusterPlan, folder: str) -> ExistingClusters:
    """The same clusters, with their names; it is an error if others are there now."""
    existing = read_existing(folder)
    if not np.array_equal(existing.centers, read_existing_arrays(plan)["centers"]):
        raise DataError(f"{folder} was replaced while it was used: run the same command again")
    return existing


def assign_block(number: int, plan: ClusterPlan, fields: ClusteringFields) -> int:
    """Stores the labels of a block: the nearest existing centre, noise if the row is outside its radius."""
    existing = read_existing_arrays(plan)
    vectors, has_direction = read_vectors(plan.corpus, plan.corpus.blocks[number])
    nearest, cosines = assign(vectors, existing["centers"])
    labels = np.where(has_direction & (cosines >= existing["radii"][nearest]), nearest, NOISE)
    strengths = strength_by_centers(vectors @ existing["centers"].T, labels)
    store_labels(plan, number, Clustering(labels, strengths))
    return number
