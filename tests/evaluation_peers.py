"""Encoders for tests of evaluation: given vectors, which sentence-transformers' evaluators take for a model too."""

import numpy as np
import torch
from sentence_transformers.util import cos_sim


class GivenVectors:
    """Encodes texts it was given vectors for."""

    similarity_fn_name = "cosine"
    similarity = staticmethod(cos_sim)

    @property
    def model_card_data(self) -> "GivenVectors":
        return self

    def set_evaluation_metrics(self, evaluator, metrics, epoch=0, step=0) -> None:
        """An evaluator writes what it found on the card of the model."""

    def __init__(self, vectors: dict[str, np.ndarray]) -> None:
        self.vectors = vectors
        self.calls = 0

    def encode(self, texts, *, convert_to_tensor=False, **options):
        self.calls += 1
        vectors = np.array([self.vectors[text] for text in texts], np.float32)
        return torch.from_numpy(vectors) if convert_to_tensor else vectors

    encode_query = encode_document = encode


def draw(rows: int, dim: int = 8, seed: int = 0, prefix: str = "text") -> GivenVectors:
    """Random vectors of texts called text 0, text 1 ..."""
    vectors = np.random.default_rng(seed).normal(size=(rows, dim))
    return GivenVectors({f"{prefix} {row}": vector for row, vector in enumerate(vectors)})


def draw_classes(rows: int, classes: int, spread: float = 1.0, dim: int = 8, seed: int = 0):
    """An encoder of texts around a centre per class, the texts, and the class (rows,) of each."""
    rng = np.random.default_rng(seed)
    labels = np.arange(rows) % classes
    vectors = rng.normal(size=(classes, dim))[labels] + spread * rng.normal(size=(rows, dim))
    texts = [f"text {row}" for row in range(rows)]
    return GivenVectors(dict(zip(texts, vectors, strict=True))), texts, labels
