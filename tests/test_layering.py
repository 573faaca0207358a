"""Which package may import which, and what every module must keep to."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Arrows: sbert_core <- transforms <- pipelines.
FORBIDDEN = {
    "sbert_core": {"apache_beam", "transforms", "pipelines", "tests", "benchmarks", "sentence_transformers"},
    "transforms": {"pipelines", "tests", "benchmarks", "sentence_transformers"},
    "pipelines": {"torch", "transformers", "tests", "benchmarks", "sentence_transformers"},
}
MODULES = [path for package in FORBIDDEN for path in sorted((ROOT / package).rglob("*.py"))]


def imported_packages(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import in line {node.lineno}"
            found.add(str(node.module).split(".")[0])
    return found


def test_modules_are_found():
    assert len(MODULES) > 10


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_arrows(path):
    package = path.relative_to(ROOT).parts[0]
    assert not imported_packages(path) & FORBIDDEN[package]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_is_readable_in_one_sitting(path):
    source = path.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 350
    assert ast.get_docstring(ast.parse(source)), "a module says what it is for"
    assert path.name not in ("utils.py", "common.py", "helpers.py")


def test_the_check_sees_imports(tmp_path):
    path = tmp_path / "module.py"
    path.write_text("import apache_beam.io\nfrom pipelines.cli import main\n\ndef f():\n    import torch\n")
    assert imported_packages(path) == {"apache_beam", "pipelines", "torch"}
