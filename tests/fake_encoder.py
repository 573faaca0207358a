"""An encoder without a model: vectors that a test can compute by hand."""

import zlib
from pathlib import Path

import numpy as np

from sbert_core import Encoded


class FakeEncoder:
    """Encodes a text as (its length, a hash, 1, 0); fails on texts with "poison" in them."""

    dim = 4
    fingerprint = "fake"

    def encode(self, texts, *, details, prompt=None, prompt_name=None) -> Encoded:
        if any("poison" in text for text in texts):
            raise RuntimeError("poisoned")
        vectors = [(len(text), zlib.crc32(text.encode()) % 997, 1, 0) for text in texts]
        return Encoded(
            np.array(vectors, np.float32).reshape(-1, 4),
            np.array([len(text.split()) for text in texts], np.int64),
            np.array([len(text) > 50 for text in texts], bool),
        )

    @classmethod
    def load(cls, model, **options) -> "FakeEncoder":
        """Stands for `SentenceEncoder.load`."""
        return cls()


load_fake = FakeEncoder.load


def load_counted(model, **options) -> FakeEncoder:
    """Leaves a mark below the folder `model` for each time it is called."""
    Path(model, f"load-{len(list(Path(model).iterdir()))}").touch()
    return FakeEncoder()
