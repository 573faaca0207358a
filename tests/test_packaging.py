"""What is shipped: the source distribution that Beam builds from setup.py, and the packages that install from it."""

import importlib.metadata
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from apache_beam.runners.portability.stager import Stager
from packaging.requirements import Requirement

import sbert_core
from tests.tiny_models import make_transformer

ROOT = Path(__file__).parents[1]
PACKAGES = ("sbert_beam", "sbert_core", "transforms", "pipelines")
CLASHING = ("transforms", "pipelines")
TIMEOUT_SECONDS = 180


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> Path:
    """The file that Beam stages, built by Beam's own code."""
    return Path(Stager._build_setup_package(str(ROOT / "setup.py"), str(tmp_path_factory.mktemp("sdist"))))


@pytest.fixture(scope="module")
def installed(sdist, tmp_path_factory) -> Path:
    """A folder with the installed wheel and nothing else; the dependencies are those of this environment."""
    target = tmp_path_factory.mktemp("installed")
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", "install", *offline, "--target", target, sdist], check=True)
    return target


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A project with folders of the names of our packages, which fail to import."""
    folder = tmp_path_factory.mktemp("project")
    for name in CLASHING:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(f"raise RuntimeError('the {name} of another project')\n")
    (folder / "in.txt").write_text("the quick fox\nthe lazy dog\na man\n")
    make_transformer(folder / "model")
    return folder


def run(*command: str | Path, path: list[Path], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs a program with a Python path in front of this environment's packages."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, path))
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=TIMEOUT_SECONDS, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.mark.slow
def test_contents(sdist, installed):
    here = {path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file()}
    here = {path for path in here if "__pycache__" not in path.parts}
    assert {path.suffix for path in here} == {".py", ".css", ".js", ".j2"}
    with tarfile.open(sdist) as archive:
        names = {Path(*Path(member.name).parts[1:]) for member in archive if member.isfile()}
    tops = {name.parts[0] for name in names}
    assert {*PACKAGES, "setup.py", "README.md", "LICENSE"} <= tops
    assert not tops & {"tests", "benchmarks", "demo"}
    assert {name for name in names if name.parts[0] in PACKAGES} == here
    files = {path.relative_to(installed) for path in installed.rglob("*") if path.is_file()}
    assert {path for path in files if path.parts[0] in PACKAGES and "__pycache__" not in path.parts} == here


@pytest.mark.slow
def test_an_installed_wheel_is_imported(installed, tmp_path):
    code = f"import importlib; print(*(importlib.import_module(name).__file__ for name in {PACKAGES}), sep='\\n')"
    done = run(sys.executable, "-c", code, path=[installed], cwd=tmp_path)
    assert [Path(line).parent for line in done.stdout.splitlines()] == [installed / name for name in PACKAGES]
    for command in ([installed / "bin" / "sbert-beam"], [sys.executable, "-m", "sbert_beam"]):
        done = run(*command, "--version", path=[installed], cwd=tmp_path)
        assert done.stdout.strip() == f"sbert-beam {sbert_core.__version__}", done.stderr


@pytest.mark.slow
def test_command_and_workers_run_beside_folders_of_the_same_names(installed, project, tmp_path):
    """Two worker processes encode; the report is rendered from the files of the wheel."""
    command = installed / "bin" / "sbert-beam"
    place = {"path": [project, installed], "cwd": project}
    flags = ["--model", "model", "--device", "cpu", "--workers", "2", "--slice_rows", "1"]
    done = run(command, "embed", "--input", "in.txt", "--output", tmp_path / "out", *flags, **place)
    assert done.returncode == 0, done.stderr
    done = run(sys.executable, "-m", "sbert_beam", "report", "--input", tmp_path / "out", **place)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    for asset in ("report.css", "report.js"):
        assert (installed / "sbert_core" / "report" / asset).read_text(encoding="utf-8")[:200] in page


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASHING)
def test_a_package_in_the_way_is_named(installed, tmp_path, name):
    """Imported by the user's own program, it stays what it is, and ours is not mixed with it."""
    other = tmp_path / name
    other.mkdir()
    (other / "__init__.py").write_text("")
    code = (
        "import sbert_beam\n"
        "try: sbert_beam.EncodeSentences\n"
        "except ImportError as error: print(error)\n"
        "import sys; print('torch' in sys.modules)\n"
    )
    done = run(sys.executable, "-c", code, path=[tmp_path, installed], cwd=tmp_path)
    message, has_torch = done.stdout.splitlines()
    assert message.startswith(f"{other} is in the way: sbert_beam needs its own package {name}, in {installed}. ")
    assert has_torch == "False"
    (tmp_path / "sitecustomize.py").write_text(f"import {name}\n")
    done = run(installed / "bin" / "sbert-beam", "--version", path=[tmp_path, installed], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"sbert-beam: {message}\n"


def test_no_other_distribution_owns_our_names():
    owners = importlib.metadata.packages_distributions()
    for package in PACKAGES:
        assert set(owners.get(package, ["sbert-beam"])) == {"sbert-beam"}


def test_constraints_name_every_dependency():
    pinned = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    }
    requirements = map(Requirement, importlib.metadata.requires("sbert-beam") or [])
    optional = {f'extra == "{name}"' for name in ("gcp", "aws", "umap", "bench")}
    required = {r.name.lower().replace("_", "-") for r in requirements if str(r.marker) not in optional}
    assert required <= pinned


def test_version_is_the_changelogs_newest():
    headings = [line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")]
    assert headings[0].split()[1] == sbert_core.__version__ == importlib.metadata.version("sbert-beam")
