"""The tables that describe clusters: one row per cluster, and one per cluster and period."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sbert_core.clusters.exemplars import choose_exemplars
from sbert_core.clusters.membership import nearest_centers
from sbert_core.clusters.names.cluster_names import ClusterPeriod, ClusterTerms, name_clusters, terms_over_time
from sbert_core.clusters.noise import NOISE
from sbert_core.data.schema import clusters_schema, over_time_schema
from transforms.clusters.cluster_centers import Centers
from transforms.clusters.existing_clusters import ExistingClusters
from transforms.clusters.tally import Tally
from transforms.dataset.corpus import Corpus
from transforms.dataset.ordinals import ids_of, take_rows

N_EXEMPLARS = 5


def summary_table(
    corpus: Corpus,
    centers: Centers,
    tally: Tally | None,
    counts: dict[int, Counter[str]],
    existing: ExistingClusters | None,
    candidates: Mapping[int, np.ndarray],
) -> pa.Table:
    """One row per cluster, noise last; `tally` is None for an empty corpus.

    `candidates` has the vectors (dim,) of the rows nearest to the centres, by ordinal.

    Existing clusters keep their names, terms and radii. One without rows has no exemplars and no cohesion.
    """
    names = _name_all(centers, counts, existing)
    nearest, cosines = nearest_centers(centers.vectors)
    exemplars = [_exemplars(cluster, tally, centers, candidates) for cluster in range(len(centers))]
    texts = _read_texts(corpus, exemplars)
    rows: list[dict[str, Any]] = []
    for cluster, size in enumerate(centers.sizes.tolist()):
        has_other = nearest[cluster] != NOISE
        rows.append(
            {
                "cluster": cluster,
                "size": size,
                "name": names[cluster].name,
                "terms": list(names[cluster].terms),
                "exemplar_texts": [texts[ordinal] for ordinal in exemplars[cluster].tolist()],
                "cohesion": tally.cohesion(cluster, size) if tally and size else None,
                "separation": float(1 - cosines[cluster]) if has_other else None,
                "nearest_cluster": int(nearest[cluster]) if has_other else None,
                "radius": _radius(cluster, size, tally, existing),
                "center": centers.vectors[cluster].tolist(),
            }
        )
    dim = centers.vectors.shape[1]
    if tally and tally.n_noise:
        empty: dict[str, Any] = {"terms": [], "exemplar_texts": [], "center": [0] * dim}
        rows.append({"cluster": NOISE, "size": tally.n_noise, "name": "noise", **empty})
        exemplars.append(np.empty(0, np.uint32))
    ids = ids_of(corpus, _concatenate(exemplars))
    schema = clusters_schema(ids.type, dim)
    place = schema.get_field_index("exemplar_ids")
    table = pa.Table.from_pylist(rows, schema=schema.remove(place))
    return table.add_column(place, schema.field(place), _id_lists(ids, exemplars))


def over_time_table(counts: dict[ClusterPeriod, Counter[str]]) -> pa.Table:
    """One row per cluster and period."""
    rows = [
        {"cluster": cluster, "period": period, "terms": list(terms)}
        for (cluster, period), terms in terms_over_time(counts).items()
    ]
    return pa.Table.from_pylist(rows, schema=over_time_schema())


def _name_all(
    centers: Centers, counts: dict[int, Counter[str]], existing: ExistingClusters | None
) -> dict[int, ClusterTerms]:
    """The names and terms of all clusters; a cluster whose texts have no terms is named by its number."""
    no_terms: dict[int, Counter[str]] = {cluster: Counter() for cluster in range(len(centers))}
    named = existing.named if existing else name_clusters(no_terms | counts)
    return {each.cluster: each for each in named}


def _exemplars(cluster: int, tally: Tally | None, centers: Centers, candidates: Mapping[int, np.ndarray]) -> np.ndarray:
    """The ordinals of the rows that represent a cluster."""
    if tally is None:
        return np.empty(0, np.uint32)
    ordinals = tally.nearest.of_cluster(cluster).ordinals
    vectors = np.array([candidates[ordinal] for ordinal in ordinals.tolist()], np.float32)
    vectors = vectors.reshape(-1, centers.vectors.shape[1])  # of no rows, too
    return ordinals[choose_exemplars(vectors, centers.vectors[cluster], N_EXEMPLARS)]


def _read_texts(corpus: Corpus, exemplars: Sequence[np.ndarray]) -> dict[int, str | None]:
    """The texts of all exemplars, by ordinal."""
    ordinals = np.unique(_concatenate(exemplars))
    column = take_rows(corpus, ordinals, [corpus.text_column])[corpus.text_column].cast(pa.string())
    return dict(zip(ordinals.tolist(), column.to_pylist(), strict=True))


def _radius(cluster: int, size: int, tally: Tally | None, existing: ExistingClusters | None) -> float | None:
    if existing:
        return float(existing.radii[cluster])
    return float(tally.radii[cluster]) if tally and size else None


def _id_lists(ids: pa.Array, exemplars: Sequence[np.ndarray]) -> pa.ListArray:
    """The ids of the exemplars of all clusters as a list per cluster; Arrow makes no UUIDs from Python values."""
    starts = np.cumsum([0, *map(len, exemplars)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(starts), ids)


def _concatenate(ordinals: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([*ordinals, np.empty(0, np.uint32)]).astype(np.uint32)
