import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before anything imports huggingface_hub
# Some virtual machines report AMX but do not support it: torch then crashes in bfloat16.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import pytest
import torch
from sentence_transformers import SentenceTransformer

from sbert_beam import SentenceEncoder
from sbert_core.encoder.model_source import find_model

SENTENCES = [
    "A man is playing a flute.",
    "Someone plays the flute",
    "",
    "The quick brown fox jumps over the lazy dog, again and again and again until it is tired of jumping.",
    "Where is my parcel?",
    "Wo ist mein Paket?",
    "héllo wörld",
    "A man is playing a flute.",
    "one",
    "the the the the the the the the the the the the the the the the the the the the the the the the the",
]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Tests run in several processes; a job that a test runs may set more threads."""
    torch.set_num_threads(1)


@pytest.fixture
def sentences() -> list[str]:
    """Texts of several lengths, with a duplicate and an empty one."""
    return list(SENTENCES)


@pytest.fixture(scope="session")
def default_encoder() -> SentenceEncoder:
    return SentenceEncoder.load("default", device="cpu")


@pytest.fixture(scope="session")
def default_reference() -> SentenceTransformer:
    return SentenceTransformer(str(find_model("default")), device="cpu")
