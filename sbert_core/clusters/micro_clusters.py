"""Micro-clusters: many small groups of near rows, which stand for their rows where a corpus does not fit into memory.

Their centres are learned on a sample. What a row contributes depends on the row and the centres only, so the result
does not depend on how rows are divided among blocks.
"""

import dataclasses

import numpy as np
import torch
from scipy import sparse
from threadpoolctl import threadpool_limits

from sbert_core.clusters.kmeans import move_centers, sum_by_cluster
from sbert_core.neighbors.candidates import pack
from sbert_core.neighbors.unit_vectors import exact_scores, product_error, unit_rows

SAMPLE_ROWS = 65_536  # rows that centres are learned on; labels of a quarter as many centres fit into uint16
ROWS_PER_CENTER = 4  # in the sample; with 8, clusters at low resolutions were up to 0.009 NMI worse on three sets
TILE_ROWS = 2048  # rows that are compared with all centres at once
ROUNDS = 6  # of k-means: further rounds move few rows, and the second level moves rows anyway
WEIGHT_SCALE = 2**24  # units per 1.0 of a cosine: float32 cosines of 0.5 and more are exact, and sums are integers


def learn_micro_centers(sample: np.ndarray) -> np.ndarray:
    """Centres (k, dim) of micro-clusters, from the unit vectors (n, dim) of a sample in the order of ordinals.

    Spherical k-means that starts from evenly spaced rows of the sample; there are fewer centres than
    `n / ROWS_PER_CENTER` if rows are equal. A row of zeros has no influence.
    """
    sample = sample[sample.any(axis=1)]
    centers = sample[::ROWS_PER_CENTER]
    with threadpool_limits(1):  # with several threads the order of sums changes the result
        for _ in range(ROUNDS):
            labels = nearest_micro(sample, centers)
            sums, sizes = sum_by_cluster(sample, labels, len(centers))
            centers = move_centers(centers, sums)[sizes > 0]
    return centers


def nearest_micro(vectors: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """The number (n,) uint16 of the nearest centre (k, dim) of each unit vector (n, dim); the first of equal ones.

    Both must be rows of `unit_rows`. Centres that the float32 product cannot tell apart are compared by exact scores,
    so the label of a row depends on nothing but the row and the centres.
    """
    labels = np.empty(len(vectors), np.uint16)
    right = torch.from_numpy(centers).T
    buffer = torch.empty(min(TILE_ROWS, len(vectors)), len(centers))
    for start in range(0, len(vectors), TILE_ROWS):
        left = np.ascontiguousarray(vectors[start : start + TILE_ROWS])
        products = torch.mm(torch.from_numpy(left), right, out=buffer[: len(left)]).numpy()
        labels[start : start + TILE_ROWS] = _nearest_columns(products, left, centers)
    return labels


def _nearest_columns(products: np.ndarray, vectors: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """The column (n,) of the largest exact score in each row of products (n, k), which are overwritten."""
    rows = np.arange(len(products))
    nearest = products.argmax(axis=1)
    lowest = products[rows, nearest] - 2 * product_error(centers.shape[1])
    products[rows, nearest] = -np.inf
    unclear = np.flatnonzero(products.max(axis=1) >= lowest)
    products[unclear, nearest[unclear]] = np.inf
    tied, columns = np.nonzero(products[unclear] >= lowest[unclear, None])
    scores = exact_scores(vectors, centers, unclear[tied], columns)
    order = np.lexsort((-columns, scores, tied))  # the best of each row is its last
    is_last = np.append(np.diff(tied[order]) > 0, True)[: len(order)]
    nearest[unclear] = columns[order[is_last]]
    return nearest


@dataclasses.dataclass(frozen=True, eq=False)
class BlockGraph:
    """The neighbours of some rows, best first: their ordinals (n,), and ordinals and cosines (n, k) of neighbours.

    Where a row has fewer than k neighbours, the cosine is NaN.
    """

    ordinals: np.ndarray  # uint32
    neighbors: np.ndarray  # uint32
    scores: np.ndarray  # float32

    def weights(self) -> np.ndarray:
        """The cosines (n, k), 0 where there is no neighbour or the cosine is negative."""
        return np.maximum(np.nan_to_num(self.scores), 0)

    def last_candidates(self) -> np.ndarray:
        """The last neighbour (n,) of each row as a packed candidate; 0 if the row has fewer than k.

        A row is among the neighbours of another if its candidate there is not less than the other's last one.
        """
        last = pack(np.nan_to_num(self.scores[:, -1]), self.neighbors[:, -1])
        return np.where(np.isnan(self.scores[:, -1]), np.uint64(0), last)


def micro_edges(
    graph: BlockGraph, micro_labels: np.ndarray, last_candidates: np.ndarray, n_micro: int
) -> sparse.coo_array:
    """What some rows add to the symmetric matrix of weights of micro-clusters, in half units of `WEIGHT_SCALE`.

    `micro_labels` (rows of the corpus,) and `last_candidates` (rows of the corpus,) are by ordinal. The sum over all
    rows is the row graph's `adjacency` with the rows of each micro-cluster added up: a pair of rows counts once, with
    half of it from each side if each is a neighbour of the other.
    """
    rows, places = np.nonzero(graph.weights() > 0)
    ordinals, others, scores = graph.ordinals[rows], graph.neighbors[rows, places], graph.scores[rows, places]
    is_mutual = pack(scores, ordinals) >= last_candidates[others]
    weights = np.rint(scores.astype(np.float64) * WEIGHT_SCALE).astype(np.int64) * np.where(is_mutual, 1, 2)
    own, other = micro_labels[ordinals].astype(np.int64), micro_labels[others].astype(np.int64)
    keys, places = np.unique(np.concatenate([own * n_micro + other, other * n_micro + own]), return_inverse=True)
    sums = np.zeros(len(keys), np.int64)
    np.add.at(sums, places, np.concatenate([weights, weights]))
    return sparse.coo_array((sums, (keys // n_micro, keys % n_micro)), shape=(n_micro, n_micro))


def smooth_rows(
    vectors: np.ndarray, weights: np.ndarray, micro_neighbors: np.ndarray, means: list[np.ndarray]
) -> np.ndarray:
    """Unit vectors (n, dim), moved half way to the weighted mean of their neighbours' micro-clusters, once per step.

    `weights` (n, k) and `micro_neighbors` (n, k) are of the neighbours of each row; `means` has the mean vectors
    (micro-clusters, dim) before each step. It is `smooth_vectors` with the mean of a micro-cluster for its rows.
    """
    totals = weights.sum(axis=1, keepdims=True)
    shares = (weights / np.where(totals > 0, totals, 1)).astype(np.float32)
    starts = np.arange(0, shares.size + 1, shares.shape[1])
    smooth = vectors
    for mean in means:
        toward = sparse.csr_array((shares.ravel(), micro_neighbors.ravel(), starts), shape=(len(shares), len(mean)))
        smooth = unit_rows(smooth + toward @ mean)[0]
    return smooth
