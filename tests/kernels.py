"""Prints digests of float32 products and of the neighbours of the same vectors, for tests of other kernels.

python -m tests.kernels BLOCK_ROWS TILE_ROWS THREADS
"""

import functools
import hashlib

import numpy as np
import torch

from sbert_core.neighbors import cosine, in_memory
from sbert_core.neighbors.unit_vectors import unit_rows

DIVISIONS = [(8192, 2048, 1), (97, 64, 2), (1000, 33, 1), (512, 2048, 3)]  # rows of blocks, rows of tiles, threads


def make_vectors() -> np.ndarray:
    """Rows around 20 topics, of which one has 100 copies, many have several, and two are zero."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(20, 384))[rng.integers(0, 20, 1500)] + 0.5 * rng.normal(size=(1500, 384))
    vectors[700:900] = vectors[500:700] * rng.uniform(0.1, 9, (200, 1))
    vectors = vectors.astype(np.float32)
    vectors[rng.permutation(1500)[:100]] = vectors[3]
    vectors[[10, 1200]] = 0
    return vectors


def main() -> None:
    """Prints a digest of products, and one of neighbours for each division."""
    vectors = make_vectors()
    unit = torch.from_numpy(unit_rows(vectors)[0])
    print("products", hashlib.sha256(torch.mm(unit, unit.T).numpy().tobytes()).hexdigest())
    for block_rows, tile_rows, threads in DIVISIONS:
        torch.set_num_threads(threads)
        in_memory.compare = functools.partial(cosine.compare, tile_rows=tile_rows)
        found = hashlib.sha256()
        for k, min_score in ((5, -np.inf), (40, 0.8)):
            neighbors = in_memory.find_neighbors(vectors, k, min_score, block_rows=block_rows)
            found.update(neighbors.indices.tobytes() + neighbors.scores.tobytes())
        print("neighbors", found.hexdigest())


if __name__ == "__main__":
    main()
