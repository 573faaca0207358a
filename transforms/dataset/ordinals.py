"""Ordinals: the position of every row of a corpus when all ids are sorted.

Steps that compare or count rows identify them by ordinal, so that no result depends on how the corpus is divided into
files and blocks. Ids return when results are written. `AssignOrdinals` stores the ordinals of a corpus; the functions
here read them.

Limits, and what grows:

- A corpus has at most 4,294,967,295 rows: ordinals have 32 bits.
- On disk there are the ids and 8 bytes per row; in the shuffle the ids, compressed, and at most 12 bytes per row. Every
  chunk of 262,144 rows sends something to every range of 64 MiB of ids, so there are chunks x ranges elements. At the
  maximum number of rows one still holds about 4 KiB of ids, so the bytes grow with the corpus and not with its square.
  No element is over 4 MB.
- The worker that chooses the boundaries of ranges holds a sample: one id for each 256 KiB of ids.
- The worker that sorts a range holds its ids and rows, a few times 64 MiB. Ids of more than 8 KiB on average are not
  supported: those of a chunk would not fit into one Arrow array.
- A worker that reads holds the files it used last: up to 256 MiB of ids and 128 MiB of rows and ordinals.
- `ordinals_of_block` reads one or two files of 1 MiB. `ids_of` and `take_rows` read the ranges of their ordinals. The
  neighbours of a block are in all ranges: past 256 MiB of ids, every block of neighbours that is written reads all ids
  of the corpus once, except those in memory.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from sbert_core.data.sorted_ids import join_ids, restore_type, take_ids
from transforms.dataset.corpus import BlockRef, Corpus, read_columns
from transforms.dataset.ordinal_files import (
    OrdinalIndex,
    cached_first,
    ordinals_name,
    read_array,
    read_ids,
    read_index,
    rows_name,
)


def ordinals_of_block(corpus: Corpus, block: BlockRef) -> np.ndarray:
    """The ordinals (n,) of a block's rows."""
    chunk_rows = read_index(corpus.work).chunk_rows
    end = block.first_row + block.rows
    pieces = []
    for number in range(block.first_row // chunk_rows, -(-end // chunk_rows)):
        start = number * chunk_rows
        ordinals = read_array(corpus.work, ordinals_name(number))
        pieces.append(ordinals[max(block.first_row - start, 0) : end - start])
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def ids_of(corpus: Corpus, ordinals: np.ndarray) -> pa.Array:
    """The ids of the rows with these ordinals (n,), in their order.

    They have the type of the id column; only where that would overflow, they have offsets of 64 bits (large_string).
    """
    if not len(ordinals):
        return pa.array([], read_index(corpus.work).id_type if corpus.rows else pa.string())
    index = read_index(corpus.work)
    pieces, places = [], []
    for number, chosen in _by_range(index, ordinals, lambda numbers: cached_first(corpus.work, numbers)):
        positions = ordinals[chosen].astype(np.int64) - index.first_ordinals[number]
        pieces.append(take_ids(read_ids(corpus.work, number), positions))
        places.append(chosen)
    if len(pieces) == 1:
        return restore_type(pieces[0], index.id_type)
    return restore_type(join_ids(pieces).take(pa.array(np.argsort(np.concatenate(places)))), index.id_type)


def rows_of(corpus: Corpus, ordinals: np.ndarray) -> np.ndarray:
    """The rows in the corpus (n,) of these ordinals (n,)."""
    rows = np.empty(len(ordinals), np.uint32)
    if len(ordinals):
        index = read_index(corpus.work)
        for number, chosen in _by_range(index, ordinals):
            positions = ordinals[chosen].astype(np.int64) - index.first_ordinals[number]
            rows[chosen] = read_array(corpus.work, rows_name(number))[positions]
    return rows


def _by_range(
    index: OrdinalIndex, ordinals: np.ndarray, arrange: Callable[[Sequence[int]], Sequence[int]] = list
) -> list[tuple[int, np.ndarray]]:
    """The ranges that ordinals (n,) are in, in the order of `arrange`, and the positions (m,) of their ordinals."""
    if len(index.counts) == 1:
        return [(0, np.arange(len(ordinals)))]
    ranges = np.searchsorted(index.first_ordinals, ordinals, side="right") - 1
    order = np.argsort(ranges, kind="stable")
    numbers, starts = np.unique(ranges[order], return_index=True)
    found = dict(zip(numbers.tolist(), np.split(order, starts[1:]), strict=True))
    return [(number, found[number]) for number in arrange(list(found))]


def take_rows(corpus: Corpus, ordinals: np.ndarray, columns: Sequence[str]) -> pa.Table:
    """Columns of the rows with these ordinals, which must be sorted and distinct; only blocks with some are read."""
    if not len(ordinals):
        return pa.table({column: pa.array([]) for column in columns})
    rows = rows_of(corpus, ordinals)
    order = np.argsort(rows)
    first_rows = np.array([block.first_row for block in corpus.blocks])
    numbers = np.searchsorted(first_rows, rows[order], side="right") - 1
    chosen, starts = np.unique(numbers, return_index=True)
    pieces = []
    for number, found in zip(chosen.tolist(), np.split(rows[order], starts[1:]), strict=True):
        table = read_columns(corpus.blocks[number], columns)
        pieces.append(table.take(pa.array(found.astype(np.int64) - first_rows[number])))
    return pa.concat_tables(pieces).take(pa.array(np.argsort(order)))
