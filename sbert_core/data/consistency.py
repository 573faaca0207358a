"""Checks that results are consistent, each with itself and with the others. A check yields its problems as text.

Rows are indices into the corpus, -1 for an id that the corpus does not have.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

NORM_TOLERANCE = 5e-3  # of unit vectors that are stored in float16
SCORE_TOLERANCE = 1e-6


@dataclasses.dataclass(frozen=True, eq=False)
class Edges:
    """The neighbours of all rows and their scores, sorted so that the score of a pair can be looked up."""

    keys: np.ndarray  # (n,) uint64: the row in the upper 32 bits, its neighbour in the lower
    scores: np.ndarray  # (n,) float32

    @classmethod
    def join(cls, pieces: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> "Edges":
        """Joins pieces of rows (n,), their neighbours (n,) and scores (n,)."""
        keys = np.concatenate([np.empty(0, np.uint64), *(_keys(rows, neighbors) for rows, neighbors, _ in pieces)])
        scores = np.concatenate([np.empty(0, np.float32), *(score for _, _, score in pieces)])
        order = np.argsort(keys)
        return cls(keys[order], scores[order])

    def between(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """The scores (n,) of pairs of rows; nan where neither row is a neighbour of the other."""
        scores = np.full(len(first), np.nan, np.float32)
        for rows, neighbors in ((first, second), (second, first)):
            wanted = _keys(rows, neighbors)
            places = np.minimum(np.searchsorted(self.keys, wanted), max(len(self.keys) - 1, 0))
            is_found = self.keys[places] == wanted if len(self.keys) else np.zeros(len(first), bool)
            scores[is_found] = self.scores[places[is_found]]
        return scores


def _keys(rows: np.ndarray, neighbors: np.ndarray) -> np.ndarray:
    return rows.astype(np.uint64) << np.uint64(32) | neighbors.astype(np.uint64) & np.uint64(0xFFFFFFFF)


def vector_problems(column: pa.ChunkedArray, normalized: bool) -> Iterator[str]:
    """Every row has a finite vector, of unit length if `normalized`; a text without tokens has a zero vector."""
    if column.null_count:
        yield f"{column.null_count} rows have no vector"
        return
    kind = column.type
    if not pa.types.is_fixed_size_list(kind):
        yield f"vectors are {kind}, expected fixed_size_list"
        return
    if not len(column) or pa.types.is_integer(kind.value_type):
        return
    values = column.combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)
    lengths = np.sqrt(np.einsum("nd,nd->n", values, values, dtype=np.float64))
    if not np.isfinite(lengths).all():
        yield f"{int((~np.isfinite(lengths)).sum())} vectors are not finite"
    elif normalized:
        is_wrong = (np.abs(lengths - 1) > NORM_TOLERANCE) & (lengths > 0)
        if is_wrong.any():
            yield f"{int(is_wrong.sum())} vectors are not of unit length"


def neighbor_problems(
    rows: np.ndarray, neighbors: np.ndarray, ranks: np.ndarray, scores: np.ndarray, top_k: int | None
) -> Iterator[str]:
    """Ranks count from 1 without gaps, scores descend, no row is its own neighbour or has the same one twice."""
    if (rows < 0).any() or (neighbors < 0).any():
        yield "an id is not in embeddings/"
        return
    order = np.lexsort((ranks, rows))
    rows, neighbors, ranks, scores = rows[order], neighbors[order], ranks[order], scores[order]
    is_first = np.append(True, rows[1:] != rows[:-1])[: len(rows)]
    if (ranks[is_first] != 1).any() or (np.diff(ranks)[~is_first[1:]] != 1).any():
        yield "ranks do not count from 1 without gaps"
    if (np.diff(scores)[~is_first[1:]] > 0).any():
        yield "scores do not descend with the rank"
    if not ((scores >= -1 - SCORE_TOLERANCE) & (scores <= 1 + SCORE_TOLERANCE)).all():
        yield "a score is not between -1 and 1"
    if (rows == neighbors).any():
        yield "a row is its own neighbour"
    if len(np.unique(_keys(rows, neighbors))) < len(rows):
        yield "a row has the same neighbour twice"
    if top_k is not None and len(ranks) and ranks.max() > top_k:
        yield f"a row has more than {top_k} neighbours"


def pair_problems(
    table: pa.Table, first: np.ndarray, second: np.ndarray, edges: Edges | None, min_score: float | None
) -> Iterator[str]:
    """Pairs are sorted and distinct, reach the threshold, and are neighbours with the same cosine."""
    if (first < 0).any() or (second < 0).any():
        yield "an id is not in embeddings/"
        return
    scores, cosines = table["score"].to_numpy(), table["cosine"].to_numpy()
    if (np.diff(scores) > 0).any():
        yield "scores do not descend"
    if (first == second).any():
        yield "a row is paired with itself"
    if len(np.unique(_keys(np.minimum(first, second), np.maximum(first, second)))) < len(first):
        yield "a pair occurs twice"
    if min_score is not None and len(cosines) and cosines.min() < min_score - SCORE_TOLERANCE:
        yield f"a cosine is below {min_score}"
    if edges is not None:
        edge_scores = edges.between(first, second)
        if not (np.abs(edge_scores - cosines) <= SCORE_TOLERANCE).all():
            yield "a pair is not in neighbors/, or has another cosine there"


def duplicate_problems(
    table: pa.Table, find_rows: Callable[[pa.ChunkedArray], np.ndarray], edges: Edges | None
) -> Iterator[str]:
    """Every group keeps one row, no row is in two groups, and each is a neighbour of the kept row."""
    if not len(table):
        return
    rows, groups = find_rows(table["id"]), table["group"].to_numpy()
    is_kept = table["keep"].to_numpy(zero_copy_only=False)
    if (rows < 0).any():
        yield "an id is not in embeddings/"
        return
    if len(np.unique(rows)) < len(rows):
        yield "a row is in two groups"
    if not (np.bincount(groups, weights=is_kept) == 1).all():
        yield "a group does not keep exactly one row"
        return
    if not (table["size"].to_numpy() == np.bincount(groups)[groups]).all():
        yield "a size is not the number of rows in the group"
    if edges is not None and "kept_id" in table.column_names:
        others = np.flatnonzero(~is_kept)
        edge_scores = edges.between(rows[others], find_rows(table["kept_id"])[others])
        scores = table["score"].to_numpy(zero_copy_only=False)[others]
        if not (np.abs(edge_scores - scores) <= SCORE_TOLERANCE).all():
            yield "a row is not a neighbour of the kept row in neighbors/, or has another cosine there"


def assignment_problems(
    table: pa.Table, rows: np.ndarray | None, corpus_rows: int
) -> tuple[np.ndarray | None, list[str]]:
    """Every row of the corpus has one cluster; returns the clusters (n,) by row, or None, and the problems."""
    rows = np.empty(0, np.int64) if rows is None else rows
    if (rows < 0).any():
        return None, ["an id is not in embeddings/"]
    if len(np.unique(rows)) < len(rows):
        return None, ["a row has two clusters"]
    if len(rows) != corpus_rows:
        return None, [f"{len(rows)} rows have a cluster, embeddings/ has {corpus_rows}"]
    problems = []
    labels, strengths = table["cluster"].to_numpy(), table["strength"].to_numpy()
    if ((labels == -1) != table["is_noise"].to_numpy(zero_copy_only=False)).any():
        problems.append("is_noise contradicts the cluster")
    if not ((strengths >= 0) & (strengths <= 1)).all():
        problems.append("a strength is not between 0 and 1")
    labels_by_row = np.empty(corpus_rows, np.int64)
    labels_by_row[rows] = labels
    return labels_by_row, problems


def summary_problems(
    table: pa.Table, labels: np.ndarray, find_rows: Callable[[pa.ChunkedArray], np.ndarray]
) -> Iterator[str]:
    """Clusters, sizes and exemplars match the assignments."""
    clusters, sizes = table["cluster"].to_numpy(), table["size"].to_numpy()
    if len(np.unique(clusters)) < len(clusters):
        yield "a cluster occurs twice"
        return
    found, counts = np.unique(labels, return_counts=True)
    summarized = dict(zip(clusters.tolist(), sizes.tolist(), strict=True))
    assigned = dict(zip(found.tolist(), counts.tolist(), strict=True))
    if any(summarized.get(cluster, 0) != size for cluster, size in assigned.items()):
        yield "sizes are not those of the assignments"
    if any(size and cluster not in assigned for cluster, size in summarized.items()):
        yield "a cluster has a size but no rows"
    lists = table["exemplar_ids"].combine_chunks()
    rows = find_rows(pa.chunked_array([lists.flatten()])) if len(lists.flatten()) else np.empty(0, np.int64)
    owners = np.repeat(clusters, np.array([len(each) for each in lists]))
    if (rows < 0).any():
        yield "an exemplar is not in embeddings/"
    elif (labels[rows] != owners).any():
        yield "an exemplar belongs to another cluster"
