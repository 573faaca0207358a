"""The fast body for huge corpora on CPU: a table of token vectors and their mean."""

from pathlib import Path

import safetensors.torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from sbert_core.errors import ModelError
from sbert_core.tokenization import TextTokenizer


class StaticEmbedding(nn.Module):
    """A sentence is the mean of its tokens' vectors, special tokens left out; no token, the zero vector."""

    max_tokens: int | None = None  # every token counts, whatever their number

    def __init__(self, tokenizer: Tokenizer, table: Tensor) -> None:
        """`table` is (vocabulary, dim)."""
        super().__init__()
        self.embedding = nn.EmbeddingBag.from_pretrained(table.float(), freeze=False, mode="mean")
        self.tokenizer = tokenizer
        self.text_tokenizer = TextTokenizer(tokenizer, max_tokens=None, special_tokens=False)

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return self.embedding.embedding_dim

    def forward(self, ids: Tensor, starts: Tensor) -> Tensor:
        """Maps token ids end to end (total,) and where each text starts (n,) to (n, dim)."""
        return self.embedding(ids, starts)

    @classmethod
    def load(cls, folder: Path) -> "StaticEmbedding":
        """Loads `model.safetensors` and `tokenizer.json`; model2vec's names of the tensors are read too."""
        tensors = safetensors.torch.load_file(folder / "model.safetensors")
        table = tensors.get("embedding.weight", tensors.get("embeddings"))
        if table is None:
            raise ModelError(f"{folder / 'model.safetensors'}: no tensor 'embedding.weight' or 'embeddings' in it")
        if "mapping" in tensors:  # model2vec: several token ids may share a row ...
            table = table[tensors["mapping"].long()]
        if "weights" in tensors:  # ... and each has a weight of its own
            table = table.float() * tensors["weights"].float()[:, None]
        return cls(Tokenizer.from_file(str(folder / "tokenizer.json")), table)

    def save(self, folder: Path) -> None:
        """Writes what `load` reads."""
        table = self.embedding.weight.detach().cpu().contiguous()
        safetensors.torch.save_file({"embedding.weight": table}, folder / "model.safetensors")
        self.tokenizer.save(str(folder / "tokenizer.json"))
