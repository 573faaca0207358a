"""The engines and the jobs by name: the flags that ask for an engine, and the servers that some of them need."""

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
SECONDS = 60


@dataclasses.dataclass(frozen=True)
class Services:
    """Where the job service and the pool of workers listen, and the package that workers are to install."""

    jobs: str
    workers: str
    wheel: Path
    folder: Path  # what workers install goes below it
    process: int  # of both; its children are the workers


@dataclasses.dataclass(frozen=True)
class Engine:
    """An engine: the flags that ask for it, and what it needs besides."""

    flags: tuple[str, ...]  # {program} is what the variable says, {jobs} the address of the job service
    variable: str | None = None  # must say where the engine's program is, if that is not a Python package
    external: bool = False  # runs in workers that get our package from the job
    repeats: bool = False  # runs bundles again, whose counters then say what the first run left to do
    loses_worker: bool = False  # a test kills a worker; the same command is then run again

    def flags_with(self, services: Services | None) -> tuple[str, ...]:
        """The flags as they are given to a job."""
        program = os.environ[self.variable] if self.variable else ""
        jobs = services.jobs if services else ""
        flags = [flag.format(program=program, jobs=jobs) for flag in self.flags]
        if services:
            flags += ["--environment_type=EXTERNAL", f"--environment_config={services.workers}"]
            flags += [f"--extra_package={services.wheel}"]
        return tuple(flags)


ENGINES = {
    "FnApiRunner": Engine(("--runner=FnApiRunner",)),
    "FnApiRunner, 2 processes": Engine(("--workers=2",)),
    "one bundle per element, some lost or run twice": Engine(
        ("--runner=tests.engines.many_bundles.ManyBundlesRunner",),
        repeats=True,
    ),
    "PortableRunner, 2 external workers": Engine(
        ("--runner=PortableRunner", "--job_endpoint={jobs}"),
        external=True,
    ),
    "PortableRunner, a worker killed": Engine(
        ("--runner=PortableRunner", "--job_endpoint={jobs}"),
        external=True,
        repeats=True,
        loses_worker=True,
    ),
    "Dataflow's graph, executed here": Engine(
        (
            "--runner=tests.engines.dataflow_graph.DataflowGraphRunner",
            # Names that a project and its buckets might have: a dry run checks how they are spelled, and no more.
            "--project=a-project",
            "--region=europe-west1",
            "--temp_location=gs://a-bucket/temp",
            "--staging_location=gs://a-bucket/staging",
            "--sdk_location=container",
        )
    ),
    "Prism": Engine(
        ("--runner=PrismRunner", "--prism_location={program}"),
        variable="PRISM_BINARY",
        external=True,
    ),
    "Flink": Engine(
        ("--runner=FlinkRunner", "--flink_job_server_jar={program}", "--flink_master=[local]", "--parallelism=2"),
        variable="FLINK_JOB_SERVER_JAR",
        external=True,
    ),
}


@dataclasses.dataclass(frozen=True)
class Job:
    """A job to prove: the command that does it, and which of what the command writes it is about."""

    command: str
    folders: tuple[str, ...] = ("",)


JOBS = {
    "embed": Job("run", ("embeddings", "rejected")),
    "mine, exact": Job("exact"),
    "mine, routed": Job("routed"),
    "mine, cross-encoder": Job("scored"),
    "cluster, leiden": Job("run", ("clusters",)),
    "cluster, two levels": Job("two levels"),
    "cluster, k-means": Job("kmeans"),
    "cluster, hdbscan": Job("hdbscan"),
    "cluster, existing": Job("existing"),
    "search": Job("search"),
    "run": Job("run"),
}


def build_wheel(folder: Path) -> Path:
    """Builds our package from a copy of its source: building leaves files behind."""
    source = folder / "source"
    for package in ("sbert_core", "transforms", "pipelines"):
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md", "MANIFEST.in", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-index"]
    subprocess.run([*build, "--no-deps", "--no-build-isolation", "--wheel-dir", folder, source], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


@contextlib.contextmanager
def running_services(folder: Path) -> Iterator[Services]:
    """Starts the job service and the pool of workers in `folder`, and stops them and all workers in the end.

    The job service is ours. Workers find what is installed beside our package, but not our package: editable
    installs work by .pth files, which `python -S` does not read, and the working directory is not the checkout.
    """
    wheel = build_wheel(folder)
    isolated = [sys.executable, "-S", "-P"]
    boot = folder / "boot"
    boot.write_text(f'#!/bin/sh\nexec {" ".join(isolated)} {HERE / "worker_boot.py"} "$@"\n')
    boot.chmod(0o755)
    installed = [path for path in sys.path if Path(path).name == "site-packages"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(installed), "OMP_NUM_THREADS": "1"}
    with (folder / "services.log").open("wb") as log:
        process = subprocess.Popen(
            [*isolated, HERE / "job_service.py", boot, ROOT],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # workers are in its group, so that none is left over
        )
    try:
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the job service did not start: {(folder / 'services.log').read_text()}")
        yield Services(**json.loads(line), wheel=wheel, folder=folder, process=process.pid)
    finally:
        process.stdin.close()  # tells it to stop
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
