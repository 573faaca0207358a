"""Contriever's momentum queue: many more negatives than a batch has, from a slowly moving encoder."""

import copy
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sbert_core.errors import DataError
from sbert_core.training.losses.objective import check_between
from sbert_core.training.losses.ranking_losses import Contriever

if TYPE_CHECKING:
    from sbert_core.training.trained_encoder import TrainedEncoder

_KEYS = "key_encoder."
MAX_QUEUE_SIZE = 10_000_000  # vectors, all in memory


class MomentumContrast(Contriever):
    """Contriever with a queue: two random crops of one text, one of which is embedded by a momentum encoder.

        loss = mean over rows i of -log( exp(s cos(q_i, k_i)) / sum over keys x of exp(s cos(q_i, x)) )
        after each step: key weights = momentum * key weights + (1 - momentum) * weights

    The keys x are those of the batch and the last `queue_size` keys before it; no gradient goes into keys. The key
    encoder begins as a copy of the encoder and embeds without dropout. Queue and key encoder are in the state dict:
    those of a state dict loaded before the first batch are used from that batch on.
    """

    queued = True
    truncatable = False  # the queue has one width

    def __init__(
        self,
        *,
        dim: int,
        scale: float | None = None,
        temperature: float | None = None,
        min_crop: float = 0.1,
        max_crop: float = 0.5,
        momentum: float = 0.9995,
        queue_size: int = 8192,
    ) -> None:
        super().__init__(scale=scale, temperature=temperature, min_crop=min_crop, max_crop=max_crop)
        if type(queue_size) is not int or not 1 <= queue_size <= MAX_QUEUE_SIZE:
            raise DataError(f"option 'queue_size' is {queue_size!r}: give a whole number from 1 to {MAX_QUEUE_SIZE:,}")
        self.momentum = check_between("momentum", momentum, 0, 1)
        self.queue: Tensor
        self.n_queued: Tensor
        self.register_buffer("queue", torch.zeros(queue_size, dim))  # unit vectors, the newest first
        self.register_buffer("n_queued", torch.zeros((), dtype=torch.long))
        self.key_encoder: TrainedEncoder | None = None
        self._loaded_keys: dict[str, Tensor] = {}
        self._fresh: list[Tensor] = []  # keys since the last step

    def embed(self, encoder: "TrainedEncoder", views: list[list[str]]) -> list[Tensor]:
        """Queries by the encoder that is trained, keys by its momentum copy."""
        queries, keys = views
        prompts = encoder.prompts  # of both views, or none
        with torch.no_grad():
            key_vectors = self._keys_of(encoder)([keys], prompts[1:])
        return [*encoder([queries], prompts[:1]), *key_vectors]

    def logits(self, vectors: list[Tensor]) -> Tensor:
        """S cos(q_i, x): (n, n + queued), the key of row i in column i."""
        queries, keys = vectors
        queued = self.queue[: int(self.n_queued)].to(keys.dtype)
        return super().logits([queries, keys.detach(), queued])

    def forward(self, vectors: list[Tensor], labels: Tensor | None) -> Tensor:
        """Cross-entropy of the right key; in training the keys wait for the end of the step to be queued."""
        if self.training:
            self._fresh.insert(0, F.normalize(vectors[1].detach(), dim=-1))
        return super().forward(vectors, labels)

    @torch.no_grad()
    def after_step(self, encoder: "TrainedEncoder") -> None:
        """Moves the key encoder and queues the keys of the step."""
        keys = self._keys_of(encoder)
        for key, weight in zip(keys.parameters(), encoder.parameters(), strict=True):
            key.lerp_(weight, 1 - self.momentum)
        for held, buffer in zip(keys.buffers(), encoder.buffers(), strict=True):
            held.copy_(buffer)
        size = len(self.queue)
        newest = torch.cat([*self._fresh, self.queue])[:size]
        self.n_queued.add_(sum(map(len, self._fresh))).clamp_(max=size)
        self.queue.copy_(newest)
        self._fresh.clear()

    def _keys_of(self, encoder: "TrainedEncoder") -> "TrainedEncoder":
        if self.key_encoder is None:
            self.key_encoder = copy.deepcopy(encoder).requires_grad_(False)
            self.key_encoder.shift = None  # attacks are on the trained encoder only
            self.key_encoder.prompts = ()  # passed with each batch
            if self._loaded_keys:
                self.key_encoder.load_state_dict(self._loaded_keys)
                self._loaded_keys = {}
        return self.key_encoder.eval()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        # The key encoder is created with the first batch; until then its weights are stored here.
        if self.key_encoder is None:
            start = prefix + _KEYS
            names = [name for name in state_dict if name.startswith(start)]
            self._loaded_keys = {name.removeprefix(start): state_dict.pop(name) for name in names}
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination.update({prefix + _KEYS + name: value for name, value in self._loaded_keys.items()})
