"""Rows of each batch: pure functions of seed and epoch, so that a resumed run uses the same batches."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from sbert_core.data.examples import Examples
from sbert_core.errors import DataError

Mixing = Literal["round_robin", "proportional"]

_WINDOW_BATCHES = 50  # sorted by length together: enough for similar lengths, few enough to stay random


def shuffled_batches(n: int, size: int, seed: int, epoch: int) -> list[np.ndarray]:
    """All rows in random order, `size` at a time; the last batch may be smaller."""
    _check_size(size)
    return _cut(_rng(seed, epoch).permutation(n), size)


def by_length(lengths: np.ndarray, size: int, seed: int, epoch: int) -> list[np.ndarray]:
    """All rows in batches of similar `lengths` (n,), which need little padding.

    Rows are shuffled, then sorted within windows of 50 batches, whose order is then random. One batch may be
    smaller than `size`.
    """
    _check_size(size)
    rng = _rng(seed, epoch)
    batches: list[np.ndarray] = []
    for window in _cut(rng.permutation(len(lengths)), size * _WINDOW_BATCHES):
        cut = _cut(window[np.argsort(np.asarray(lengths)[window], kind="stable")], size)
        batches += [cut[place] for place in rng.permutation(len(cut))]
    return batches


def distinct_batches(examples: Examples, size: int, seed: int, epoch: int) -> list[np.ndarray]:
    """Batches in which no two rows share a text, in any column and ignoring case.

    For objectives that use the texts of all other rows as negatives. A row that does not fit into a batch goes into a
    later one. If a text is so frequent that more than ceil(n / size) batches are needed, the additional batches that
    are less than half full are left out, and so is a batch of one row, which has no negatives: these rows may be used
    in another epoch. The time is linear in the number of rows.
    """
    _check_size(size)
    rng = _rng(seed, epoch)
    keys = _text_keys(examples)
    batches = _place_apart(rng.permutation(len(examples)), keys, size)
    n_needed = -(-len(examples) // size)
    batches = [
        batch
        for number, batch in enumerate(batches)
        if len(batch) >= min(2, size) and (number < n_needed or 2 * len(batch) >= size)
    ]
    if len(examples) and not batches:
        raise DataError(
            f"{examples.name} has no two rows without a common text, as in-batch negatives need: use other rows"
        )
    return [np.array(batches[place], np.int64) for place in rng.permutation(len(batches))]


def _text_keys(examples: Examples) -> np.ndarray:
    """The texts of each row as numbers (n, columns); equal texts have equal numbers."""
    numbers: dict[str, int] = {}
    columns = [
        [numbers.setdefault(text.strip().casefold(), len(numbers)) for text in column] for column in examples.texts
    ]
    return np.array(columns, np.int64).T


def _place_apart(order: np.ndarray, keys: np.ndarray, size: int) -> list[list[int]]:
    """Puts each row into the first batch with room after the batches of all rows that share a key with it."""
    batches: list[list[int]] = []
    following: list[int] = []  # of a batch with room: itself; of a full one: a later batch, on the way to one with room
    earliest = [0] * (int(keys.max(initial=-1)) + 1)  # by key: after the last batch that has it
    for row, own in zip(order.tolist(), keys[order].tolist(), strict=True):
        place = max(earliest[key] for key in own)
        passed = []
        while place < len(batches) and following[place] != place:
            passed.append(place)
            place = following[place]
        for full in passed:  # path compression keeps the search short for later rows
            following[full] = place
        while place >= len(batches):
            batches.append([])
            following.append(len(following))
        batches[place].append(row)
        if len(batches[place]) == size:
            following[place] = place + 1
        for key in own:
            earliest[key] = place + 1
    return batches


def grouped_batches(labels: np.ndarray, size: int, seed: int, epoch: int, per_class: int = 4) -> list[np.ndarray]:
    """Batches with several rows of each of several classes, for objectives that form triplets within a batch.

    The rows of each class are split into groups of at most `per_class`, of nearly equal size, and groups in random
    order fill batches up to `size`. A batch of a single class has no triplets and is left out; its rows may be used in
    another epoch.
    """
    if per_class < 2 or size < 2 * per_class:
        raise DataError(
            f"a batch of {size} with {per_class} rows per class has no triplets: use 2 rows of 2 classes or more"
        )
    labels = np.asarray(labels)
    rng = _rng(seed, epoch)
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    bounds = np.flatnonzero(np.diff(labels[order])) + 1
    if not len(bounds):
        raise DataError("all rows are of one class, but triplets need two or more: use other rows")
    groups = [group for own in np.split(order, bounds) for group in np.array_split(own, -(-len(own) // per_class))]
    batches: list[list[int]] = [[]]
    for place in rng.permutation(len(groups)):
        if len(batches[-1]) + len(groups[place]) > size:
            batches.append([])
        batches[-1] += groups[place].tolist()
    return [np.array(batch, np.int64) for batch in batches if len(np.unique(labels[batch])) > 1]


def mixed_steps(counts: Sequence[int], mixing: Mixing = "round_robin", seed: int = 0, epoch: int = 0) -> list[int]:
    """The number of the data set of each batch of an epoch, for data sets with `counts` batches each.

    Every batch is used once. `round_robin` cycles through the data sets and skips those that are used up.
    `proportional` uses random order, so that each data set occurs in proportion to its batches throughout.
    """
    if any(count < 0 for count in counts):
        raise DataError(f"the number of batches of a data set must not be negative, got {list(counts)}")
    match mixing:
        case "round_robin":
            rounds = sorted((cycle, number) for number, count in enumerate(counts) for cycle in range(count))
            return [number for _, number in rounds]
        case "proportional":
            return _rng(seed, epoch).permutation(np.repeat(np.arange(len(counts)), counts)).tolist()
        case _:
            raise DataError(f"mixing {mixing!r} is not known: use round_robin or proportional")


def _check_size(size: int) -> None:
    if size < 1:
        raise DataError(f"a batch must have at least 1 row, got {size}")


def _rng(seed: int, epoch: int) -> np.random.Generator:
    return np.random.default_rng((seed, epoch))


def _cut(rows: np.ndarray, size: int) -> list[np.ndarray]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]
