"""What the documents say is so."""

import dataclasses
import importlib
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import yaml

from benchmarks.engines import render as render_engines
from benchmarks.measure import RESULTS
from benchmarks.readme import render
from pipelines.cli import JOBS, OPTIONS
from pipelines.flags import FlagParser, add_flags, parse_flags
from sbert_beam import TrainPlan
from sbert_core.training.losses.objectives import OBJECTIVES
from sbert_core.training.plan import Source
from tests.documents import code_blocks

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
NAMES = (
    "README.md",
    "CONTRIBUTING.md",
    "benchmarks/README.md",
    "docs/training.md",
    "docs/scaling.md",
    "docs/experiments.md",
)

DOCUMENTS = [ROOT / name for name in NAMES]
GUIDE = ROOT / "docs/operating.md"  # its commands have flags of Beam: see test_deploy.py


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_readme_opens_with_the_two_commands():
    assert [line.split()[:2] for line in code_blocks(README, "sh")[0].splitlines()] == [
        ["make", "demo"],
        ["make", "test"],
    ]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_make_targets_exist(path):
    used = set(
        re.findall(r"\bmake ([a-z]+)\b", "\n".join(re.findall(r"```sh.*?```|`[^`\n]+`", path.read_text(), re.DOTALL)))
    )
    assert used <= make_targets()


@pytest.mark.parametrize("path", [*DOCUMENTS, GUIDE], ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\((?!http)([^)#]+)", path.read_text()):
        assert (path.parent / target).exists(), target


def test_every_make_target_is_listed():
    documented = set(re.findall(r"^([a-z]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert documented == make_targets()


def sbert_beam_commands() -> list[str]:
    texts = [path.read_text(encoding="utf-8") for path in DOCUMENTS]
    blocks = [block for text in texts for block in code_blocks(text, "sh")]
    return [line for block in blocks for line in block.splitlines() if "sbert-beam " in line]


@pytest.mark.parametrize("command", sbert_beam_commands())
def test_sbert_beam_commands_parse(command):
    _, job, *flags = shlex.split(command)
    parser = FlagParser()
    options_type = getattr(importlib.import_module(f"pipelines.{job}_options"), OPTIONS[job])
    add_flags(parser, options_type)
    _, rest = parse_flags(parser, options_type, flags)
    assert rest == []


def test_every_job_is_in_the_readme_and_has_an_example():
    assert {command.split()[1] for command in sbert_beam_commands()} == set(JOBS)
    for job in JOBS:
        example = importlib.import_module(f"pipelines.{job}_options").EXAMPLE
        assert example.startswith(f"sbert-beam {job} ")


def test_the_training_guide_is_complete():
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    (example,) = code_blocks(text, "yaml")
    plan = TrainPlan.from_dict(yaml.safe_load(example))
    assert (plan.batch_size, plan.learning_rate) == (TrainPlan.batch_size, TrainPlan.learning_rate)
    for name in OBJECTIVES:
        assert f"`{name}`" in text, name
    for field in (*dataclasses.fields(TrainPlan), *dataclasses.fields(Source)):
        assert re.search(rf"\b{field.name}\b", text) or field.name in ("device", "max_steps", "seed", "options"), field


def test_encoder_example_runs(capsys):
    (example,) = [block for block in code_blocks(README, "python") if "SentenceEncoder" in block]
    scope: dict = {}
    exec(example, scope)
    assert "1." in capsys.readouterr().out
    scores = scope["vectors"] @ scope["vectors"].T
    assert scores[0, 1] > 0.5 > scores[0, 2]
    np.testing.assert_allclose(np.diag(scores), 1, atol=1e-5)


def test_figures_are_those_of_the_results():
    assert render(README) == README
    assert "times faster" in README


def test_the_table_of_engines_is_that_of_the_record():
    record = json.loads((RESULTS / "engines.json").read_text(encoding="utf-8"))
    text = GUIDE.read_text(encoding="utf-8")
    assert render_engines(text, record) == text
