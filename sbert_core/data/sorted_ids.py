"""Sorting ids that are too many for one worker: by ranges of ids, whose boundaries come from a sample.

Ids are Arrow arrays of any type that can identify rows. The order is that of Arrow: strings by their bytes, numbers by
their value. A range holds the ids from its boundary up to the next one.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbert_core.data.columns import comparable_ids

RANGE_BYTES = 64 * 2**20
"""Bytes of ids in a range, about: one worker sorts them, and whoever needs one of its ids loads it."""

SAMPLES_PER_RANGE = 256  # ranges then differ in size by some tens of percent at most

MAX_32_BIT_BYTES = 2**31 - 1
"""Bytes of values that an Arrow array with offsets of 32 bits can hold."""

_LARGE_TYPES = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}


def id_sizes(ids: pa.Array) -> np.ndarray:
    """The number of bytes (n,) of each id."""
    values = comparable_ids(ids)
    if values.type in _LARGE_TYPES or values.type in _LARGE_TYPES.values():
        return pc.binary_length(values).to_numpy().astype(np.int64)
    return np.full(len(ids), max(values.type.bit_width // 8, 1), np.int64)


def sample_ids(ids: pa.Array, range_bytes: int, seed: int) -> tuple[pa.Array, np.ndarray]:
    """Ids (m,) at random places, so many per range of `range_bytes`, and the number of places (m,) in each of them.

    The places are random among the bytes, not among the ids, so that ranges of long ids are not larger than others.
    There is at least one unless there are no ids.
    """
    ends = np.cumsum(id_sizes(ids))
    total = int(ends[-1]) if len(ends) else 0
    count = -(-total * SAMPLES_PER_RANGE // range_bytes)
    strata = np.linspace(0, total, count, endpoint=False)
    places = strata + np.random.default_rng(seed).random(count) * (total / max(count, 1))
    rows = np.minimum(np.searchsorted(ends, places, side="right"), len(ids) - 1)
    chosen, times = np.unique(rows, return_counts=True)
    return ids.take(pa.array(chosen)), times


def choose_boundaries(samples: pa.Array, times: np.ndarray, total_bytes: int, range_bytes: int) -> pa.Array:
    """The first id of each range but the first, sorted; as many ranges as `total_bytes` need.

    `times` (n,) is how often each of the samples (n,) was drawn.
    """
    count = -(-total_bytes // range_bytes)
    order = sort_ids(samples)
    ends = np.cumsum(times[order])
    chosen = np.unique(np.searchsorted(ends, np.arange(1, count) * ends[-1] // count, side="right"))
    boundaries = samples.take(pa.array(order[chosen]))
    if len(boundaries) < 2:
        return boundaries
    compared = comparable_ids(boundaries)
    is_new = np.append(True, ~pc.equal(compared[1:], compared[:-1]).to_numpy(zero_copy_only=False))
    return boundaries.filter(pa.array(is_new))


def split_by_range(ids: pa.Array, boundaries: pa.Array) -> Iterator[tuple[int, np.ndarray]]:
    """The number of each range that has some of the ids, and their positions (m,) among `ids`."""
    if not len(boundaries):
        if len(ids):
            yield 0, np.arange(len(ids))
        return
    # A stable sort puts a boundary before an id that equals it.
    order = pc.sort_indices(comparable_ids(join_ids([boundaries, ids]))).to_numpy().astype(np.int64)
    is_boundary = order < len(boundaries)
    ranges = np.cumsum(is_boundary)[~is_boundary]
    positions = order[~is_boundary] - len(boundaries)
    numbers, starts = np.unique(ranges, return_index=True)
    yield from zip(numbers.tolist(), np.split(positions, starts[1:]), strict=True)


def sort_ids(ids: pa.Array) -> np.ndarray:
    """The positions (n,) of ids in ascending order."""
    return pc.sort_indices(comparable_ids(ids)).to_numpy()


def find_repeated(ordered: pa.Array) -> int | None:
    """The position of the first of sorted ids that equals the next one; None if all are distinct."""
    if len(ordered) < 2:
        return None
    compared = comparable_ids(ordered)
    position = pc.index(pc.equal(compared[1:], compared[:-1]), True).as_py()
    return position if position >= 0 else None


def join_ids(pieces: Sequence[pa.Array]) -> pa.Array:
    """All ids in one array; with offsets of 64 bits (large_string ...) where 32 bits would overflow."""
    kinds = {piece.type for piece in pieces}
    large = next((_LARGE_TYPES[kind] for kind in kinds if kind in _LARGE_TYPES), None)
    if large is not None and (len(kinds) > 1 or sum(int(id_sizes(each).sum()) for each in pieces) > MAX_32_BIT_BYTES):
        pieces = [piece.cast(large) for piece in pieces]
    return pa.concat_arrays(pieces)


def take_ids(ids: pa.Array, positions: np.ndarray) -> pa.Array:
    """The ids at these positions (n,); with offsets of 64 bits where 32 bits would overflow."""
    large = _LARGE_TYPES.get(ids.type)
    if large is not None and len(positions):
        offsets = np.frombuffer(ids.buffers()[1], np.int32)[ids.offset :]
        index = positions.astype(np.int64)
        if int((offsets[index + 1] - offsets[index]).sum(dtype=np.int64)) > MAX_32_BIT_BYTES:
            ids = ids.cast(large)
    return ids.take(pa.array(positions))


def restore_type(ids: pa.Array, kind: pa.DataType) -> pa.Array:
    """Ids in the type of their column, unless that has offsets of 32 bits and they would overflow."""
    if ids.type == kind or int(id_sizes(ids).sum()) > MAX_32_BIT_BYTES:
        return ids
    return ids.cast(kind)
