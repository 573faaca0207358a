"""Groups are numbered by size, then by their first row."""

import numpy as np
import pytest

from sbert_core.numbering import UNNUMBERED, number_groups, number_labels


def test_the_largest_group_is_number_0_and_ties_go_to_the_first_row():
    assert number_groups(np.array([2, 3, 2, 0, 1]), np.array([7, 4, 0, 9, 1])).tolist() == [2, 0, 1, UNNUMBERED, 3]


@pytest.mark.parametrize(("min_size", "expected"), [(0, [1, 0, 2]), (2, [1, 0, -1]), (9, [-1, -1, -1])])
def test_small_groups_have_no_number(min_size, expected):
    assert number_groups(np.array([2, 3, 1]), np.array([0, 1, 2]), min_size).tolist() == expected


def test_labels_become_numbers():
    assert number_labels(np.array([7, 7, 3, -1, 3, 3, 9, 9])).tolist() == [1, 1, 0, -1, 0, 0, 2, 2]
    assert number_labels(np.array([-1, -1, -1, 5])).tolist() == [-1, -1, -1, 0]
    assert number_labels(np.array([7, 7, 3, -1]), min_size=2).tolist() == [0, 0, -1, -1]
    assert number_labels(np.empty(0, np.int64)).tolist() == []


def test_groups_are_numbered_as_if_all_labels_were_known():
    rng = np.random.default_rng(0)
    labels = rng.choice(12, 300, p=np.array([*range(1, 9), 4, 4, 4, 4]) / 52)
    first_rows = np.array([np.flatnonzero(labels == label)[0] for label in range(12)])
    numbers = number_groups(np.bincount(labels, minlength=12), first_rows, 10)
    np.testing.assert_array_equal(numbers[labels], number_labels(labels, 10))
