"""The encoder while it is trained: texts in, vectors with gradients out."""

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from sbert_core.encoder.model_folder import EncoderParts
from sbert_core.encoder.packed_transformer import PackedTransformer
from sbert_core.encoder.sentence_encoder import SentenceEncoder
from sbert_core.encoder.static_embedding import StaticEmbedding
from sbert_core.encoder.tokenization import TokenizedTexts
from sbert_core.training.attack import TokenShift
from sbert_core.training.packed_training import PackedTraining


class TrainedEncoder(nn.Module):
    """One encoder for all sides of a pair or triplet: their texts go through it in one batch.

    It trains the modules of `parts` in place.
    """

    def __init__(self, parts: EncoderParts, device: torch.device, checkpointing: bool = False) -> None:
        super().__init__()
        self.parts = parts
        self.body, self.pooling, self.heads = parts.body, parts.pooling, nn.ModuleList(parts.heads)
        self.dim = SentenceEncoder(parts, device="cpu").dim
        self.device = device
        self.prompts: tuple[str, ...] = ()
        """Put before the texts of each view, one for each; or none at all."""
        self.shift: TokenShift | None = None
        """Added to the token embeddings."""
        self.to(device)
        self._packed: PackedTraining | None = None  # padded where it is None
        if isinstance(parts.body, StaticEmbedding):
            return
        if getattr(parts.body.model, "pooler", None) is not None:  # a head that sentence vectors do not use
            parts.body.model.pooler.requires_grad_(False)
        if device.type == "cpu" and PackedTransformer.supports(parts.body.model):
            self._packed = PackedTraining(parts.body.model, checkpointing)
        elif checkpointing:
            parts.body.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    def forward(self, views: Sequence[Sequence[str]], prompts: Sequence[str] = ()) -> list[Tensor]:
        """Vectors (n, dim) of the texts of each view; `prompts` go before the encoder's own."""
        prompts = prompts or self.prompts or ("",) * len(views)
        tokenizer = self.body.text_tokenizer
        texts = [prompt + text for prompt, view in zip(prompts, views, strict=True) for text in view]
        pooled = self._pool(tokenizer.tokenize(texts), [len(view) for view in views], prompts)
        vectors = torch.cat(pooled)
        for head in self.heads:
            vectors = head(vectors)
        return list(vectors.split([len(view) for view in views]))

    def _pool(self, tokenized: TokenizedTexts, sizes: list[int], prompts: Sequence[str]) -> list[Tensor]:
        if isinstance(self.body, StaticEmbedding):
            ids, starts = (torch.from_numpy(array).to(self.device) for array in (tokenized.ids, tokenized.starts))
            with self._shifted(None):
                return [self.body(ids.long(), starts)]
        assert self.pooling is not None  # `read_folder` sets it
        ids, mask = self._pad(tokenized)
        with self._shifted(mask):
            tokens = (self._packed or self.body)(ids, mask).float()  # (all views, length, dim)
        return [
            self.pooling(part, own_mask, self.body.text_tokenizer.count_prompt_tokens(prompt) if prompt else 0)
            for part, own_mask, prompt in zip(tokens.split(sizes), mask.split(sizes), prompts, strict=True)
        ]

    @contextlib.contextmanager
    def _shifted(self, mask: Tensor | None) -> Iterator[None]:
        if (shift := self.shift) is None:
            yield
            return

        def add(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
            if mask is not None and output.shape[:2] != mask.shape:  # the start of a decoder that shares the table
                return output
            return shift(output, mask)

        handles = [module.register_forward_hook(add) for module in token_embeddings(self)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _pad(self, tokenized: TokenizedTexts) -> tuple[Tensor, Tensor]:
        counts = tokenized.n_tokens
        mask = np.arange(counts.max()) < counts[:, None]
        ids = np.full(mask.shape, self.body.pad_id, np.int64)
        ids[mask] = tokenized.ids
        return torch.from_numpy(ids).to(self.device), torch.from_numpy(mask.astype(np.int64)).to(self.device)


def token_embeddings(encoder: TrainedEncoder) -> list[nn.Module]:
    """The modules that look up the vectors of tokens; T5 has several with one weight, (vocabulary, dim)."""
    body = encoder.body
    if isinstance(body, StaticEmbedding):
        return [body.embedding]
    table = body.model.get_input_embeddings().weight
    return [module for module in body.model.modules() if getattr(module, "weight", None) is table]
