"""Unit vectors and exact scores against exact sums."""

import math

import numpy as np
import pytest
import torch

from sbert_core.errors import DataError
from sbert_core.neighbors.unit_vectors import exact_scores, product_error, unit_rows


def random_rows(n: int, dim: int, seed: int = 0) -> np.ndarray:
    """Unit rows; their lengths were very different."""
    rng = np.random.default_rng(seed)
    return unit_rows(rng.normal(size=(n, dim)) * 10 ** rng.uniform(-6, 6, (n, 1)))[0]


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, np.int8, np.uint8])
def test_unit_rows(kind):
    vectors = np.array([[3, 4, 0], [0, 0, 0], [1, 1, 1], [100, 100, 100]], kind)
    before = vectors.copy()
    unit, has_direction = unit_rows(vectors)
    assert unit.dtype == np.float32
    np.testing.assert_allclose(unit, [[0.6, 0.8, 0], [0, 0, 0], [3**-0.5] * 3, [3**-0.5] * 3], atol=1e-7)
    assert has_direction.tolist() == [True, False, True, True]
    np.testing.assert_array_equal(vectors, before)


def test_unit_rows_of_any_size_and_layout():
    vectors = np.array([[1e-30, 0], [3e38, 3e38], [-2, 0]], np.float32)
    unit, has_direction = unit_rows(np.asfortranarray(vectors))
    np.testing.assert_allclose(unit, [[1, 0], [0.5**0.5, 0.5**0.5], [-1, 0]], atol=1e-7)
    assert unit.flags.c_contiguous
    assert has_direction.all()
    assert unit_rows(np.empty((0, 3)))[0].shape == (0, 3)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite(value):
    vectors = np.ones((9, 3), np.float16)
    vectors[6, 1] = vectors[8, 0] = value
    with pytest.raises(DataError, match=r"row 6 .*not finite"):
        unit_rows(vectors)


@pytest.mark.parametrize("dim", [1, 2, 3, 7, 384, 1000])
def test_rows_have_length_one_and_are_on_the_grid(dim):
    rows = random_rows(700, dim)
    lengths = [math.sqrt(math.fsum(float(value) ** 2 for value in row)) for row in rows[:50]]
    np.testing.assert_allclose(lengths, 1, atol=2e-7)
    assert (np.rint(rows.astype(np.float64) * 2**26) == rows.astype(np.float64) * 2**26).all()


def test_a_unit_row_depends_on_nothing_but_its_row():
    vectors = np.random.default_rng(0).normal(size=(1500, 37)).astype(np.float32)
    whole = unit_rows(vectors)[0]
    vectors[::2] *= 1e-35  # rows beside it are out of the range of float32
    for start, stop in ((0, 1), (1, 700), (701, 1500)):
        part = unit_rows(vectors[start:stop])[0]
        is_odd = np.arange(start, stop) % 2 == 1
        assert part[is_odd].tobytes() == whole[start:stop][is_odd].tobytes()


def test_rows_without_columns_have_no_direction():
    unit, has_direction = unit_rows(np.empty((3, 0)))
    assert unit.shape == (3, 0)
    assert not has_direction.any()


@pytest.mark.parametrize("dim", [1, 3, 384, 1024])
def test_scores_are_the_exact_sums(dim):
    left, right = random_rows(600, dim), random_rows(600, dim, seed=1)
    right[:100] = left[:100]
    sums = [
        math.fsum(float(a) * float(b) for a, b in zip(*rows, strict=True)) for rows in zip(left, right, strict=True)
    ]
    assert exact_scores(left, right).tolist() == np.minimum(sums, 1).astype(np.float32).tolist()


def test_the_order_of_additions_has_no_effect():
    left, right = random_rows(600, 384), random_rows(600, 384, seed=1)
    expected = exact_scores(left, right)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(384)
        assert exact_scores(left[:, order], right[:, order]).tobytes() == expected.tobytes()
    assert exact_scores(right, left).tobytes() == expected.tobytes()
    # Of products in float32 this is not true: the tests above can fail.
    products = [np.einsum("nd,nd->n", left[:, order], right[:, order]) for order in (np.arange(384), order)]
    assert products[0].tobytes() != products[1].tobytes()


def test_scores_of_chosen_rows():
    left, right = random_rows(40, 9), random_rows(30, 9, seed=1)
    rng = np.random.default_rng(0)
    left_rows, right_rows = rng.integers(0, 40, 2000), rng.integers(0, 30, 2000).astype(np.uint32)
    chosen = exact_scores(left, right, left_rows, right_rows)
    assert chosen.tobytes() == exact_scores(left[left_rows], right[right_rows]).tobytes()
    assert exact_scores(left, right, left_rows[:0], right_rows[:0]).shape == (0,)


@pytest.mark.parametrize("dim", [1, 16, 384, 2048])
def test_products_differ_from_scores_by_less_than_the_bound(dim):
    left, right = random_rows(500, dim), random_rows(500, dim, seed=1)
    right[:50] = left[:50]
    products = torch.mm(torch.from_numpy(left), torch.from_numpy(right).T).numpy()
    worst = np.zeros(500, np.float32)  # added one after the other
    for column in range(dim):
        worst += left[:, column] * right[:, column]
    scores = exact_scores(left, right)
    assert np.abs(np.diag(products) - scores).max() <= product_error(dim)
    assert np.abs(worst - scores).max() <= product_error(dim)
