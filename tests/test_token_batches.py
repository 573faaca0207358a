"""Batches by number of tokens, and smaller ones when memory runs out."""

import numpy as np
import pytest
import torch

from sbert_beam import ModelError
from sbert_core.encoder.token_batches import TokenBatches


def run(batches: TokenBatches, lengths: list[int]) -> list[list[int]]:
    """The rows of each batch."""
    found = []
    batches.run(np.array(lengths), lambda rows: found.append(rows.tolist()))
    return found


@pytest.mark.parametrize(
    ("lengths", "pads", "expected"),
    [
        ([1, 2, 3, 4, 5], False, [[4, 3], [2, 1, 0]]),
        ([1, 2, 3, 4, 5], True, [[4], [3, 2], [1, 0]]),
        ([4, 50], False, [[1], [0]]),
        ([4, 50], True, [[1], [0]]),
        ([3, 3, 3], False, [[0, 1, 2]]),
        ([3, 3, 3], True, [[0, 1, 2]]),
        ([], True, []),
    ],
)
def test_batches_hold_nine_tokens_longest_first(lengths, pads, expected):
    assert run(TokenBatches(9, pads=pads), lengths) == expected


@pytest.mark.parametrize("pads", [False, True])
def test_out_of_memory_halves_the_batch_permanently(pads):
    batches, sizes, done = TokenBatches(1000, pads=pads), [], []

    def compute(rows):
        sizes.append(len(rows))
        if len(rows) > 7:
            raise torch.OutOfMemoryError("out of memory")
        done.extend(rows.tolist())

    batches.run(np.full(40, 3), compute)
    assert sizes[:4] == [40, 20, 10, 5]
    assert max(sizes[4:]) <= 7
    assert done == list(range(40))
    assert batches.batch_tokens == 15
    batches.run(np.full(40, 3), compute)
    assert max(sizes[4:]) <= 7


def test_out_of_memory_on_a_single_row_is_raised():
    def compute(rows):
        raise torch.OutOfMemoryError("out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        TokenBatches(100, pads=False).run(np.array([3, 3]), compute)


@pytest.mark.parametrize("batch_tokens", [0, -1])
def test_a_batch_holds_at_least_one_token(batch_tokens):
    with pytest.raises(ModelError, match=f"batch_tokens must be at least 1, got {batch_tokens}"):
        TokenBatches(batch_tokens, pads=True)
