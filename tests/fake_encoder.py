"""An encoder without a model: vectors that a test can compute by hand."""

import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from sbert_beam import Encoded


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
    """Creates a file in the folder `model` for each call."""
    Path(model, f"load-{len(list(Path(model).iterdir()))}").touch()
    return FakeEncoder()


class FaultyEncoder(FakeEncoder):
    """Calls `fault(texts, call)` first, calls counted from 1: it raises, or returns {text: value for its vector}.

    The first call is the check of an encoder after it is loaded.
    """

    def __init__(self, fault: Callable[[list[str], int], dict[str, float] | None]) -> None:
        self._fault = fault
        self.calls: list[list[str]] = []

    def encode(self, texts, **options) -> Encoded:
        self.calls.append(list(texts))
        values = self._fault(texts, len(self.calls)) or {}
        encoded = super().encode(texts, **options)
        for row, text in enumerate(texts):
            encoded.embeddings[row, 3] = values.get(text, 0)
        return encoded


class CrowdedEncoder(FakeEncoder):
    """Records the maximum number of concurrent calls, over all encoders of this process."""

    _count = threading.Lock()
    inside = 0
    max_inside = 0

    def encode(self, texts, **options) -> Encoded:
        with CrowdedEncoder._count:
            CrowdedEncoder.inside += 1
            CrowdedEncoder.max_inside = max(CrowdedEncoder.max_inside, CrowdedEncoder.inside)
        time.sleep(0.02)  # long enough for another thread to enter
        with CrowdedEncoder._count:
            CrowdedEncoder.inside -= 1
        return super().encode(texts, **options)
