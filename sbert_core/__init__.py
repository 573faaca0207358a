"""Sentence-BERT without Beam: the encoder and everything about it that is mathematics."""

from sbert_core.encoder import Encoded, SentenceEncoder
from sbert_core.errors import ModelError, SbertBeamError, TextError
from sbert_core.quantize import calibrate, quantize

__version__ = "0.1.0"

__all__ = [
    "Encoded",
    "ModelError",
    "SbertBeamError",
    "SentenceEncoder",
    "TextError",
    "calibrate",
    "quantize",
]
