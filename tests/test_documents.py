"""What the documents say is so."""

import ast
import importlib
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import yaml

from benchmarks.documents import DOCUMENTS as GENERATED
from benchmarks.documents import render
from benchmarks.engines import render as render_engines
from benchmarks.engines import render_requests
from benchmarks.measure import RESULTS
from pipelines.cli import JOBS, OPTIONS
from pipelines.flags import FlagParser, add_flags, parse_flags
from sbert_beam import TrainPlan
from sbert_core.training.losses.objectives import OBJECTIVES
from sbert_core.training.plan import DataSpec
from tests.documents import code_blocks

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
NAMES = (
    "README.md",
    "CONTRIBUTING.md",
    "benchmarks/README.md",
    "docs/architecture.md",
    "docs/benchmarks.md",
    "docs/encoder.md",
    "docs/experiments.md",
    "docs/guide.md",
    "docs/outputs.md",
    "docs/scaling.md",
    "docs/training.md",
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
    assert (plan.batch_size, plan.learning_rate) == tuple(
        TrainPlan.model_fields[name].default for name in ("batch_size", "learning_rate")
    )
    for name in OBJECTIVES:
        assert f"`{name}`" in text, name
    for field in (*TrainPlan.model_fields, *DataSpec.model_fields):
        assert re.search(rf"\b{field}\b", text) or field in ("device", "max_steps", "seed", "options"), field


@pytest.mark.parametrize("name", ["README.md", "docs/encoder.md"])
def test_encoder_examples_run(capsys, name):
    (example,) = code_blocks((ROOT / name).read_text(encoding="utf-8"), "python")
    scope: dict = {}
    exec(example, scope)
    assert "1." in capsys.readouterr().out
    scores = scope["vectors"] @ scope["vectors"].T
    assert scores[0, 1] > 0.5 > scores[0, 2]
    np.testing.assert_allclose(np.diag(scores), 1, atol=1e-5)


def test_the_pipeline_example_runs(capsys):
    (example,) = code_blocks((ROOT / "docs/guide.md").read_text(encoding="utf-8"), "python")
    exec(example, {})
    assert "['text', 'embedding', 'n_tokens', 'truncated']" in capsys.readouterr().out


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: path.name)
def test_generated_sections_are_current(path):
    text = path.read_text(encoding="utf-8")
    assert "python -m benchmarks.documents" in text
    assert render(text) == text


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 200


def places_in_the_architecture() -> list[tuple[str, str]]:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    return re.findall(r"`([\w/]+\.py)`: `(\w+)`", text)


@pytest.mark.parametrize(("path", "name"), places_in_the_architecture())
def test_the_architecture_names_places_that_exist(path, name):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            defined |= {target.id for target in targets if isinstance(target, ast.Name)}
    assert name in defined


def test_the_architecture_answers_the_questions_of_a_newcomer():
    assert len(places_in_the_architecture()) > 15


def test_modules_on_the_path_of_a_row_exist():
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    path = text[text.index("## The path of a row") : text.index("## Where is")]
    modules = set(re.findall(r"\b(?:sbert_core/)?(?:dataset|encode|encoder|neighbors|clusters|report)/\w+", path))
    assert len(modules) > 15
    for module in modules:
        homes = [ROOT / package / module for package in ("", "sbert_core", "transforms")]
        assert any(home.with_suffix(".py").exists() or home.is_dir() for home in homes), module


def test_the_table_of_engines_is_that_of_the_record():
    record = json.loads((RESULTS / "engines.json").read_text(encoding="utf-8"))
    text = GUIDE.read_text(encoding="utf-8")
    assert render_engines(text, record) == text
    requests = json.loads((RESULTS / "requests.json").read_text(encoding="utf-8"))
    assert render_requests(text, requests) == text
