"""The train command, in one process and in two."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pipelines.cli import main
from sbert_beam import TrainPlan, train
from tests.tiny_models import make_transformer
from tests.training_runs import PAIRS, assert_equal_weights, losses, write_pairs

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return str(make_transformer(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> str:
    return write_pairs(tmp_path_factory.mktemp("data") / "pairs.parquet")


def test_rows_left_out_are_reported(model, pairs, tmp_path, capsys):
    plan = {"data": {"file": pairs, "columns": ["a", "b"], "hard_negatives": {"ranks": [1, 56], "margin": 0.05}}}
    (tmp_path / "plan.json").write_text(json.dumps({**plan, "model": model, "batch_size": 8, "max_steps": 2}))
    assert main(["train", "--config", str(tmp_path / "plan.json"), "--output", str(tmp_path / "out")]) == 0
    output = capsys.readouterr()
    result = json.loads((tmp_path / "out" / "training.json").read_text())
    reason = f"{pairs}: no hard negative: try more ranks or a smaller margin"
    count = result["left_out"][reason]
    assert 0 < count < len(PAIRS)
    assert result["rows"] + count == len(PAIRS)
    assert f"{count} rows left out of {reason}" in output.err
    assert f"rows left out  {sum(result['left_out'].values())}" in output.out
    assert f"{count} rows were left out of {reason}" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.slow
def test_two_processes_give_the_weights_of_one(pairs, tmp_path):
    model = str(make_transformer(tmp_path / "model"))
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}  # each process draws its own dropout
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    settings = {"model": model, "learning_rate": 1e-3, "batch_size": 9, "seed": 2, "adversarial": "fgm", "max_steps": 4}
    data = [
        {"file": pairs, "columns": ["a", "b"]},
        {"file": pairs, "columns": ["a", "b"], "objective": "classification", "label": "kind"},
    ]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    path = tmp_path / "plan.yaml"
    path.write_text(json.dumps({**settings, "data": data, "output": str(tmp_path / "two")}))
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--master_addr=127.0.0.1"]
    command = [*launch, f"--master_port={port}", "-m", "pipelines", "train", "--config", str(path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "--output", str(tmp_path / "two")], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("kept from before") == 1  # one of them reports
    train(TrainPlan.from_dict({**settings, "data": data, "output": str(tmp_path / "one")}))
    np.testing.assert_allclose(losses(tmp_path / "two"), losses(tmp_path / "one"), rtol=1e-4)
    # Adam's first steps go by the sign of a gradient, however small: what rounding makes of it can show.
    assert_equal_weights(tmp_path / "one", tmp_path / "two", 3e-4)


class TestCommand:
    def test_flags_are_enough(self, model, pairs, tmp_path, capsys):
        flags = ["--model", model, "--data", pairs, "--columns", "a,b", "--output", str(tmp_path / "out")]
        dev = ["--dev", pairs, "--dev_columns", "a,b", "--dev_label", "score", "--dev_label_range", "0,1"]
        assert main(["train", *flags, *dev, "--max_steps", "2", "--where", "kind=fox"]) == 0
        output = capsys.readouterr().out
        assert "rows  7" in output
        assert "dev spearman at best" in output
        assert main(["train", *flags, *dev, "--max_steps", "2", "--where", "kind=fox"]) == 0
        assert "kept from before  yes" in capsys.readouterr().out

    def test_flags_override_the_plan(self, model, pairs, tmp_path, capsys):
        path = tmp_path / "plan.yaml"
        path.write_text(f"model: {model}\ndata: {{file: {pairs}, columns: [a, b]}}\nmax_steps: 5\n")
        assert main(["train", "--config", str(path), "--output", str(tmp_path / "out"), "--max_steps", "1"]) == 0
        assert "steps  1\n" in capsys.readouterr().out

    def test_a_cross_encoder(self, model, pairs, tmp_path, capsys):
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
        output = capsys.readouterr().err
        assert message in output
        assert output.count("\n") == 1
