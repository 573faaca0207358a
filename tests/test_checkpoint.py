"""Runs that are killed, finished or in the wrong folder."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from sbert_beam import train
from sbert_core.errors import DataError
from tests.tiny_models import make_transformer
from tests.training_runs import assert_equal_weights, dev_of, have_equal_weights, losses, make_plan, write_pairs


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return str(make_transformer(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> str:
    return write_pairs(tmp_path_factory.mktemp("data") / "pairs.parquet")


class Killed(BaseException):
    """Not an error that anything may catch."""


def train_until_killed(plan, last_step: int) -> None:
    def kill(step, loss):
        if step.number == last_step:
            raise Killed

    with pytest.raises(Killed):
        train(plan, on_step=kill)


RESUMED = {
    "plain": {},
    "objective with weights": {"data": {"objective": "classification", "label": "kind"}},
    "momentum": {"data": {"objective": "contriever_momentum", "columns": ["a"], "options": {"queue_size": 16}}},
    "augmented": {"data": {"augment": {"delete": 0.3, "swap": 1}}},
    "accumulated": {"accumulate": 2, "epochs": 2},
    "lora": {"lora_rank": 2},
}


@pytest.mark.slow
@pytest.mark.parametrize("changes", RESUMED.values(), ids=RESUMED)
def test_a_killed_run_resumes_exactly(model, pairs, tmp_path, changes):
    settings = {**changes, "dev": dev_of(pairs), "evaluate_every": 3}
    uninterrupted = train(make_plan(model, pairs, tmp_path / "uninterrupted", **settings))
    plan = make_plan(model, pairs, tmp_path / "killed", checkpoint_every=2, **settings)
    train_until_killed(plan, 5)
    resumed = train(plan)
    assert_equal_weights(tmp_path / "uninterrupted", tmp_path / "killed")
    assert resumed["dev"] == uninterrupted["dev"]
    metrics = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("uninterrupted", "killed")]
    assert metrics[0] == metrics[1]


def test_a_run_killed_while_it_saves_resumes_from_the_checkpoint_before(model, pairs, tmp_path, monkeypatch):
    settings = {"dev": dev_of(pairs), "evaluate_every": 1, "max_steps": 4}
    scores = {"before": 0.1, "steps": [0.5, 0.9, 0.3, 0.2]}
    plain = iter([scores["before"], *scores["steps"]])
    uninterrupted = train(make_plan(model, pairs, tmp_path / "uninterrupted", **settings), score=lambda *_: next(plain))
    assert uninterrupted["dev"]["best_step"] == 2
    plan = make_plan(model, pairs, tmp_path / "killed", checkpoint_every=1, **settings)
    save, saved = torch.save, []

    def dying(state, path):
        saved.append(path)
        if len(saved) == 2:
            Path(path).write_bytes(b"half a file")
            raise Killed
        save(state, path)

    interrupted = iter([scores["before"], *scores["steps"]])
    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", dying)
        with pytest.raises(Killed):
            train(plan, score=lambda *_: next(interrupted))
    work = tmp_path / "killed" / "_training"
    assert (work / "best-1" / "modules.json").exists(), "the last checkpoint refers to it"
    (work / "best.partial").mkdir()  # as if it had been killed while it wrote the best model
    (work / "best.partial" / "modules.json").write_text("half a file")
    rest = iter(scores["steps"][1:])
    assert train(plan, score=lambda *_: next(rest))["dev"] == uninterrupted["dev"]
    assert_equal_weights(tmp_path / "uninterrupted", tmp_path / "killed")


def test_a_damaged_checkpoint_is_refused(model, pairs, tmp_path):
    plan = make_plan(model, pairs, tmp_path / "out", checkpoint_every=1)
    train_until_killed(plan, 2)
    (tmp_path / "out" / "_training" / "state.pt").write_bytes(b"half a file")
    with pytest.raises(DataError, match=r"state\.pt cannot be read: remove it to start again"):
        train(plan)


def test_a_finished_run_is_not_repeated(model, pairs, tmp_path):
    plan = make_plan(model, pairs, tmp_path / "out")
    first = train(plan)
    before = (tmp_path / "out" / "model.safetensors").stat().st_mtime_ns
    again = train(plan)
    assert (first["kept"], again["kept"]) == (False, True)
    assert again["loss"] == first["loss"]
    assert (tmp_path / "out" / "model.safetensors").stat().st_mtime_ns == before
    assert not (tmp_path / "out" / "_training").exists()
    with pytest.raises(DataError, match="another plan, data or model"):
        train(make_plan(model, pairs, tmp_path / "out", seed=1))


def test_changed_data_is_another_run(model, tmp_path):
    pairs = write_pairs(tmp_path / "pairs.parquet")
    train(make_plan(model, pairs, tmp_path / "out", max_steps=1))
    pq.write_table(pq.read_table(pairs).slice(0, 20), pairs)
    with pytest.raises(DataError, match="another plan, data or model"):
        train(make_plan(model, pairs, tmp_path / "out", max_steps=1))


def test_a_folder_of_other_files_is_refused(model, pairs, tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(DataError, match="not empty and holds no training run"):
        train(make_plan(model, pairs, tmp_path))


def test_the_best_model_is_kept(model, pairs, tmp_path):
    settings = {"dev": dev_of(pairs), "evaluate_every": 3}
    best = iter([0.1, 0.9, 0.3])
    result = train(make_plan(model, pairs, tmp_path / "best", **settings), score=lambda *_: next(best))
    assert result["dev"] == {"metric": "spearman", "before": 0.1, "best": 0.9, "best_step": 3}
    last = iter([0.1, 0.3, 0.9])
    train(make_plan(model, pairs, tmp_path / "last", **settings), score=lambda *_: next(last))
    train(make_plan(model, pairs, tmp_path / "without"))
    assert_equal_weights(tmp_path / "last", tmp_path / "without")
    assert not have_equal_weights(tmp_path / "best", tmp_path / "last")


def test_tensorboard_gets_the_metrics(model, pairs, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(make_plan(model, pairs, tmp_path / "out", tensorboard=True))
    board = EventAccumulator(str(tmp_path / "out" / "tensorboard")).Reload()
    assert [each.value for each in board.Scalars("loss")] == pytest.approx(losses(tmp_path / "out"))
