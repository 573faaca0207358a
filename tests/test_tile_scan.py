"""Which entries of a tile are added, and that no other can be among the best."""

import numpy as np
import pytest
import torch

from sbert_core.neighbors.candidates import EMPTY, ordinals_of, scores_of
from sbert_core.neighbors.tile_scan import TileAxis, TileScanner, kth_group_maxima
from sbert_core.neighbors.topk import TopK
from sbert_core.neighbors.unit_vectors import Block, unit_rows


def make_tile(n: int, m: int, seed: int) -> tuple[Block, Block, np.ndarray]:
    """Two blocks and their products."""
    rng = np.random.default_rng(seed)
    left, right = (
        Block(torch.from_numpy(unit_rows(rng.normal(size=(size, 4)))[0]), np.arange(size, dtype=np.uint32))
        for size in (n, m)
    )
    return left, right, (left.vectors @ right.vectors.T).numpy()


def scan(left: Block, right: Block, tile: np.ndarray, rows: TopK, columns: TopK | None) -> None:
    first_column = rows.open_source(left, right)
    first_row = 0 if columns is None else columns.open_source(right, left)
    TileScanner(tile.size).scan(
        tile,
        TileAxis(slice(0, len(left)), first_row, rows),
        TileAxis(slice(0, len(right)), first_column, columns),
    )


def test_the_example_of_the_docstring():
    row = np.array([[0.1, 0.7, 0.3, 0.2, 0.6, 0.4, 0.9, 0.5]], np.float32)
    assert kth_group_maxima(row, k=2, n_groups=4, axis=1).tolist() == [np.float32(0.7)]
    assert kth_group_maxima(np.ascontiguousarray(row.T), k=2, n_groups=4, axis=0).tolist() == [np.float32(0.7)]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("n_entries", [64, 100, 128])
def test_at_least_k_entries_reach_the_kth_group_maximum(axis, n_entries):
    tile = np.random.default_rng(0).random((n_entries, n_entries), np.float32)
    for k in (1, 5, 64):
        thresholds = np.expand_dims(kth_group_maxima(tile, k, 64, axis), axis)
        assert ((tile >= thresholds).sum(axis=axis) >= k).all()


@pytest.mark.parametrize("min_score", [-np.inf, 0.0, 0.9])
def test_rows_and_columns_get_their_best_entries(min_score):
    left, right, tile = make_tile(150, 200, seed=1)
    rows, columns = TopK(150, 3, min_score), TopK(200, 3, min_score)
    scan(left, right, tile, rows, columns)
    for topk, scores in ((rows, tile), (columns, tile.T)):
        best = -np.sort(-scores, axis=1)[:, :3]
        expected = np.where(best >= min_score, best, np.nan)
        np.testing.assert_allclose(scores_of(topk.candidates()), expected, atol=1e-6)


def test_masked_entries_are_never_added():
    left, right, tile = make_tile(100, 100, seed=2)
    tile[np.arange(100)[:, None] * 100 + np.arange(100) != 507] = -np.inf
    rows, columns = TopK(100, 2), TopK(100, 2)
    scan(left, right, tile, rows, columns)
    assert ordinals_of(rows.candidates()[5, :1]).tolist() == [7]
    assert ordinals_of(columns.candidates()[7, :1]).tolist() == [5]
    assert (rows.candidates() != EMPTY).sum() == (columns.candidates() != EMPTY).sum() == 1


def test_columns_without_a_collector_are_left_out():
    left, right, tile = make_tile(10, 20, seed=2)
    rows, both = TopK(10, 3), TopK(10, 3)
    scan(left, right, tile, rows, None)
    scan(left, right, tile, both, TopK(20, 3))
    np.testing.assert_array_equal(rows.candidates(), both.candidates())
