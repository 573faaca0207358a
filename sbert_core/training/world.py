"""One process or several: each embeds a slice of the global batch, and all compute the loss of the whole batch.

The vectors of all slices are gathered, so that in-batch negatives, and every other loss, are those of one process
with the same global batch. Gradients of the encoder are summed; those of an objective's own weights come from the
whole batch and are the same in all processes.
"""

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
import torch.distributed
from torch import Tensor, nn

from sbert_core.errors import ModelError


class World:
    """The processes of a run, as `torchrun` and `accelerate launch` set them in the environment; by default one."""

    def __init__(self, device: torch.device) -> None:
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self.process_rank = int(os.environ.get("RANK", "0"))
        if self.size > 1 and not torch.distributed.is_initialized():
            torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.process_rank == 0

    def slice_of(self, rows: int) -> slice:
        """The rows of a global batch that this process embeds."""
        bounds = self._bounds(rows)
        return slice(bounds[self.process_rank], bounds[self.process_rank + 1])

    def gather(self, vectors: Tensor, rows: int) -> Tensor:
        """The vectors (rows, dim) of the global batch; gradients flow back to this process's own."""
        if self.size == 1:
            return vectors
        sizes = np.diff(self._bounds(rows))
        # Slices differ by at most one row, but `all_gather` needs equal shapes.
        sent = vectors.new_zeros(int(sizes.max()), vectors.shape[1])
        sent[: len(vectors)] = vectors.detach()
        received = [torch.empty_like(sent) for _ in range(self.size)]
        torch.distributed.all_gather(received, sent)
        parts = [part[:size] for part, size in zip(received, sizes, strict=True)]
        parts[self.process_rank] = vectors
        return torch.cat(parts)

    def summed(self, tensor: Tensor) -> Tensor:
        """The sum of this tensor over all processes, as a copy."""
        total = tensor.detach().clone()
        if self.size > 1:
            torch.distributed.all_reduce(total)
        return total

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Sums the gradients of all processes in place."""
        if self.size == 1:
            return
        for parameter in parameters:
            if parameter.requires_grad:
                if parameter.grad is None:  # no row of this slice used it
                    parameter.grad = torch.zeros_like(parameter)
                torch.distributed.all_reduce(parameter.grad)

    def collect(self, value: Any) -> list[Any]:
        """The values of all processes, in the order of `process_rank`."""
        values = [value] * self.size
        if self.size > 1:
            torch.distributed.all_gather_object(values, value)
        return values

    def wait(self) -> None:
        """Waits until all processes have called this."""
        if self.size > 1:
            torch.distributed.barrier()

    def _bounds(self, rows: int) -> list[int]:
        if rows < self.size:
            raise ModelError(f"a batch of {rows} rows cannot be shared by {self.size} processes: use a larger batch")
        return [rows * number // self.size for number in range(self.size + 1)]
