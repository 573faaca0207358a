"""What reaches a worker: the source distribution Beam builds from `--setup_file ./setup.py`."""

import importlib.metadata
import os
import subprocess
import sysconfig
import tarfile
import venv
from pathlib import Path

import pytest
from apache_beam.runners.portability.stager import Stager
from packaging.requirements import Requirement

import sbert_core

ROOT = Path(__file__).parents[1]
PACKAGES = ("sbert_core", "transforms", "pipelines")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> Path:
    """The file Beam stages, built by Beam's own code."""
    return Path(Stager._build_setup_package(str(ROOT / "setup.py"), str(tmp_path_factory.mktemp("sdist"))))


def test_contents(sdist):
    with tarfile.open(sdist) as archive:
        names = {Path(*Path(member.name).parts[1:]) for member in archive if member.isfile()}
    tops = {name.parts[0] for name in names}
    assert {*PACKAGES, "setup.py", "README.md", "LICENSE"} <= tops
    assert not tops & {"tests", "benchmarks", "demo"}
    shipped = {name for name in names if name.parts[0] in PACKAGES}
    here = {path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file()}
    assert shipped == {path for path in here if "__pycache__" not in path.parts}


def test_installs_and_imports_in_a_clean_environment(sdist, tmp_path):
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    here = Path(sysconfig.get_path("purelib"))

    def run(*arguments: str, **variables: str) -> str:
        environment = {**clean, **variables}
        done = subprocess.run([python, *arguments], capture_output=True, text=True, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    # Lent for the build alone, so that nothing is downloaded: this environment's setuptools.
    (tmp_path / "tools").mkdir()
    for path in (*here.glob("setuptools*"), here / "_distutils_hack"):
        (tmp_path / "tools" / path.name).symlink_to(path)
    run(
        *("-m", "pip", "install", "--no-deps", "--no-build-isolation", "--no-index", str(sdist)),
        PYTHONPATH=str(tmp_path / "tools"),
    )
    # The dependencies are borrowed too, behind the clean environment's own packages on the path.
    site = Path(run("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "borrowed.pth").write_text(str(here))
    for package in PACKAGES:
        origin = run("-c", f"import {package}; print({package}.__file__)").strip()
        assert Path(origin).is_relative_to(site)
    version = subprocess.run([python.parent / "sbert-beam", "--version"], capture_output=True, text=True, env=clean)
    assert version.stdout.strip() == f"sbert-beam {sbert_core.__version__}", version.stderr


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
    wanted = {r.name.lower().replace("_", "-") for r in requirements if str(r.marker) not in optional}
    assert wanted <= pinned


def test_version_is_the_changelogs_newest():
    headings = [line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")]
    assert headings[0].split()[1] == sbert_core.__version__ == importlib.metadata.version("sbert-beam")
