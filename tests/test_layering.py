"""Which package may import which, and what every module must keep to."""

import ast
import collections
import functools
import graphlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Arrows: sbert_core <- transforms <- pipelines <- sbert_beam.
FORBIDDEN = {
    "sbert_core": {"apache_beam", "transforms", "pipelines", "sbert_beam", "tests", "benchmarks"},
    "transforms": {"pipelines", "sbert_beam", "tests", "benchmarks"},
    "pipelines": {"torch", "transformers", "sbert_beam", "tests", "benchmarks"},
    "sbert_beam": {"apache_beam", "torch", "transformers", "tests", "benchmarks"},
}
PEER = "sentence_transformers"
MODULES = [path for package in FORBIDDEN for path in sorted((ROOT / package).rglob("*.py"))]
TEST_MODULES = sorted((ROOT / "tests").rglob("*.py"))


@functools.cache
def imported_modules(path: Path) -> set[str]:
    """The modules that a file imports, also within functions and for type checking."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import in line {node.lineno}"
            found |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def imported_packages(path: Path) -> set[str]:
    return {module.split(".")[0] for module in imported_modules(path)}


def find_cycle(edges: dict[str, set[str]]) -> list[str]:
    """A cycle of nodes that point to each other; empty if there is none."""
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def module_path(name: str) -> Path | None:
    """The file of one of our modules."""
    path = ROOT.joinpath(*name.split("."))
    if path.with_suffix(".py").is_file():
        return path.with_suffix(".py")
    return path / "__init__.py" if (path / "__init__.py").is_file() else None


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_modules_are_found():
    assert len(MODULES) > 100
    assert {path.relative_to(ROOT).parts[0] for path in MODULES} == FORBIDDEN.keys()


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_arrows(path):
    package = path.relative_to(ROOT).parts[0]
    assert not imported_packages(path) & {*FORBIDDEN[package], PEER}


@pytest.mark.parametrize("package", ["sbert_core", "transforms"])
def test_no_cycle_between_packages(package):
    """For example sbert_core.training may import sbert_core.data, and then not the other way round."""
    edges = collections.defaultdict(set)
    for path in sorted((ROOT / package).glob("*/**/*.py")):
        home = path.relative_to(ROOT / package).parts[0]
        others = {name.split(".")[1] for name in imported_modules(path) if name.startswith(f"{package}.")}
        edges[home] |= {other for other in others if other != home and (ROOT / package / other).is_dir()}
    assert find_cycle(edges) == []


def test_no_cycle_between_modules():
    edges = {
        module_name(path): {
            name
            for name in imported_modules(path)
            if name.split(".")[0] in FORBIDDEN and module_path(name) and name != module_name(path)
        }
        for path in MODULES
        if path.name != "__init__.py"
    }
    assert find_cycle(edges) == []


def test_a_file_name_occurs_once():
    """`__main__`, `worker` and `job_service` start what the module of the same name in pipelines does."""
    names = collections.Counter(path.name for path in MODULES)
    twice = {"__init__.py", "__main__.py", "worker.py", "job_service.py"}
    assert {name for name, count in names.items() if count > 1} <= twice


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_module_is_readable_in_one_sitting(path):
    source = path.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 350
    assert ast.get_docstring(ast.parse(source)), "a module says what it is for"
    assert path.name not in ("utils.py", "common.py", "helpers.py")


SBERT_BEAM = {
    "__init__": {"__getattr__", "__dir__"},
    "__main__": set(),
    "command": {"main"},
    "job_service": set(),
    "packages": {"import_own_packages", "check_packages"},  # which packages are imported, and nothing of what they do
    "worker": set(),
}


def test_sbert_beam_holds_no_logic():
    """It has the public names and the entry points; what they do is in the other packages."""
    assert {path.stem for path in (ROOT / "sbert_beam").glob("*.py")} == SBERT_BEAM.keys()
    for stem, functions in SBERT_BEAM.items():
        tree = ast.parse((ROOT / "sbert_beam" / f"{stem}.py").read_text(encoding="utf-8"))
        defined = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda)]
        assert {getattr(node, "name", "lambda") for node in defined} == functions
        assert not any(isinstance(node, ast.ClassDef) for node in defined)


@pytest.mark.parametrize("path", TEST_MODULES, ids=module_name)
def test_no_test_module_is_imported(path):
    """What tests share is in modules that are no tests: importing a test module would run its tests twice."""
    others = [name for name in imported_modules(path) if name.startswith("tests.")]
    assert not [name for name in others if name.split(".")[-1].startswith("test_") and module_path(name)]


def test_the_checks_see_imports(tmp_path):
    path = tmp_path / "module.py"
    path.write_text("import apache_beam.io\nfrom pipelines.cli import main\n\ndef f():\n    import torch\n")
    assert imported_packages(path) == {"apache_beam", "pipelines", "torch"}
    assert imported_modules(path) == {"apache_beam.io", "pipelines.cli", "pipelines.cli.main", "torch"}


def test_the_checks_see_cycles():
    assert find_cycle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert set(find_cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}})) == {"a", "b", "c"}
