"""How many probes pairs of neighbours need, and the choice that follows from it."""

import numpy as np
import pytest

from sbert_core.neighbors.probing import ProbedRows, Probing, choose_probing, join_probed, probes_needed, rounds_for


def test_one_of_two_rows_must_probe_the_others_home():
    parts = [
        ProbedRows(np.array([7, 2]), np.array([[5, 1, 0], [3, 4, 1]])),
        ProbedRows(np.array([4]), np.array([[1, 2, 3]])),
    ]
    probed = join_probed(parts)
    assert probed.ordinals.tolist() == [2, 4, 7]
    # Homes are 3, 1 and 5: 1 is the third cell of row 2, and the second of row 7; 5 is no cell of row 2.
    rows, neighbors = np.array([2, 2, 4, 7, 4]), np.array([4, 7, 7, 4, 4])
    assert probes_needed(rows, neighbors, probed).tolist() == [3, 4, 2, 2, 1]


def needed(*shares: float) -> np.ndarray:
    """Of 1,000 pairs, the given shares need 1, 2, 3 ... probes, the others more than there are."""
    counts = [round(1000 * share) for share in shares]
    return np.repeat(np.arange(1, len(shares) + 2), [*counts, 1000 - sum(counts)])


@pytest.mark.parametrize(
    ("recall", "expected"),
    [
        (0.6, Probing(1, 0)),
        (0.8, Probing(2, 0)),
        (0.9, Probing(3, 0)),  # one more probe costs less than a round
        (0.96, Probing(3, 1)),  # 0.9 suffice before a round
        (0.999, Probing(6, 2)),  # nothing suffices: all that there is
    ],
)
def test_the_least_work_is_chosen(recall, expected):
    assert choose_probing(needed(0.7, 0.12, 0.1, 0.02, 0.02, 0.01), recall, 6, 1500) == expected


def test_rounds_replace_many_probes():
    found = needed(0.91, *[0.001] * 50)
    assert choose_probing(found, 0.97, 51, rows_per_cell=1000) == Probing(1, 2)
    assert choose_probing(found, 0.97, 51, rows_per_cell=100) == Probing(16, 1)


def test_with_given_probes_a_round_is_made_for_a_high_recall():
    assert (rounds_for(0.5), rounds_for(0.97)) == (0, 1)
