"""One process or several: each embeds a slice of the global batch, and all see the loss of the whole.

The vectors of all slices are gathered, so that in-batch negatives, and every other loss, are those of one process
with the same global batch. Gradients of the encoder are summed; those of an objective's own weights come from the
whole batch and are the same everywhere.
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
    """The processes of a run, as `torchrun` or `accelerate launch` tell of them; by default this one alone."""

    def __init__(self, device: torch.device) -> None:
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        if self.size > 1 and not torch.distributed.is_initialized():
            torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")

    @property
    def leads(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def slice_of(self, rows: int) -> slice:
        """The rows of a global batch that are this process's to embed."""
        borders = self._borders(rows)
        return slice(borders[self.rank], borders[self.rank + 1])

    def gather(self, vectors: Tensor, rows: int) -> Tensor:
        """The vectors (rows, dim) of the global batch; gradients flow back to this process's own."""
        if self.size == 1:
            return vectors
        sizes = np.diff(self._borders(rows))
        # Slices differ by one row at most, but all must send as much.
        sent = vectors.new_zeros(int(sizes.max()), vectors.shape[1])
        sent[: len(vectors)] = vectors.detach()
        received = [torch.empty_like(sent) for _ in range(self.size)]
        torch.distributed.all_gather(received, sent)
        parts = [part[:size] for part, size in zip(received, sizes, strict=True)]
        parts[self.rank] = vectors
        return torch.cat(parts)

    def summed(self, tensor: Tensor) -> Tensor:
        """The sum of this tensor over all processes, as a copy."""
        total = tensor.detach().clone()
        if self.size > 1:
            torch.distributed.all_reduce(total)
        return total

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Adds up the gradients of all processes."""
        if self.size == 1:
            return
        for parameter in parameters:
            if parameter.requires_grad:
                if parameter.grad is None:  # no row of this slice used it
                    parameter.grad = torch.zeros_like(parameter)
                torch.distributed.all_reduce(parameter.grad)

    def collect(self, value: Any) -> list[Any]:
        """The values of all processes, in the order of their ranks."""
        values = [value] * self.size
        if self.size > 1:
            torch.distributed.all_gather_object(values, value)
        return values

    def wait(self) -> None:
        """Waits until all processes are here."""
        if self.size > 1:
            torch.distributed.barrier()

    def _borders(self, rows: int) -> list[int]:
        if rows < self.size:
            raise ModelError(f"a batch of {rows} rows cannot be shared by {self.size} processes: use a larger batch")
        return [rows * rank // self.size for rank in range(self.size + 1)]
