"""Blocks of vectors as workers load them, and the cache of those that a process loaded last."""

import dataclasses

import numpy as np
import pandas as pd
import torch
from apache_beam.metrics import Metrics

from sbert_core.neighbors.cosine import Block
from sbert_core.process_cache import ByteCache
from transforms.dataset.corpus import BlockRef, Corpus, read_columns, read_vectors
from transforms.dataset.ordinals import ordinals_of_block

CACHE_BYTES = 512 * 2**20  # of vectors, per process
RECENT_BYTES = 96 * 2**20


@dataclasses.dataclass(frozen=True, eq=False)
class LoadedBlock:
    """The rows of a block that can be compared, and which rows of the block these are."""

    block: Block
    has_direction: np.ndarray  # (rows of the block,) bool: false for vectors of zeros

    @property
    def nbytes(self) -> int:
        """The size of the vectors."""
        return self.block.vectors.nbytes

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


_cached = ByteCache(CACHE_BYTES)
_recent = ByteCache(RECENT_BYTES)


def cached_block(corpus: Corpus, number: int, group_column: str | None) -> LoadedBlock:
    """A block from the cache of this process, or from its files; for steps that compare each block with many others."""
    return _get(_cached, corpus, number, group_column)


def recent_block(corpus: Corpus, number: int, group_column: str | None) -> LoadedBlock:
    """The same with a small cache, for steps that go through all blocks once: several work on one block in turn."""
    return _get(_recent, corpus, number, group_column)


def _get(cache: ByteCache, corpus: Corpus, number: int, group_column: str | None) -> LoadedBlock:
    """Blocks are identified by the folder of the corpus's ordinals, which depends on its content, and by their rows."""
    block = corpus.blocks[number]
    key = (corpus.work, block.first_row, block.rows, group_column)
    loaded: LoadedBlock = cache.get(key, lambda: load_block(corpus, block, group_column))
    return loaded
