"""A random sample of the rows of a corpus, drawn block by block."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from sbert_core.sampling import is_sampled
from transforms.neighbors.block_cache import recent_block
from transforms.neighbors.mining_plan import MiningPlan


@dataclasses.dataclass(frozen=True, eq=False)
class SampledRows:
    """Sampled rows: ordinals (n,), unit vectors (n, dim) and groups (n,), if the plan has groups."""

    ordinals: np.ndarray
    vectors: np.ndarray
    groups: np.ndarray | None


def sample_block(number: int, plan: MiningPlan, sample_size: int, seed: int) -> SampledRows:
    """A block's share of a sample of about `sample_size` rows of the (first) corpus."""
    corpus = plan.corpora[0]
    block = recent_block(corpus, number, plan.group_column).block
    chosen = is_sampled(block.ordinals, corpus.rows, sample_size, seed)
    groups = None if block.groups is None else block.groups[chosen]
    return SampledRows(block.ordinals[chosen], block.vectors.numpy()[chosen], groups)


def join_samples(parts: Sequence[SampledRows]) -> SampledRows:
    """The rows of one or more samples, ordered by ordinal: the order of the parts has no effect."""
    ordinals = np.concatenate([part.ordinals for part in parts])
    order = np.argsort(ordinals)
    vectors = np.concatenate([part.vectors for part in parts])[order]
    groups = [part.groups for part in parts if part.groups is not None]
    return SampledRows(ordinals[order], vectors, np.concatenate(groups)[order] if groups else None)
