import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch
from sentence_transformers import SentenceTransformer

from pipelines.cli import main
from sbert_beam import SentenceEncoder, TrainPlan, train
from sbert_core.encoder.cross_encoder import CrossEncoder
from sbert_core.encoder.model_folder import EncoderParts, read_folder
from sbert_core.encoder.static_embedding import StaticEmbedding
from sbert_core.errors import DataError, JobError, ModelError
from sbert_core.training import checkpoint, loop
from tests.tiny_models import make_transformer

ROOT = Path(__file__).parents[1]
WORDS = ["fox", "dog", "man", "flute", "parcel", "lazy", "quick", "brown"]
PAIRS = [(f"the {a} is {b}", f"my {a} {b} jumps") for a in WORDS for b in WORDS if a != b]


@pytest.fixture
def model(tmp_path) -> str:
    return str(make_transformer(tmp_path / "model"))


@pytest.fixture
def pairs(tmp_path) -> str:
    path = tmp_path / "pairs.parquet"
    score = np.linspace(0, 1, len(PAIRS))
    columns = {"a": [a for a, _ in PAIRS], "b": [b for _, b in PAIRS], "score": score}
    pq.write_table(pa.table({**columns, "kind": [a.split()[1] for a, _ in PAIRS]}), path)
    return str(path)


def make_plan(model, pairs, output, **changes) -> TrainPlan:
    data = {"file": pairs, "columns": ["a", "b"], **changes.pop("data", {})}
    settings = {"model": model, "output": str(output), "learning_rate": 1e-3, "batch_size": 8, "max_steps": 6}
    return TrainPlan.from_dict({**settings, "data": data, **changes})


def weights(folder) -> dict[str, torch.Tensor]:
    found = {}
    for file in sorted(Path(folder).rglob("model.safetensors")):
        place = "" if file.parent == Path(folder) else f"{file.parent.name}/"
        found |= {place + name: tensor for name, tensor in safetensors.torch.load_file(file).items()}
    return found


def losses(folder) -> list[float]:
    lines = (Path(folder) / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines if "loss" in line]


def assert_equal_weights(first, second, tolerance=0.0):
    a, b = weights(first), weights(second)
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(b[name], a[name], atol=tolerance, rtol=0, msg=name)


def test_what_is_learned_lowers_the_loss(model, pairs, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "_LOG_EVERY", 1)
    train(make_plan(model, pairs, tmp_path / "out", max_steps=40, epochs=9))
    told = losses(tmp_path / "out")
    assert len(told) == 40
    assert np.mean(told[-5:]) < 0.5 * np.mean(told[:5])


def test_the_folder_loads_here_and_in_sentence_transformers(model, pairs, tmp_path):
    result = train(make_plan(model, pairs, tmp_path / "out", pooling="cls,mean", dense=16, normalize=True))
    ours = SentenceEncoder.load(tmp_path / "out").encode(PAIRS[0])
    assert ours.shape == (2, result["dim"]) == (2, 16)
    np.testing.assert_allclose(SentenceTransformer(str(tmp_path / "out")).encode(PAIRS[0]), ours, atol=1e-5)
    assert not (tmp_path / "out" / "_training").exists()


def test_the_same_plan_gives_the_same_weights(model, pairs, tmp_path):
    for name in ("one", "two"):
        train(make_plan(model, pairs, tmp_path / name))
    assert_equal_weights(tmp_path / "one", tmp_path / "two")
    train(make_plan(model, pairs, tmp_path / "three", seed=1))
    assert any(not torch.equal(w, weights(tmp_path / "three")[n]) for n, w in weights(tmp_path / "one").items())


class Killed(BaseException):
    """Not an error that anything may catch."""


def train_until_killed(plan, doomed, monkeypatch):
    step = loop._Learning.step

    def dying(self, number, *others):
        if number == doomed:
            raise Killed
        return step(self, number, *others)

    with monkeypatch.context() as patch:
        patch.setattr(loop._Learning, "step", dying)
        with pytest.raises(Killed):
            train(plan)


RESUMED = {
    "plain": {},
    "objective with weights": {"data": {"objective": "classification", "label": "kind"}},
    "momentum": {"data": {"objective": "contriever_momentum", "columns": ["a"], "options": {"queue_size": 16}}},
    "augmented": {"data": {"augment": {"delete": 0.3, "swap": 1}}},
    "accumulated": {"accumulate": 2, "epochs": 2},
}


@pytest.mark.parametrize("changes", RESUMED.values(), ids=RESUMED)
def test_a_killed_run_resumes_exactly(model, pairs, tmp_path, monkeypatch, changes):
    dev = {"file": pairs, "columns": ["a", "b"], "label": "score"}
    settings = {**changes, "dev": dev, "evaluate_every": 3}
    undisturbed = train(make_plan(model, pairs, tmp_path / "whole", **settings))
    plan = make_plan(model, pairs, tmp_path / "killed", checkpoint_every=2, **settings)
    train_until_killed(plan, 6, monkeypatch)
    resumed = train(plan)
    assert_equal_weights(tmp_path / "whole", tmp_path / "killed")
    assert resumed["dev"] == undisturbed["dev"]
    metrics = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("whole", "killed")]
    assert metrics[0] == metrics[1]


def test_a_run_killed_while_it_writes_resumes_from_the_checkpoint_before(model, pairs, tmp_path, monkeypatch):
    train(make_plan(model, pairs, tmp_path / "whole"))
    plan = make_plan(model, pairs, tmp_path / "killed", checkpoint_every=2)
    save, saved = torch.save, []

    def dying(state, path):
        saved.append(path)
        if len(saved) == 2:
            Path(path).write_bytes(b"half a file")
            raise Killed
        save(state, path)

    monkeypatch.setattr(checkpoint.torch, "save", dying)
    with pytest.raises(Killed):
        train(plan)
    monkeypatch.setattr(checkpoint.torch, "save", save)
    train(plan)
    assert_equal_weights(tmp_path / "whole", tmp_path / "killed")


def test_a_finished_run_is_not_done_again(model, pairs, tmp_path):
    plan = make_plan(model, pairs, tmp_path / "out")
    first = train(plan)
    before = (tmp_path / "out" / "model.safetensors").stat().st_mtime_ns
    again = train(plan)
    assert (first["kept"], again["kept"]) == (False, True)
    assert again["loss"] == first["loss"]
    assert (tmp_path / "out" / "model.safetensors").stat().st_mtime_ns == before


def test_a_folder_of_something_else_is_refused(model, pairs, tmp_path):
    train(make_plan(model, pairs, tmp_path / "out"))
    with pytest.raises(DataError, match="another plan, data or model"):
        train(make_plan(model, pairs, tmp_path / "out", seed=1))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(DataError, match="not empty and holds no training run"):
        train(make_plan(model, pairs, tmp_path / "mine"))


def test_changed_data_is_another_run(model, pairs, tmp_path):
    train(make_plan(model, pairs, tmp_path / "out"))
    pq.write_table(pq.read_table(pairs).slice(0, 20), pairs)
    with pytest.raises(DataError, match="another plan, data or model"):
        train(make_plan(model, pairs, tmp_path / "out"))


def test_the_best_model_is_kept(model, pairs, tmp_path, monkeypatch):
    scores = iter([0.1, 0.9, 0.3])
    monkeypatch.setattr(loop, "score_dev", lambda *_: next(scores))
    dev = {"file": pairs, "columns": ["a", "b"], "label": "score"}
    result = train(make_plan(model, pairs, tmp_path / "best", dev=dev, evaluate_every=3))
    assert result["dev"] == {"metric": "spearman", "before": 0.1, "best": 0.9, "best_step": 3}
    scores = iter([0.1, 0.3, 0.9])
    train(make_plan(model, pairs, tmp_path / "last", dev=dev, evaluate_every=3))
    train(make_plan(model, pairs, tmp_path / "without"))
    assert_equal_weights(tmp_path / "last", tmp_path / "without")
    assert any(not torch.equal(w, weights(tmp_path / "last")[n]) for n, w in weights(tmp_path / "best").items())


def test_the_card_tells_what_was_done(model, pairs, tmp_path):
    dev = {"file": pairs, "columns": ["a", "b"], "label": "score"}
    data = {"objective": "classification", "label": "kind", "options": {"concatenation": "|u-v|"}}
    result = train(make_plan(model, pairs, tmp_path / "out", data=data, dev=dev))
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"| {pairs} | 56 | classification | concatenation \\|u-v\\| |" in card
    assert f"{result['dev']['best']:.4f} at best" in card
    assert "| learning_rate | 0.001 |" in card
    assert f"torch {torch.__version__}" in card


def test_several_data_sets_are_mixed(model, pairs, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "_LOG_EVERY", 1)
    sources = [
        {"file": pairs, "columns": ["a", "b"]},
        {"file": pairs, "columns": ["a", "b"], "objective": "regression", "label": "score", "batch_size": 28},
    ]
    plan = TrainPlan.from_dict(
        {"model": model, "output": str(tmp_path / "out"), "data": sources, "mixing": "round_robin", "batch_size": 8}
    )
    seen = []
    step = loop._Learning.step

    def watching(self, number, total, turn):
        seen.extend(source.source.objective for source, _, _ in turn.batches)
        return step(self, number, total, turn)

    monkeypatch.setattr(loop._Learning, "step", watching)
    result = train(plan)
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
def test_every_option_has_an_effect(model, pairs, tmp_path, changes):
    train(make_plan(model, pairs, tmp_path / "plain", max_steps=3))
    train(make_plan(model, pairs, tmp_path / "changed", max_steps=3, **changes))
    plain, changed = (SentenceEncoder.load(tmp_path / name).encode(PAIRS[0]) for name in ("plain", "changed"))
    assert not np.allclose(plain, changed, atol=1e-7)


def test_frozen_layers_stay_as_they_are(model, pairs, tmp_path):
    train(make_plan(model, pairs, tmp_path / "out", freeze=1))
    before, after = weights(model), weights(tmp_path / "out")
    for name, tensor in before.items():
        frozen = name.startswith(("embeddings.", "encoder.layer.0.", "pooler."))
        assert torch.equal(tensor, after[name]) == frozen, name


def test_gradient_checkpointing_changes_nothing(model, pairs, tmp_path):
    train(make_plan(model, pairs, tmp_path / "plain"))
    train(make_plan(model, pairs, tmp_path / "checkpointed", checkpointing=True))
    assert_equal_weights(tmp_path / "plain", tmp_path / "checkpointed", 1e-4)


BAD = {
    "missing column": ({"columns": ["a", "z"]}, "has no column 'z'"),
    "too few columns": ({"columns": ["a"]}, "learns from 2 or more text columns"),
    "no label": ({"objective": "regression"}, "name the label column"),
    "label outside range": ({"objective": "regression", "label": "kind"}, "row 0 .*column 'kind'"),
    "unknown option": ({"options": {"margn": 1}}, "margn"),
    "prompts": ({"prompts": ["x"]}, "1 prompts for 2 text columns"),
    "teacher": ({"teacher": "default"}, "no use for a teacher"),
    "augment": ({"augment": {"shuffle": 1}}, "'shuffle' is not known"),
    "hard negatives": ({"hard_negatives": {"k": 1}}, "'k' is not known"),
    "teacher of another size": ({"objective": "distillation", "columns": ["a"], "teacher": "default"}, "dense: 384"),
}


@pytest.mark.parametrize(("data", "message"), BAD.values(), ids=BAD)
def test_bad_data_is_told_before_anything_is_learned(model, pairs, tmp_path, data, message):
    with pytest.raises(DataError, match=message):
        train(make_plan(model, pairs, tmp_path / "out", data=data))
    assert not (tmp_path / "out").exists()


def test_an_empty_file_is_told(model, tmp_path):
    path = tmp_path / "empty.jsonl"
    path.write_text("")
    with pytest.raises(DataError, match="empty"):
        train(make_plan(model, str(path), tmp_path / "out"))


def test_a_loss_that_is_no_number_names_the_rows(model, pairs, tmp_path):
    with pytest.raises(JobError, match=r"the loss is nan in step \d, of rows \[.*pairs.parquet.*lower learning_rate"):
        train(make_plan(model, pairs, tmp_path / "out", learning_rate=1e30, clip=1e30, warmup=0.0))


def test_a_folder_that_cannot_be_adapted_is_told(model, pairs, tmp_path):
    with pytest.raises(ModelError, match="freeze is 9, and the model has 2 layers"):
        train(make_plan(model, pairs, tmp_path / "out", freeze=9))


def test_half_precision_of_a_gpu_needs_one(model, pairs, tmp_path):
    with pytest.raises(ModelError, match="float16 is for CUDA, not cpu"):
        train(make_plan(model, pairs, tmp_path / "out", precision="float16", device="cpu"))


def test_hard_negatives_are_found_with_the_model(model, pairs, tmp_path):
    data = {"hard_negatives": {"ranks": [1, 20], "margin": -2.0}}
    result = train(make_plan(model, pairs, tmp_path / "out", data=data, max_steps=2))
    assert result["rows"] == len(PAIRS)


def test_rows_that_are_not_learned_from_are_told(model, pairs, tmp_path, capsys):
    plan = {"data": {"file": pairs, "columns": ["a", "b"], "hard_negatives": {"ranks": [1, 56], "margin": 0.05}}}
    (tmp_path / "plan.json").write_text(json.dumps({**plan, "model": model, "batch_size": 8, "max_steps": 2}))
    assert main(["train", "--config", str(tmp_path / "plan.json"), "--output", str(tmp_path / "out")]) == 0
    told = capsys.readouterr()
    result = json.loads((tmp_path / "out" / "training.json").read_text())
    reason = f"{pairs}: no hard negative: try more ranks or a smaller margin"
    count = result["left_out"][reason]
    assert 0 < count < len(PAIRS)
    assert result["rows"] + count == len(PAIRS)
    assert f"{count} rows left out of {reason}" in told.err
    assert f"rows left out  {sum(result['left_out'].values())}" in told.out
    assert f"{count} rows were left out of {reason}" in (tmp_path / "out" / "README.md").read_text()


def test_rows_that_fit_into_no_batch_are_told(model, tmp_path):
    path = tmp_path / "pairs.tsv"
    rows = [("the fox", f"my {word}") for word in WORDS] + [(f"the {word} is", f"a {word} jumps") for word in WORDS]
    path.write_text("a\tb\n" + "".join(f"{a}\t{b}\n" for a, b in rows))
    result = train(make_plan(model, str(path), tmp_path / "out", max_steps=None))
    (told,) = result["left_out"].items()
    assert "in no batch" in told[0]
    assert told[1] >= 4  # of eight rows with one text, those beyond one per batch


def test_the_best_model_survives_a_crash_while_it_is_replaced(model, pairs, tmp_path, monkeypatch):
    """Killed at any moment of keeping a new best model, a run goes on to the same result."""
    dev = {"file": pairs, "columns": ["a", "b"], "label": "score"}
    settings = {"dev": dev, "evaluate_every": 1, "checkpoint_every": 1, "max_steps": 4}

    def scored(plan):
        scores = iter([0.1, 0.5, 0.9, 0.3, 0.2])
        monkeypatch.setattr(loop, "score_dev", lambda *_: next(scores))
        return train(plan)

    undisturbed = scored(make_plan(model, pairs, tmp_path / "whole", **settings))
    assert undisturbed["dev"]["best_step"] == 2
    for name, doomed in (("rename", Path.rename), ("rmtree", checkpoint.shutil.rmtree), ("write", None)):
        plan = make_plan(model, pairs, tmp_path / name, **settings)
        keep_best = checkpoint.RunFolder.keep_best

        def dying(self, parts, step, name=name, doomed=doomed, keep_best=keep_best):
            if step != 2:
                return keep_best(self, parts, step)
            with monkeypatch.context() as patch:
                if name == "write":
                    patch.setattr(checkpoint, "write_folder", lambda *_: (_ for _ in ()).throw(Killed()))
                elif name == "rename":
                    patch.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(Killed()))
                else:
                    patch.setattr(checkpoint.RunFolder, "_drop_best", lambda *_: (_ for _ in ()).throw(Killed()))
                return keep_best(self, parts, step)

        with monkeypatch.context() as patch:
            patch.setattr(checkpoint.RunFolder, "keep_best", dying)
            with pytest.raises(Killed):
                scored(plan)
        assert (tmp_path / name / "_training" / "best-1" / "modules.json").exists(), "the best before is still there"
        scores = iter([0.9, 0.3, 0.2])
        monkeypatch.setattr(loop, "score_dev", lambda *_, scores=scores: next(scores))
        assert train(plan)["dev"] == undisturbed["dev"]
        assert_equal_weights(tmp_path / "whole", tmp_path / name)


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_files_of_models_follow_the_umask(model, pairs, tmp_path, umask):
    before = os.umask(umask)
    try:
        dev = {"file": pairs, "columns": ["a", "b"], "label": "score"}
        train(make_plan(model, pairs, tmp_path / "out", dense=8, dev=dev, max_steps=1))
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


def test_a_student_learns_to_embed_like_its_teacher(model, pairs, tmp_path):
    texts = [text for pair in PAIRS for text in pair]
    teacher = SentenceEncoder.load(model).encode(texts)
    data = {"objective": "distillation", "columns": ["a"], "teacher": model}
    train(make_plan(model, pairs, tmp_path / "raw", data=data, keep_layers=1, max_steps=1))
    train(make_plan(model, pairs, tmp_path / "out", data=data, keep_layers=1, max_steps=60, epochs=20))
    error = [np.mean((SentenceEncoder.load(tmp_path / n).encode(texts) - teacher) ** 2) for n in ("raw", "out")]
    assert error[1] < 0.5 * error[0]


def test_lora_learns_little_and_is_merged(model, pairs, tmp_path):
    train(make_plan(model, pairs, tmp_path / "out", lora_rank=2))
    before, after = weights(model), weights(tmp_path / "out")
    assert before.keys() == after.keys()
    changed = [name for name, tensor in before.items() if not torch.equal(tensor, after[name])]
    assert changed
    assert all(before[name].ndim == 2 and "embeddings" not in name for name in changed)


def test_a_killed_run_with_lora_resumes_exactly(model, pairs, tmp_path, monkeypatch):
    train(make_plan(model, pairs, tmp_path / "whole", lora_rank=2))
    plan = make_plan(model, pairs, tmp_path / "killed", lora_rank=2, checkpoint_every=2)
    train_until_killed(plan, 5, monkeypatch)
    train(plan)
    assert_equal_weights(tmp_path / "whole", tmp_path / "killed")


def test_tensorboard_gets_the_metrics(model, pairs, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(make_plan(model, pairs, tmp_path / "out", tensorboard=True))
    board = EventAccumulator(str(tmp_path / "out" / "tensorboard")).Reload()
    assert [each.value for each in board.Scalars("loss")] == pytest.approx(losses(tmp_path / "out"))


def test_two_processes_learn_as_one(pairs, tmp_path):
    model = str(make_transformer(tmp_path / "model"))
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}  # each process draws its own
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    settings = {"model": model, "learning_rate": 1e-3, "batch_size": 9, "seed": 2, "adversarial": "fgm"}
    sources = [
        {"file": pairs, "columns": ["a", "b"]},
        {"file": pairs, "columns": ["a", "b"], "objective": "classification", "label": "kind"},
    ]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    path = tmp_path / "plan.yaml"
    path.write_text(json.dumps({**settings, "data": sources, "output": str(tmp_path / "two")}))
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--master_addr=127.0.0.1"]
    command = [*launch, f"--master_port={port}", "-m", "pipelines", "train", "--config", str(path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "--output", str(tmp_path / "two")], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("kept from before") == 1  # one of them tells
    train(TrainPlan.from_dict({**settings, "data": sources, "output": str(tmp_path / "one")}))
    np.testing.assert_allclose(losses(tmp_path / "two"), losses(tmp_path / "one"), rtol=1e-4)
    # Adam's first steps go by the sign of a gradient, however small: what rounding makes of it can show.
    assert_equal_weights(tmp_path / "one", tmp_path / "two", 3e-4)


class TestCommand:
    def test_flags_are_enough(self, model, pairs, tmp_path, capsys):
        flags = ["--model", model, "--data", pairs, "--columns", "a,b", "--output", str(tmp_path / "out")]
        dev = ["--dev", pairs, "--dev_columns", "a,b", "--dev_label", "score", "--dev_label_range", "0,1"]
        assert main(["train", *flags, *dev, "--max_steps", "2", "--where", "kind=fox"]) == 0
        told = capsys.readouterr().out
        assert "rows  7" in told
        assert "dev spearman at best" in told
        assert main(["train", *flags, *dev, "--max_steps", "2", "--where", "kind=fox"]) == 0
        assert "kept from before  yes" in capsys.readouterr().out

    def test_flags_go_before_the_plan(self, model, pairs, tmp_path, capsys):
        path = tmp_path / "plan.yaml"
        path.write_text(f"model: {model}\ndata: {{file: {pairs}, columns: [a, b]}}\nmax_steps: 5\n")
        assert main(["train", "--config", str(path), "--output", str(tmp_path / "out"), "--max_steps", "1"]) == 0
        assert "steps  1\n" in capsys.readouterr().out

    def test_a_cross_encoder_is_trained_too(self, model, pairs, tmp_path, capsys):
        flags = ["--cross_encoder", "score", "--model", model, "--data", pairs, "--columns", "a,b", "--label", "score"]
        assert (
            main(
                [
                    "train",
                    *flags,
                    "--output",
                    str(tmp_path / "out"),
                    "--dev",
                    pairs,
                    "--dev_columns",
                    "a,b",
                    "--dev_label",
                    "score",
                ]
            )
            == 0
        )
        assert "dev spearman at best" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("flags", "message"),
        [
            (["--output", "x"], "--config plan.yaml, or --model and --data"),
            (["--output", "x", "--model", "default", "--data", "no.tsv"], "there is no data at 'no.tsv'"),
            (["--output", "x", "--model", "default", "--data", "a", "--where", "split"], "as split=train"),
            (["--output", "x", "--model", "default", "--data", "a", "--dev_label", "s"], "give --dev too"),
            (
                ["--output", "x", "--model", "default", "--data", "a", "--runner", "FnApiRunner"],
                "train runs no pipeline",
            ),
            (
                ["--output", "x", "--model", "default", "--data", "a", "--cross_encoder", "rank"],
                "score, binary or class",
            ),
            (["--output", "x", "--model", "default", "--data", "a", "--cross_encoder", "score"], "--label"),
            (["--output", "x", "--model", "default", "--data", "a", "--label_range", "5"], "two numbers, as 0,5"),
            (["--output", "x", "--config", "no.yaml"], "no.yaml cannot be read"),
        ],
    )
    def test_a_mistake_is_one_line(self, flags, message, capsys, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert main(["train", *flags]) == 2
        told = capsys.readouterr().err
        assert message in told
        assert told.count("\n") == 1
