"""Samples of rows that every worker draws for itself."""

import numpy as np
import pytest

from sbert_core.sampling import is_sampled


@pytest.mark.parametrize("seed", [0, 1])
def test_the_sample_has_about_the_size_asked_for(seed):
    assert abs(is_sampled(np.arange(100_000), 100_000, 1000, seed).sum() - 1000) < 150


def test_a_sample_does_not_depend_on_how_rows_are_divided():
    ordinals = np.random.default_rng(0).permutation(5000).astype(np.uint32)
    whole = is_sampled(ordinals, 5000, 500)
    parts = [is_sampled(part, 5000, 500) for part in np.array_split(ordinals, 7)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_another_seed_is_another_sample():
    ordinals = np.arange(5000)
    both = is_sampled(ordinals, 5000, 500, seed=0) & is_sampled(ordinals, 5000, 500, seed=1)
    assert both.sum() < 100


@pytest.mark.parametrize(("n_rows", "sample_size", "expected"), [(10, 10, 10), (10, 99, 10), (10, 0, 0), (0, 5, 0)])
def test_all_rows_or_none(n_rows, sample_size, expected):
    assert is_sampled(np.arange(n_rows), n_rows, sample_size).sum() == expected
