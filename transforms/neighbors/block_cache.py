"""Blocks of vectors as workers load them, and the cache of those that a process loaded last."""

import collections
import dataclasses
import threading

import numpy as np
import pandas as pd
import torch
from apache_beam.metrics import Metrics

from sbert_core.neighbors.cosine import Block
from sbert_core.process_cache import process_cache
from transforms.dataset.corpus import BlockRef, Corpus, read_columns, read_vectors
from transforms.dataset.ordinals import ordinals_of_block

CACHE_BYTES = 512 * 2**20  # of vectors, per process


@dataclasses.dataclass(frozen=True, eq=False)
class LoadedBlock:
    """The rows of a block that can be compared, and which rows of the block these are."""

    block: Block
    has_direction: np.ndarray  # (rows of the block,) bool: false for vectors of zeros

    def for_all_rows(self, candidates: np.ndarray) -> np.ndarray:
        """Candidates (rows of the block, k) from those of the rows that have a direction; the others have none."""
        result = np.zeros((len(self.has_direction), candidates.shape[1]), np.uint64)
        result[self.has_direction] = candidates
        return result


def load_block(corpus: Corpus, ref: BlockRef, group_column: str | None) -> LoadedBlock:
    """Reads the vectors, ordinals and groups of a block. Counter: `mine/zero_vectors`."""
    vectors, has_direction = read_vectors(corpus, ref)
    groups = None
    if group_column:
        values = read_columns(ref, [group_column])[group_column].cast("string").to_numpy(zero_copy_only=False)
        groups = pd.util.hash_array(np.where(pd.isna(values), "", values), categorize=False)[has_direction]
    if not has_direction.all():
        Metrics.counter("mine", "zero_vectors").inc(int((~has_direction).sum()))
    ordinals = ordinals_of_block(corpus, ref)[has_direction]
    return LoadedBlock(Block(torch.from_numpy(vectors[has_direction]), ordinals, groups), has_direction)


class BlockCache:
    """Keeps the blocks that were used last, up to `max_bytes` of vectors.

    A worker compares each block with many others, and several steps of a pipeline use the same blocks. Threads of a
    process may share a cache; two of them may load the same block at the same time, which costs time only. Blocks are
    identified by the folder of the corpus's ordinals, which depends on the content of the corpus, and by their rows.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._blocks: collections.OrderedDict[tuple[str, int, int, str | None], LoadedBlock] = collections.OrderedDict()
        self._lock = threading.Lock()

    def get(self, corpus: Corpus, number: int, group_column: str | None) -> LoadedBlock:
        """A block from the cache, or from its files."""
        block = corpus.blocks[number]
        key = (corpus.work, block.first_row, block.rows, group_column)
        with self._lock:
            if key in self._blocks:
                self._blocks.move_to_end(key)
                return self._blocks[key]
        loaded = load_block(corpus, block, group_column)
        with self._lock:
            self._blocks[key] = loaded
            while sum(each.block.vectors.nbytes for each in self._blocks.values()) > self._max_bytes:
                self._blocks.popitem(last=False)
        return loaded


@process_cache(max_entries=1)
def block_cache() -> BlockCache:
    """The cache of this process. It is not part of a DoFn: Beam makes one for each thread and each step."""
    return BlockCache(CACHE_BYTES)
