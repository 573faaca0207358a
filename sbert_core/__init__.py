"""Sentence-BERT without Beam: the encoder and everything about it that is mathematics."""

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sbert_core.cross_encoder import CrossEncoder
    from sbert_core.encoder import Encoded, SentenceEncoder
    from sbert_core.errors import DataError, ModelError, SbertBeamError, TextError
    from sbert_core.evaluation.run import evaluate
    from sbert_core.mining import Neighbors, find_neighbors, mine_paraphrases
    from sbert_core.pairs import Pairs
    from sbert_core.quantization import calibrate, quantize
    from sbert_core.training.loop import train
    from sbert_core.training.plan import TrainPlan

__version__ = "0.1.0"

# The same sums whatever the number of threads, so that `--workers` does not change a bit of the result. MKL reads it
# at its first use.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

__all__ = [
    "CrossEncoder",
    "DataError",
    "Encoded",
    "ModelError",
    "Neighbors",
    "Pairs",
    "SbertBeamError",
    "SentenceEncoder",
    "TextError",
    "TrainPlan",
    "calibrate",
    "evaluate",
    "find_neighbors",
    "mine_paraphrases",
    "quantize",
    "train",
]

_HOMES = {
    "CrossEncoder": "cross_encoder",
    "DataError": "errors",
    "Encoded": "encoder",
    "ModelError": "errors",
    "Neighbors": "mining",
    "Pairs": "pairs",
    "SbertBeamError": "errors",
    "SentenceEncoder": "encoder",
    "TextError": "errors",
    "calibrate": "quantization",
    "evaluate": "evaluation.run",
    "find_neighbors": "mining",
    "mine_paraphrases": "mining",
    "quantize": "quantization",
    "train": "training.loop",
    "TrainPlan": "training.plan",
}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used: torch takes seconds, and `--help` does not need it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'sbert_core' has no attribute {name!r}")
    return getattr(importlib.import_module(f"sbert_core.{_HOMES[name]}"), name)
