"""The fastest body on CPU: a table of token vectors, and the mean of those in a text."""

from pathlib import Path

import safetensors.torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from sbert_core.encoder.tokenization import TextTokenizer, check_vocabulary
from sbert_core.encoder.weights import WEIGHTS, check_finite, read_shapes
from sbert_core.errors import ModelError


class StaticEmbedding(nn.Module):
    """The vector of a text is the mean of its tokens' vectors, without special tokens; zero if there are none."""

    max_tokens: int | None = None  # no limit

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
        """Maps concatenated token ids (total,) and the start of each text (n,) to (n, dim)."""
        return self.embedding(ids, starts)

    @classmethod
    def load(cls, folder: Path) -> "StaticEmbedding":
        """Loads `model.safetensors` and `tokenizer.json`; model2vec's names of the tensors are read too."""
        path = folder / WEIGHTS
        shapes = read_shapes(path)
        name = next((name for name in ("embedding.weight", "embeddings") if name in shapes), None)
        if name is None:
            raise ModelError(f"{path} has no tensor 'embedding.weight' or 'embeddings': it is not a static encoder")
        kind, shape = shapes[name]
        if len(shape) != 2 or 0 in shape or not kind.startswith(("F", "BF", "I8")):
            raise ModelError(f"{path}: {name!r} is {kind} {shape}, expected floats (vocabulary, dim)")
        tensors = safetensors.torch.load_file(path)
        table = tensors[name]
        if "mapping" in tensors:  # model2vec: several token ids may share a row ...
            mapping = tensors["mapping"].long()
            if mapping.ndim != 1 or not len(mapping) or mapping.min() < 0 or mapping.max() >= len(table):
                raise ModelError(f"{path}: 'mapping' must have a row number below {len(table)} for each token")
            table = table[mapping]
        if "weights" in tensors:  # ... and each has a weight of its own
            if tensors["weights"].shape != table.shape[:1]:
                raise ModelError(f"{path}: 'weights' is {tuple(tensors['weights'].shape)}, expected ({len(table)},)")
            table = table.float() * tensors["weights"].float()[:, None]
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        check_vocabulary(folder, tokenizer, len(table))
        body = cls(tokenizer, table)
        check_finite(folder, body)
        return body

    def save(self, folder: Path) -> None:
        """Writes what `load` reads."""
        table = self.embedding.weight.detach().cpu().contiguous()
        safetensors.torch.save_file({"embedding.weight": table}, folder / "model.safetensors")
        self.tokenizer.save(str(folder / "tokenizer.json"))
