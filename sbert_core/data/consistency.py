"""Whether results agree with themselves and with each other; each check lists its problems in words.

Rows are places in the corpus, -1 for an id that is not in it.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

NORM_TOLERANCE = 5e-3  # of unit vectors that are stored in float16
SCORE_TOLERANCE = 1e-6


@dataclasses.dataclass(frozen=True, eq=False)
class Edges:
    """The neighbours of all rows: who is near whom, and how near; sorted, so that a pair can be looked up."""

    keys: np.ndarray  # (n,) uint64: row and neighbour
    scores: np.ndarray  # (n,) float32

    @classmethod
    def join(cls, pieces: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> "Edges":
        """Of rows (n,), their neighbours (n,) and scores (n,), in pieces."""
        keys = np.concatenate([np.empty(0, np.uint64), *(_keys(own, other) for own, other, _ in pieces)])
        scores = np.concatenate([np.empty(0, np.float32), *(score for _, _, score in pieces)])
        order = np.argsort(keys)
        return cls(keys[order], scores[order])

    def between(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """The score (n,) of pairs of rows, found from either side; nan where neither is a neighbour of the other."""
        scores = np.full(len(first), np.nan, np.float32)
        for own, other in ((first, second), (second, first)):
            wanted = _keys(own, other)
            places = np.minimum(np.searchsorted(self.keys, wanted), max(len(self.keys) - 1, 0))
            hit = self.keys[places] == wanted if len(self.keys) else np.zeros(len(first), bool)
            scores[hit] = self.scores[places[hit]]
        return scores


def _keys(own: np.ndarray, other: np.ndarray) -> np.ndarray:
    return own.astype(np.uint64) << np.uint64(32) | other.astype(np.uint64) & np.uint64(0xFFFFFFFF)


def vector_problems(column: pa.ChunkedArray, normalized: bool) -> Iterator[str]:
    """Vectors are there, finite and, if the encoder says so, of unit length; a text without tokens has zeros."""
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
        wrong = (np.abs(lengths - 1) > NORM_TOLERANCE) & (lengths > 0)
        if wrong.any():
            yield f"{int(wrong.sum())} vectors are not of unit length"


def neighbor_problems(
    own: np.ndarray, other: np.ndarray, ranks: np.ndarray, scores: np.ndarray, top_k: int | None
) -> Iterator[str]:
    """Ranks count from 1 without a gap, scores fall, nobody is its own neighbour or has one twice."""
    if (own < 0).any() or (other < 0).any():
        yield "an id is not in embeddings/"
        return
    order = np.lexsort((ranks, own))
    own, other, ranks, scores = own[order], other[order], ranks[order], scores[order]
    begins = np.append(True, own[1:] != own[:-1])[: len(own)]
    if (ranks[begins] != 1).any() or (np.diff(ranks)[~begins[1:]] != 1).any():
        yield "ranks do not count from 1 without a gap"
    if (np.diff(scores)[~begins[1:]] > 0).any():
        yield "scores do not fall with the rank"
    if not ((scores >= -1 - SCORE_TOLERANCE) & (scores <= 1 + SCORE_TOLERANCE)).all():
        yield "a score is not a cosine"
    if (own == other).any():
        yield "a row is its own neighbour"
    if len(np.unique(_keys(own, other))) < len(own):
        yield "a row has the same neighbour twice"
    if top_k is not None and len(ranks) and ranks.max() > top_k:
        yield f"a row has more than {top_k} neighbours"


def pair_problems(
    table: pa.Table, first: np.ndarray, second: np.ndarray, edges: Edges | None, min_score: float | None
) -> Iterator[str]:
    """Pairs are sorted, differ, reach the threshold, and are neighbours with the same cosine."""
    if (first < 0).any() or (second < 0).any():
        yield "an id is not in embeddings/"
        return
    scores, cosines = table["score"].to_numpy(), table["cosine"].to_numpy()
    if (np.diff(scores) > 0).any():
        yield "scores do not fall"
    if (first == second).any():
        yield "a row is paired with itself"
    if len(np.unique(_keys(np.minimum(first, second), np.maximum(first, second)))) < len(first):
        yield "a pair occurs twice"
    if min_score is not None and len(cosines) and cosines.min() < min_score - SCORE_TOLERANCE:
        yield f"a cosine is below {min_score}"
    if edges is not None:
        known = edges.between(first, second)
        if not (np.abs(known - cosines) <= SCORE_TOLERANCE).all():
            yield "a pair is not among the neighbours of its rows, or has another cosine there"


def duplicate_problems(
    table: pa.Table, places: Callable[[pa.ChunkedArray], np.ndarray], edges: Edges | None
) -> Iterator[str]:
    """Every group keeps one row, no row is in two groups, and each is near the row that is kept."""
    if not len(table):
        return
    rows, groups = places(table["id"]), table["group"].to_numpy()
    kept = table["keep"].to_numpy(zero_copy_only=False)
    if (rows < 0).any():
        yield "an id is not in embeddings/"
        return
    if len(np.unique(rows)) < len(rows):
        yield "a row is in two groups"
    if not (np.bincount(groups, weights=kept) == 1).all():
        yield "a group does not keep just one row"
        return
    if not (table["size"].to_numpy() == np.bincount(groups)[groups]).all():
        yield "a size is not the number of rows of its group"
    if edges is not None and "kept_id" in table.column_names:
        others = np.flatnonzero(~kept)
        known = edges.between(rows[others], places(table["kept_id"])[others])
        if not (np.abs(known - table["score"].to_numpy(zero_copy_only=False)[others]) <= SCORE_TOLERANCE).all():
            yield "a row is not a neighbour of the row that is kept, or has another cosine there"


def assignment_problems(
    table: pa.Table, rows: np.ndarray | None, corpus_rows: int
) -> tuple[np.ndarray | None, list[str]]:
    """Every row of the corpus has one cluster; returns the clusters by row, and the problems."""
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
        problems.append("is_noise does not agree with the cluster")
    if not ((strengths >= 0) & (strengths <= 1)).all():
        problems.append("a strength is not from 0 to 1")
    by_row = np.empty(corpus_rows, np.int64)
    by_row[rows] = labels
    return by_row, problems


def summary_problems(
    table: pa.Table, labels: np.ndarray, places: Callable[[pa.ChunkedArray], np.ndarray]
) -> Iterator[str]:
    """Clusters, sizes and exemplars are those of the assignments."""
    clusters, sizes = table["cluster"].to_numpy(), table["size"].to_numpy()
    if len(np.unique(clusters)) < len(clusters):
        yield "a cluster occurs twice"
        return
    found, counts = np.unique(labels, return_counts=True)
    known = dict(zip(clusters.tolist(), sizes.tolist(), strict=True))
    assigned = dict(zip(found.tolist(), counts.tolist(), strict=True))
    if any(known.get(cluster, 0) != size for cluster, size in assigned.items()):
        yield "sizes are not those of the assignments"
    if any(size and cluster not in assigned for cluster, size in known.items()):
        yield "a cluster has a size and no rows"
    lists = table["exemplar_ids"].combine_chunks()
    rows = places(pa.chunked_array([lists.flatten()])) if len(lists.flatten()) else np.empty(0, np.int64)
    owners = np.repeat(clusters, np.array([len(each) for each in lists]))
    if (rows < 0).any():
        yield "an exemplar is not in embeddings/"
    elif (labels[rows] != owners).any():
        yield "an exemplar is of another cluster"
