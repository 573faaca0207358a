"""Leiden communities of a weighted graph, the same in every run."""

import ctypes

import numpy as np
from scipy import sparse


def find_leiden(matrix: sparse.csr_array, resolution: float = 1.0, seed: int = 0) -> np.ndarray:
    """Labels (n,) of the Leiden communities of a symmetric matrix (n, n) of weights.

    A higher resolution gives more communities. The same matrix, resolution and seed give the same labels.
    """
    from sknetwork.clustering import Leiden  # takes a second to import

    if not matrix.nnz:
        return np.arange(matrix.shape[0])
    _seed_c_library(seed)
    return Leiden(resolution, random_state=seed, sort_clusters=False).fit_predict(sparse.csr_matrix(matrix))


def _seed_c_library(seed: int) -> None:
    """Seeds the random numbers of the C library for this process.

    The refinement step of scikit-network's Leiden calls the C function `rand` and ignores `random_state`. Without this
    call the labels would differ from run to run. It affects every other user of `rand` in the process; nothing else
    here uses it.
    """
    ctypes.CDLL(None).srand(seed + 1)
