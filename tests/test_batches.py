"""Batches are functions of seed and epoch, take every row, and keep what they promise of its company."""

import collections

import numpy as np
import pytest

from sbert_core.data.examples import Examples
from sbert_core.errors import DataError
from sbert_core.training.batches import by_length, distinct_batches, grouped_batches, mixed_steps, shuffled_batches

LENGTHS = np.random.default_rng(0).integers(1, 90, 1003)
LABELS = np.random.default_rng(1).integers(0, 9, 1003)


def repetitive(rows: int = 1003, different: int = 300) -> Examples:
    """Pairs whose texts come several times, in either column, in other case and with other space around."""
    rng = np.random.default_rng(2)
    forms = ["text {}", "Text {} ", " TEXT {}"]
    columns = [[forms[n % 3].format(n) for n in rng.integers(0, different, rows)] for _ in range(2)]
    return Examples((columns[0], columns[1]), name="repeated.tsv")


def keys(examples: Examples, row: int) -> set[str]:
    return {column[row].strip().casefold() for column in examples.texts}


def listed(batches: list[np.ndarray]) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


MAKERS = {
    "shuffled": lambda seed, epoch: shuffled_batches(1003, 16, seed, epoch),
    "by_length": lambda seed, epoch: by_length(LENGTHS, 4, seed, epoch),
    "distinct": lambda seed, epoch: distinct_batches(repetitive(), 16, seed, epoch),
    "grouped": lambda seed, epoch: grouped_batches(LABELS, 16, seed, epoch),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_functions_of_seed_and_epoch(make):
    first = listed(make(3, 1))
    assert first == listed(make(3, 1))
    others = [listed(make(seed, epoch)) for seed, epoch in ((3, 2), (4, 1), (1, 3))]
    assert all(first != other for other in others)
    assert all(batch.dtype == np.int64 for batch in make(3, 1))


@pytest.mark.parametrize("make", [MAKERS["shuffled"], MAKERS["by_length"]])
@pytest.mark.parametrize("epoch", range(3))
def test_every_row_once(make, epoch):
    assert sorted(np.concatenate(make(0, epoch)).tolist()) == list(range(1003))


@pytest.mark.parametrize("make", [MAKERS["distinct"], MAKERS["grouped"]])
def test_no_row_twice_and_in_the_end_every_row(make):
    missed = [set(range(1003)) - set(np.concatenate(make(0, epoch)).tolist()) for epoch in range(9)]
    assert all(sum(map(len, make(0, epoch))) == 1003 - len(missed[epoch]) for epoch in range(9))
    assert max(map(len, missed)) <= 16
    assert not set.intersection(*missed)


def test_shuffled_sizes():
    assert [len(batch) for batch in shuffled_batches(10, 4, 0, 0)] == [4, 4, 2]
    assert [len(batch) for batch in shuffled_batches(8, 4, 0, 0)] == [4, 4]
    assert [len(batch) for batch in shuffled_batches(3, 4, 0, 0)] == [3]


def test_like_lengths_are_together():
    spread = [np.ptp(LENGTHS[batch]) for batch in by_length(LENGTHS, 4, 0, 0)]
    assert np.mean(spread) < 4 < 30 < np.mean([np.ptp(LENGTHS[batch]) for batch in shuffled_batches(1003, 4, 0, 0)])
    means = [LENGTHS[batch].mean() for batch in by_length(LENGTHS, 4, 0, 0)]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.2  # but their order is random
    assert sorted(len(batch) for batch in by_length(LENGTHS, 4, 0, 0)) == [3] + [4] * 250


@pytest.mark.parametrize("size", [1, 2, 16, 100])
def test_no_text_twice(size):
    examples = repetitive()
    for batch in distinct_batches(examples, size, 0, 0):
        counts = collections.Counter(key for row in batch for key in keys(examples, row))
        assert set(counts.values()) == {1}
        assert len(batch) <= size


def test_distinct_batches_are_full():
    sizes = sorted(len(batch) for batch in distinct_batches(repetitive(different=900), 16, 0, 0))
    assert sizes == [11] + [16] * 62


def test_without_repetition_they_are_those_of_any_batches():
    texts = [str(row) for row in range(100)]
    sizes = sorted(len(batch) for batch in distinct_batches(Examples((texts,)), 16, 0, 0))
    assert sizes == [4] + [16] * 6


def test_a_row_may_repeat_its_own_text():
    examples = Examples((["a", "b", "c"], ["A", "b ", "d"]))
    assert [sorted(batch) for batch in distinct_batches(examples, 3, 0, 0)] == [[0, 1, 2]]


def test_deferred_not_lost():
    examples = Examples((["a", "a", "b", "b"], ["1", "2", "3", "4"]))
    for epoch in range(20):
        first, second = distinct_batches(examples, 2, 0, epoch)
        assert [len(keys(examples, row) & {"a"}) for row in sorted(first)] == [1, 0]
        assert sorted([*first, *second]) == [0, 1, 2, 3]


def test_leftovers_that_are_left_out():
    # "yes" is in 40 of 100 rows: 13 batches of 8 would do, and there are 40, most of them with a row or two.
    examples = Examples(([f"text {row}" for row in range(100)], ["yes"] * 40 + [f"word {row}" for row in range(60)]))
    batches = distinct_batches(examples, 8, 0, 0)
    assert all(sum(row < 40 for row in batch) <= 1 for batch in batches)
    assert all(len(batch) >= 2 for batch in batches)
    taken = np.concatenate(batches).tolist()
    assert len(taken) == len(set(taken))
    assert set(taken) >= set(range(40, 100))
    seen = {row for epoch in range(40) for row in np.concatenate(distinct_batches(examples, 8, 0, epoch)).tolist()}
    assert seen == set(range(100))  # in some epoch


def test_a_row_alone_is_left_out():
    examples = Examples(([str(row) for row in range(9)],))
    assert sorted(map(len, distinct_batches(examples, 4, 0, 0))) == [4, 4]
    assert sorted(map(len, distinct_batches(examples, 1, 0, 0))) == [1] * 9


def test_nothing_to_tell_apart():
    for examples in (Examples((["same"] * 5, list("abcde")), name="same.tsv"), Examples((["one"],), name="same.tsv")):
        with pytest.raises(DataError, match=r"same\.tsv has no two rows without a common text"):
            distinct_batches(examples, 4, 0, 0)


def test_distinct_is_linear():
    # The same text in every row: a search through all batches for each row would take very long.
    examples = Examples((["same"] * 50_000, [str(row) for row in range(50_000)]), name="same.tsv")
    with pytest.raises(DataError, match="no two rows"):
        distinct_batches(examples, 16, 0, 0)


@pytest.mark.parametrize(("size", "per_class"), [(8, 4), (16, 4), (18, 3), (16, 2)])
def test_groups_of_classes(size, per_class):
    batches = grouped_batches(LABELS, size, 0, 0, per_class)
    for batch in batches:
        counts = collections.Counter(LABELS[batch].tolist())
        assert len(counts) > 1
        assert len(batch) <= size
    alone = [list(collections.Counter(LABELS[batch].tolist()).values()).count(1) for batch in batches]
    assert sum(alone) <= 9  # an odd class may have one row left
    assert np.mean([len(batch) for batch in batches]) > size - per_class


def test_groups_are_even():
    labels = np.repeat(np.arange(20), 5)  # groups of 3 and 2, not of 4 and 1
    counts = [np.unique(labels[batch], return_counts=True)[1] for batch in grouped_batches(labels, 8, 0, 0)]
    assert set(np.concatenate(counts).tolist()) <= {2, 3, 5}
    assert np.concatenate(counts).sum() == 100


def test_a_batch_of_one_class_is_left_out():
    labels = np.array([0] * 96 + [1] * 4)
    batches = grouped_batches(labels, 8, 0, 0)
    assert len(batches) == 1
    assert collections.Counter(labels[batches[0]].tolist()) == {0: 4, 1: 4}


def test_bad_groups():
    with pytest.raises(DataError, match="a batch of 6 with 4 rows per class has no triplets"):
        grouped_batches(LABELS, 6, 0, 0)
    with pytest.raises(DataError, match="a batch of 16 with 1 rows per class"):
        grouped_batches(LABELS, 16, 0, 0, per_class=1)
    for labels in (np.zeros(9, int), np.zeros(0, int)):
        with pytest.raises(DataError, match="all rows are of one class"):
            grouped_batches(labels, 8, 0, 0)


def test_round_robin():
    assert mixed_steps([3, 1, 2]) == [0, 1, 2, 0, 2, 0]
    assert mixed_steps([2, 0, 1], "round_robin", seed=9, epoch=9) == [0, 2, 0]
    assert mixed_steps([2]) == [0, 0]


def test_proportional():
    steps = mixed_steps([300, 100], "proportional", 0, 0)
    assert steps == mixed_steps([300, 100], "proportional", 0, 0) != mixed_steps([300, 100], "proportional", 0, 1)
    assert collections.Counter(steps) == {0: 300, 1: 100}
    assert all(10 <= sum(steps[start : start + 100]) <= 40 for start in range(0, 400, 100))
    assert all(type(step) is int for step in steps)


def test_bad_mixing():
    with pytest.raises(DataError, match="mixing 'random' is not known: use round_robin or proportional"):
        mixed_steps([1, 2], "random")
    with pytest.raises(DataError, match=r"must not be negative, got \[1, -2\]"):
        mixed_steps([1, -2])


def test_nothing():
    assert shuffled_batches(0, 4, 0, 0) == by_length(np.zeros(0), 4, 0, 0) == []
    assert distinct_batches(Examples(([], [])), 4, 0, 0) == []
    assert mixed_steps([]) == mixed_steps([0, 0], "proportional") == []


@pytest.mark.parametrize("make", [shuffled_batches, by_length, distinct_batches])
def test_no_size(make):
    first = {shuffled_batches: 5, by_length: np.ones(5), distinct_batches: Examples((list("abcde"),))}[make]
    with pytest.raises(DataError, match="a batch must have at least 1 row, got 0"):
        make(first, 0, 0, 0)
