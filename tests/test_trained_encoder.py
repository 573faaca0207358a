import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from sbert_beam import SentenceEncoder
from sbert_core.encoder.heads import Dense, Normalize
from sbert_core.encoder.model_folder import EncoderParts, read_folder
from sbert_core.encoder.pooling import POOLING_MODES, Pooling
from sbert_core.encoder.static_embedding import StaticEmbedding
from sbert_core.training.trained_encoder import TrainedEncoder
from tests.tiny_models import ARCHITECTURES, make_transformer

CPU = torch.device("cpu")
VIEWS = [["the quick brown fox", "a man", "my parcel?"], ["where is the dog", "the flute is playing the man", "fox"]]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_vectors_are_those_of_the_encoder(tmp_path, architecture):
    parts = read_folder(make_transformer(tmp_path, architecture))
    expected = [SentenceEncoder(parts).encode(view) for view in VIEWS]
    found = TrainedEncoder(parts, CPU).eval()(VIEWS)
    for vectors, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(vectors.detach().numpy(), wanted, atol=1e-5)
        assert vectors.requires_grad


@pytest.mark.parametrize("mode", POOLING_MODES)
def test_pooling_prompts_and_heads_are_the_encoders(tmp_path, mode):
    body = read_folder(make_transformer(tmp_path)).body
    parts = EncoderParts(body, Pooling(32, mode, include_prompt=False), (Dense(32, 8), Normalize()))
    encoder = TrainedEncoder(parts, CPU).eval()
    encoder.prompts = ("query: ", "")
    plain = SentenceEncoder(parts)
    expected = [plain.encode(VIEWS[0], prompt="query: "), plain.encode(VIEWS[1])]
    for vectors, wanted in zip(encoder(VIEWS), expected, strict=True):
        np.testing.assert_allclose(vectors.detach().numpy(), wanted, atol=1e-5)
    assert encoder.dim == 8


def test_a_static_encoder_can_be_trained():
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "b": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    parts = EncoderParts(StaticEmbedding(tokenizer, torch.eye(3)), None)
    (vectors,) = TrainedEncoder(parts, CPU)([["a b", "b"]])
    torch.testing.assert_close(vectors, torch.tensor([[0, 0.5, 0.5], [0, 0, 1]]))
    vectors.sum().backward()
    assert parts.body.embedding.weight.grad is not None


def test_an_unused_pooler_is_not_learned(tmp_path):
    parts = read_folder(make_transformer(tmp_path))
    TrainedEncoder(parts, CPU)
    assert not any(parameter.requires_grad for parameter in parts.body.model.pooler.parameters())


def test_a_text_of_any_length_is_cut_to_the_models_limit(tmp_path):
    parts = read_folder(make_transformer(tmp_path))
    (vectors,) = TrainedEncoder(parts, CPU).eval()([["the fox " * 50]])
    np.testing.assert_allclose(vectors.detach().numpy(), SentenceEncoder(parts).encode(["the fox " * 50]), atol=1e-5)
