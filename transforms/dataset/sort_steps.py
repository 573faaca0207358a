"""The steps that sort the ids of a corpus by ranges, for workers (`AssignOrdinals`) and for one process.

Chunks of rows give samples of their ids, from which the boundaries of ranges are chosen. Then they send their ids to
the ranges. Each range is sorted at once, and the positions in it return to the chunks.
"""

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from sbert_core.data.schema import ID
from sbert_core.data.sorted_ids import (
    RANGE_BYTES,
    choose_boundaries,
    find_repeated,
    id_sizes,
    join_ids,
    sample_ids,
    sort_ids,
    split_by_range,
    take_ids,
)
from sbert_core.errors import DataError, JobError
from transforms.dataset.corpus import Corpus
from transforms.dataset.ordinal_files import (
    OrdinalIndex,
    folder_of_ordinals,
    from_ipc,
    ids_name,
    ordinals_name,
    rows_name,
    store_array,
    store_ids,
    store_index,
    to_ipc,
)
from transforms.dataset.slices import InputSlice, read_rows

CHUNK_ROWS = 2**18
PIECE_BYTES = 2 * 2**20  # of ids in an element

_ROW, _TIMES = "row", "times"


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Consecutive rows of a corpus, whose ids are read together."""

    folder: str  # of the ordinals of the corpus
    corpus: str  # its name, for messages
    id_column: str
    number: int
    first_row: int
    slices: tuple[InputSlice, ...]


class Piece(NamedTuple):
    """Some ids of a range that are in one chunk, and their rows in the corpus."""

    corpus: str
    content: bytes


class Ranks(NamedTuple):
    """The positions in the order of a range of some rows of a chunk."""

    range: int
    rows: bytes  # (n,) uint32, counted from the first row of the chunk
    ranks: bytes  # (n,) uint32


RangeKey = tuple[str, int]  # the folder of the ordinals of a corpus, and the number of a range
ChunkKey = tuple[str, int]  # the same, and the number of a chunk


def divide_into_chunks(corpus: Corpus, folder: str, chunk_rows: int) -> Iterator[Chunk]:
    """Chunks of `chunk_rows` rows; they do not depend on the blocks of the corpus."""
    groups: dict[int, list[InputSlice]] = collections.defaultdict(list)
    row = 0
    for input_slice in (each for block in corpus.blocks for each in block.slices):
        skip = 0
        while skip < input_slice.rows:
            number = row // chunk_rows
            rows = min(input_slice.rows - skip, (number + 1) * chunk_rows - row)
            _append_rows(groups[number], input_slice, skip, rows)
            row, skip = row + rows, skip + rows
    for number, slices in groups.items():
        yield Chunk(folder, corpus.name, corpus.id_column, number, number * chunk_rows, tuple(slices))


def _append_rows(slices: list[InputSlice], input_slice: InputSlice, skip: int, rows: int) -> None:
    """Adds some rows of a slice; rows that follow the last ones in the same row group are read with them."""
    added = dataclasses.replace(
        input_slice, skip_rows=input_slice.skip_rows + skip, first_row=input_slice.first_row + skip, rows=rows
    )
    if slices:
        last = slices[-1]
        following = dataclasses.replace(
            last, skip_rows=last.skip_rows + last.rows, first_row=last.first_row + last.rows, rows=rows
        )
        if added == following:
            slices[-1] = dataclasses.replace(last, rows=last.rows + rows)
            return
    slices.append(added)


def _read_ids(chunk: Chunk) -> tuple[pa.Array, pa.DataType]:
    """The ids of a chunk and their type in the corpus; dictionaries are decoded, rows without an id are an error."""
    pieces = []
    for input_slice in chunk.slices:
        ids = read_rows(input_slice, [chunk.id_column]).column(chunk.id_column)
        pieces.append(ids.cast(ids.type.value_type) if pa.types.is_dictionary(ids.type) else ids)
        if ids.null_count:
            raise DataError(f"{chunk.corpus} has rows without an id in column {chunk.id_column!r}")
    return join_ids(pieces), pieces[0].type


class Sample(NamedTuple):
    """A sample of the ids of a chunk, and the bytes of all of them."""

    ids: bytes  # with how often each was drawn
    total_bytes: int


def sample_chunk(chunk: Chunk, range_bytes: int) -> Sample:
    """A sample of the ids of a chunk."""
    ids, kind = _read_ids(chunk)
    found, times = sample_ids(ids, range_bytes, seed=chunk.number)
    return Sample(to_ipc(pa.record_batch([_cast(found, kind), times], [ID, _TIMES])), int(id_sizes(ids).sum()))


def _cast(ids: pa.Array, kind: pa.DataType) -> pa.Array:
    return ids if ids.type == kind else ids.cast(kind)


def boundaries_of(samples: Iterable[Sample], range_bytes: int) -> bytes:
    """The boundaries of the ranges of a corpus, as a batch with ids of the type that they have in the corpus."""
    found = list(samples)
    batches = [from_ipc(sample.ids) for sample in found]
    ids = join_ids([batch.column(ID) for batch in batches])
    times = np.concatenate([batch.column(_TIMES).to_numpy() for batch in batches])
    boundaries = choose_boundaries(ids, times, sum(sample.total_bytes for sample in found), range_bytes)
    return to_ipc(pa.record_batch([_cast(boundaries, batches[0].column(ID).type)], [ID]))


def split_chunk(chunk: Chunk, boundaries: bytes) -> Iterator[tuple[int, Piece]]:
    """The ids of a chunk by range, in pieces of limited size."""
    ids, _ = _read_ids(chunk)
    for number, positions in split_by_range(ids, from_ipc(boundaries).column(ID)):
        found = take_ids(ids, positions)
        rows = pa.array((positions + chunk.first_row).astype(np.uint32))
        batch = pa.record_batch([found, rows], [ID, _ROW])
        pieces = -(-int(id_sizes(found).sum()) // PIECE_BYTES)
        size = -(-len(batch) // max(pieces, 1))
        for start in range(0, len(batch), size):
            yield number, Piece(chunk.corpus, to_ipc(batch.slice(start, size)))


def sort_range(key: RangeKey, pieces: Iterable[Piece], chunk_rows: int) -> tuple[int, list[tuple[int, Ranks]]]:
    """Sorts and stores the ids of a range; returns how many there are, and the ranks of rows by chunk."""
    folder, number = key
    corpus, ids, rows = _join_pieces(pieces)
    order = sort_ids(ids)
    ids, rows = ids.take(pa.array(order)), rows[order]
    del order
    repeated = find_repeated(ids)
    if repeated is not None:
        raise DataError(f"{corpus} has two rows with the id {ids[repeated].as_py()!r}: ids must be unique")
    store_ids(f"{folder}/{ids_name(number)}", ids)
    del ids
    store_array(f"{folder}/{rows_name(number)}", rows)
    chunks = rows // np.uint32(chunk_rows)
    by_chunk = np.argsort(chunks, kind="stable").astype(np.uint32)
    numbers, starts = np.unique(chunks[by_chunk], return_index=True)
    ranks = [
        (chunk, Ranks(number, (rows[which] - np.uint32(chunk * chunk_rows)).tobytes(), which.tobytes()))
        for chunk, which in zip(numbers.tolist(), np.split(by_chunk, starts[1:]), strict=True)
    ]
    return len(rows), ranks


def _join_pieces(pieces: Iterable[Piece]) -> tuple[str, pa.Array, np.ndarray]:
    """The name of the corpus, and all ids and rows; the pieces are no longer in memory."""
    corpus, batches = "", []
    for piece in pieces:
        corpus = piece.corpus
        batches.append(from_ipc(piece.content))
    rows = np.concatenate([batch.column(_ROW).to_numpy() for batch in batches])
    return corpus, join_ids([batch.column(ID) for batch in batches]), rows


def store_ordinals(key: ChunkKey, found: Iterable[Ranks], index: OrdinalIndex) -> int:
    """Stores the ordinals of the rows of a chunk, whose ranks came from all ranges; returns the number of rows."""
    folder, number = key
    parts = list(found)
    ordinals = np.empty(sum(len(part.rows) for part in parts) // 4, np.uint32)
    for part in parts:
        first = np.uint32(index.first_ordinals[part.range])
        ordinals[np.frombuffer(part.rows, np.uint32)] = np.frombuffer(part.ranks, np.uint32) + first
    store_array(f"{folder}/{ordinals_name(number)}", ordinals)
    return len(ordinals)


def assign_ordinals(
    corpus: Corpus, parent: str, range_bytes: int = RANGE_BYTES, chunk_rows: int = CHUNK_ROWS
) -> Corpus:
    """Gives the rows of a corpus their ordinals in this process, as `AssignOrdinals` does with workers."""
    folder = folder_of_ordinals(parent, corpus)
    if corpus.rows:
        chunks = list(divide_into_chunks(corpus, folder, chunk_rows))
        boundaries = boundaries_of([sample_chunk(chunk, range_bytes) for chunk in chunks], range_bytes)
        pieces: dict[int, list[Piece]] = collections.defaultdict(list)
        for chunk in chunks:
            for number, piece in split_chunk(chunk, boundaries):
                pieces[number].append(piece)
        counts: dict[int, int] = {}
        ranks: dict[int, list[Ranks]] = collections.defaultdict(list)
        for number in sorted(pieces):
            counts[number], found = sort_range((folder, number), pieces.pop(number), chunk_rows)
            for chunk_number, each in found:
                ranks[chunk_number].append(each)
        index = make_index(counts, boundaries, chunk_rows)
        stored = sum(store_ordinals((folder, number), parts, index) for number, parts in ranks.items())
        complete(folder, stored, index)
    return dataclasses.replace(corpus, work=folder)


def make_index(counts: Mapping[int, int], boundaries: bytes, chunk_rows: int) -> OrdinalIndex:
    """The index of a corpus, from the number of ids in each range that has some."""
    batch = from_ipc(boundaries)
    return OrdinalIndex(
        tuple(counts.get(number, 0) for number in range(len(batch) + 1)), chunk_rows, batch.schema.field(ID).type
    )


def complete(folder: str, stored: int, index: OrdinalIndex) -> None:
    """Writes the index when the ordinals of all rows are stored."""
    if stored != index.rows:
        raise JobError(f"{index.rows} ids were sorted, but {stored} rows got an ordinal: run the same command again")
    store_index(folder, index)
