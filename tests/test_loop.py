"""The training run: what a plan does to a model."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from sbert_beam import SentenceEncoder, TrainPlan, train
from sbert_core.encoder.cross_encoder import CrossEncoder
from sbert_core.encoder.model_folder import EncoderParts, read_folder
from sbert_core.encoder.static_embedding import StaticEmbedding
from sbert_core.errors import DataError, JobError, ModelError
from tests.tiny_models import make_transformer
from tests.training_runs import (
    PAIRS,
    WORDS,
    assert_equal_weights,
    dev_of,
    have_equal_weights,
    make_plan,
    weights,
    write_pairs,
)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return str(make_transformer(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> str:
    return write_pairs(tmp_path_factory.mktemp("data") / "pairs.parquet")


@pytest.fixture(scope="module")
def plain(model, pairs, tmp_path_factory) -> Path:
    """A model trained without options."""
    output = tmp_path_factory.mktemp("plain") / "out"
    train(make_plan(model, pairs, output, max_steps=3))
    return output


def test_training_lowers_the_loss(model, pairs, tmp_path):
    losses = []
    plan = make_plan(model, pairs, tmp_path / "out", max_steps=40, epochs=9)
    train(plan, on_step=lambda step, loss: losses.append(loss))
    assert len(losses) == 40
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5])


def test_the_folder_loads_here_and_in_sentence_transformers(model, pairs, tmp_path):
    result = train(make_plan(model, pairs, tmp_path / "out", pooling="cls,mean", dense=16, normalize=True))
    ours = SentenceEncoder.load(tmp_path / "out").encode(PAIRS[0])
    assert ours.shape == (2, result["dim"]) == (2, 16)
    np.testing.assert_allclose(SentenceTransformer(str(tmp_path / "out")).encode(PAIRS[0]), ours, atol=1e-5)


def test_the_same_plan_gives_the_same_weights(model, pairs, plain, tmp_path):
    train(make_plan(model, pairs, tmp_path / "again", max_steps=3))
    assert_equal_weights(plain, tmp_path / "again")
    train(make_plan(model, pairs, tmp_path / "other", max_steps=3, seed=1))
    assert not have_equal_weights(plain, tmp_path / "other")


def test_the_model_card(model, pairs, tmp_path):
    data = {"objective": "classification", "label": "kind", "options": {"concatenation": "|u-v|"}}
    result = train(make_plan(model, pairs, tmp_path / "out", data=data, dev=dev_of(pairs)))
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"| {pairs} | 56 | classification | concatenation \\|u-v\\| |" in card
    assert f"{result['dev']['best']:.4f} at best" in card
    assert "| learning_rate | 0.001 |" in card
    assert f"torch {torch.__version__}" in card


def test_several_data_sets_are_mixed(model, pairs, tmp_path):
    data = [
        {"file": pairs, "columns": ["a", "b"]},
        {"file": pairs, "columns": ["a", "b"], "objective": "regression", "label": "score", "batch_size": 28},
    ]
    plan = TrainPlan.from_dict(
        {"model": model, "output": str(tmp_path / "out"), "data": data, "mixing": "round_robin", "batch_size": 8}
    )
    seen = []
    result = train(plan, on_step=lambda step, loss: seen.extend(batch.data.spec.objective for batch in step.batches))
    assert seen[:4] == ["multiple_negatives", "regression"] * 2
    assert seen.count("regression") == 2
    assert result["steps"] == len(seen)


OPTIONS = {
    "adversarial": {"adversarial": "fgm"},
    "rdrop": {"rdrop": 0.5},
    "chunks": {"chunk_rows": 3},
    "precision": {"precision": "bfloat16"},
    "freeze": {"freeze": 1},
    "keep_layers": {"keep_layers": 1},
    "max_tokens": {"max_tokens": 4},
    "clip": {"clip": 1e-3},
    "schedule": {"schedule": "constant"},
    "weight decay": {"weight_decay": 0.5},
    "prompts": {"data": {"prompts": ["query: ", ""]}},
    "augment": {"data": {"augment": {"swap": 1}}},
    "matryoshka": {"data": {"options": {"matryoshka_dims": [32, 8]}}},
}


@pytest.mark.parametrize("changes", OPTIONS.values(), ids=OPTIONS)
def test_every_option_has_an_effect(model, pairs, plain, tmp_path, changes):
    train(make_plan(model, pairs, tmp_path / "changed", max_steps=3, **changes))
    without, changed = (SentenceEncoder.load(folder).encode(PAIRS[0]) for folder in (plain, tmp_path / "changed"))
    assert not np.allclose(without, changed, atol=1e-7)


def test_frozen_layers_stay_as_they_are(model, pairs, tmp_path):
    train(make_plan(model, pairs, tmp_path / "out", freeze=1))
    before, after = weights(model), weights(tmp_path / "out")
    for name, tensor in before.items():
        frozen = name.startswith(("embeddings.", "encoder.layer.0.", "pooler."))
        assert torch.equal(tensor, after[name]) == frozen, name


def test_gradient_checkpointing_does_not_change_weights(model, pairs, plain, tmp_path):
    train(make_plan(model, pairs, tmp_path / "out", max_steps=3, checkpointing=True))
    assert_equal_weights(plain, tmp_path / "out", 1e-4)


BAD = {
    "missing column": ({"columns": ["a", "z"]}, "has no column 'z'"),
    "too few columns": ({"columns": ["a"]}, "needs 2 or more text columns, but .* has 1"),
    "no label": ({"objective": "regression"}, "name the label column"),
    "label outside range": ({"objective": "regression", "label": "kind"}, "row 0 .*column 'kind'"),
    "unknown option": ({"options": {"margn": 1}}, "margn"),
    "prompts": ({"prompts": ["x"]}, "1 prompts for 2 text columns"),
    "teacher": ({"teacher": "default"}, "does not use a teacher"),
    "augment": ({"augment": {"shuffle": 1}}, "'shuffle' is not known"),
    "hard negatives": ({"hard_negatives": {"k": 1}}, "'k' is not known"),
    "teacher of another size": ({"objective": "distillation", "columns": ["a"], "teacher": "default"}, "dense: 384"),
}


@pytest.mark.parametrize(("data", "message"), BAD.values(), ids=BAD)
def test_bad_data_is_refused_before_anything_is_written(model, pairs, tmp_path, data, message):
    with pytest.raises(DataError, match=message):
        train(make_plan(model, pairs, tmp_path / "out", data=data))
    assert not (tmp_path / "out").exists()


def test_an_empty_file_is_refused(model, tmp_path):
    path = tmp_path / "empty.jsonl"
    path.write_text("")
    with pytest.raises(DataError, match="empty"):
        train(make_plan(model, str(path), tmp_path / "out"))


def test_an_infinite_loss_names_the_rows(model, pairs, tmp_path):
    with pytest.raises(JobError, match=r"the loss is nan in step \d, rows \[.*pairs.parquet.*lower learning_rate"):
        train(make_plan(model, pairs, tmp_path / "out", learning_rate=1e30, clip=1e30, warmup=0.0))


def test_more_frozen_layers_than_there_are(model, pairs, tmp_path):
    with pytest.raises(ModelError, match="freeze is 9, but the model has 2 layers"):
        train(make_plan(model, pairs, tmp_path / "out", freeze=9))


def test_float16_needs_cuda(model, pairs, tmp_path):
    with pytest.raises(ModelError, match="float16, which needs CUDA, not cpu"):
        train(make_plan(model, pairs, tmp_path / "out", precision="float16", device="cpu"))


def test_hard_negatives_are_found_with_the_model(model, pairs, tmp_path):
    data = {"hard_negatives": {"ranks": [1, 20], "margin": -2.0}}
    result = train(make_plan(model, pairs, tmp_path / "out", data=data, max_steps=2))
    assert result["rows"] == len(PAIRS)


def test_rows_in_no_batch_are_counted(model, tmp_path):
    path = tmp_path / "pairs.tsv"
    rows = [("the fox", f"my {word}") for word in WORDS] + [(f"the {word} is", f"a {word} jumps") for word in WORDS]
    path.write_text("a\tb\n" + "".join(f"{a}\t{b}\n" for a, b in rows))
    result = train(make_plan(model, str(path), tmp_path / "out", max_steps=None))
    ((reason, count),) = result["left_out"].items()
    assert "in no batch" in reason
    assert count >= 4  # of eight rows with one text, those beyond one per batch


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_files_of_models_follow_the_umask(model, pairs, tmp_path, umask):
    before = os.umask(umask)
    try:
        train(make_plan(model, pairs, tmp_path / "out", dense=8, dev=dev_of(pairs), max_steps=1))
        SentenceEncoder.load(tmp_path / "out").save(tmp_path / "saved")
        table = torch.randn(200, 8)
        tokenizer = SentenceEncoder.load(model).parts.body.tokenizer.backend_tokenizer
        SentenceEncoder(EncoderParts(StaticEmbedding(tokenizer, table), None)).save(tmp_path / "static")
        CrossEncoder.begin(model).save(tmp_path / "cross")
        SentenceEncoder.load(f"file://{tmp_path}/saved", cache_dir=tmp_path / "cache")
    finally:
        os.umask(before)
    for folder in ("out", "saved", "static", "cross", "cache"):
        files = [path for path in (tmp_path / folder).rglob("*") if path.is_file()]
        assert len(files) >= 3
        for path in files:
            assert path.stat().st_mode & 0o777 == 0o666 & ~umask, path
    for folder in [tmp_path / "cross", *(tmp_path / "cache" / "models").glob("*/")]:
        assert folder.stat().st_mode & 0o777 == 0o777 & ~umask


@pytest.mark.parametrize("decoder", [False, True])
def test_t5_is_trained_by_its_encoder_or_its_decoder(pairs, tmp_path, decoder):
    model = str(make_transformer(tmp_path / "t5", "t5"))
    train(make_plan(model, pairs, tmp_path / "out", decoder=decoder))
    parts = SentenceEncoder.load(tmp_path / "out").parts
    assert parts.body.decoder == decoder
    assert parts.pooling.modes == (("cls",) if decoder else ("mean",))
    vectors = SentenceEncoder.load(tmp_path / "out").encode(["the fox", "the fox is lazy"])
    raw = SentenceEncoder(read_folder(Path(model), decoder=decoder)).encode(["the fox", "the fox is lazy"])
    assert np.abs(vectors - raw).max() > 1e-4
    tokens = parts.body.tokenizer(["the fox is lazy"], return_tensors="pt")["input_ids"]
    start = torch.tensor([[parts.body.pad_id]])  # as in T5's own configuration
    with torch.no_grad():
        if decoder:
            expected = parts.body.model(input_ids=tokens, decoder_input_ids=start).last_hidden_state[0, 0]
        else:
            expected = parts.body.model(input_ids=tokens).last_hidden_state[0].mean(dim=0)
    np.testing.assert_allclose(vectors[1], expected.numpy(), atol=1e-5)


def test_only_t5_has_a_decoder(model, pairs, tmp_path):
    with pytest.raises(ModelError, match="holds a bert, which has no decoder"):
        train(make_plan(model, pairs, tmp_path / "out", decoder=True))


def test_a_student_approaches_its_teacher(model, pairs, tmp_path):
    texts = [text for pair in PAIRS for text in pair]
    teacher = SentenceEncoder.load(model).encode(texts)
    data = {"objective": "distillation", "columns": ["a"], "teacher": model}
    train(make_plan(model, pairs, tmp_path / "raw", data=data, keep_layers=1, max_steps=1))
    train(make_plan(model, pairs, tmp_path / "out", data=data, keep_layers=1, max_steps=40, epochs=20))
    error = [np.mean((SentenceEncoder.load(tmp_path / n).encode(texts) - teacher) ** 2) for n in ("raw", "out")]
    assert error[1] < 0.5 * error[0]


def test_lora_changes_linear_layers_only_and_is_merged(model, pairs, tmp_path):
    train(make_plan(model, pairs, tmp_path / "out", lora_rank=2))
    before, after = weights(model), weights(tmp_path / "out")
    assert before.keys() == after.keys()
    changed = [name for name, tensor in before.items() if not torch.equal(tensor, after[name])]
    assert changed
    assert all(before[name].ndim == 2 and "embeddings" not in name for name in changed)
