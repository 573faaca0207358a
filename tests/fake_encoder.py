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
    """Leaves a mark below the folder `model` for each time it is called."""
    Path(model, f"load-{len(list(Path(model).iterdir()))}").touch()
    return FakeEncoder()


class FaultyEncoder(FakeEncoder):
    """Asks `fault(texts, call)` first, the call counted from 1: it raises, or gives {text: number to spoil its vector}.

    The first call is the one that tries an encoder when it is loaded.
    """

    def __init__(self, fault: Callable[[list[str], int], dict[str, float] | None]) -> None:
        self._fault = fault
        self.calls: list[list[str]] = []

    def encode(self, texts, **options) -> Encoded:
        self.calls.append(list(texts))
        spoiled = self._fault(texts, len(self.calls)) or {}
        encoded = super().encode(texts, **options)
        for row, text in enumerate(texts):
            encoded.embeddings[row, 3] = spoiled.get(text, 0)
        return encoded


class CrowdedEncoder(FakeEncoder):
    """Notes how many calls were under way at once, of all encoders of this process."""

    _count = threading.Lock()
    inside = 0
    most = 0

    def encode(self, texts, **options) -> Encoded:
        with CrowdedEncoder._count:
            CrowdedEncoder.inside += 1
            CrowdedEncoder.most = max(CrowdedEncoder.most, CrowdedEncoder.inside)
        time.sleep(0.02)  # long enough for another thread to come in
        with CrowdedEncoder._count:
            CrowdedEncoder.inside -= 1
        return super().encode(texts, **options)
