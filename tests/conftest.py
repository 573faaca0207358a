import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before anything imports huggingface_hub
# Some virtual machines announce AMX and do not have it: there torch dies in bfloat16.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import pytest
import torch
from sentence_transformers import SentenceTransformer

from sbert_beam import SentenceEncoder
from sbert_core.encoder.model_source import find_model

torch.set_num_threads(1)  # tests run in several processes

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
