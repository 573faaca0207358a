"""The same models in sentence-transformers, and when numbers count as equal."""

from pathlib import Path

import numpy as np
import sentence_transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as models

from tests.tiny_models import make_transformer, perturb


def assert_same(ours: np.ndarray, theirs: np.ndarray) -> None:
    """The same numbers, up to the order of sums."""
    assert ours.dtype == np.float32
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, atol=2e-6, rtol=1e-4)


def build(folder, architecture="bert", pooling="mean", heads=(), prompts=None, **options) -> SentenceTransformer:
    body = models.Transformer(str(make_transformer(folder / "hf", architecture)), **options)
    pool = models.Pooling(body.get_embedding_dimension(), pooling_mode=pooling)
    for head in heads:
        perturb(head)
    model = SentenceTransformer(modules=[body, pool, *heads], device="cpu", prompts=prompts)
    model.save(str(folder / "st"), create_model_card=False)  # a card takes longer than the model
    return model


def reference_of(folder: Path, **options) -> sentence_transformers.CrossEncoder:
    return sentence_transformers.CrossEncoder(str(folder), device="cpu", **options)
