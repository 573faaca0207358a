"""The interval of a recall that was measured on rows."""

import numpy as np
import pytest

from sbert_core.neighbors.recall import recall_interval
from sbert_core.sampling import is_sampled


@pytest.mark.parametrize(("a", "b"), [(97, 3), (9.7, 0.3), (2, 1)])
def test_the_interval_holds_although_the_neighbors_of_a_row_are_missed_together(a, b):
    rng = np.random.default_rng(0)
    n_inside = 0
    for _ in range(400):
        own = rng.beta(a, b, 500)  # of each row: rows differ more than 32 independent neighbours would
        total = rng.integers(1, 33, 500)
        low, high = recall_interval(rng.binomial(total, own), total)
        n_inside += low <= a / (a + b) <= high
    assert 0.91 <= n_inside / 400 <= 0.985


def test_rows_count_once_if_they_do_not_differ():
    low, high = recall_interval(np.full(100, 32), np.full(100, 32))
    assert high == pytest.approx(1)
    assert low == pytest.approx(100 / (100 + 1.96**2))
    assert recall_interval(np.zeros(0, int), np.zeros(0, int)) == (0, 1)


def test_samples_of_different_seeds_are_independent():
    rows = np.arange(200_000)
    first, second = (np.flatnonzero(is_sampled(rows, len(rows), 20_000, seed)) for seed in (0, 1))
    for shift in range(-3, 4):
        assert len(np.intersect1d(first + shift, second)) == pytest.approx(2000, abs=250)
