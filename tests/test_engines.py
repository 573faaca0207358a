"""The jobs on every engine: the same corpus, the same bytes.

Prism and Flink are programs of their own: PRISM_BINARY and FLINK_JOB_SERVER_JAR say where they are. ENGINES_RECORD
names a file that is told what was proven. Tests share servers and results: give this file to one process.
"""

import contextlib
import importlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from benchmarks.engines import render
from pipelines.cli import main
from tests.engines.catalog import ENGINES, JOBS, Services, running_services
from tests.engines.jobs import Commands
from tests.engines.many_bundles import SEED_VARIABLE, ManyBundlesRunner
from tests.engines.outputs import contents
from tests.engines.record import proving
from tests.engines.sentences import ROWS, SHARDS, make_sentences
from transforms.dataset.files import commit

pytestmark = pytest.mark.engines

PORTABLE = "PortableRunner, 2 external workers"


@pytest.fixture(scope="session")
def commands(tmp_path_factory) -> Commands:
    return Commands(tmp_path_factory.mktemp)


@pytest.fixture(scope="session")
def services(tmp_path_factory):
    with running_services(tmp_path_factory.mktemp("services")) as running:
        yield running


@pytest.fixture(scope="session")
def flags_of(request) -> Callable[[str], tuple[str, ...]]:
    """The flags of an engine by its name; starts what it needs, and skips the test if that is not there."""

    def flags(name: str) -> tuple[str, ...]:
        engine = ENGINES[name]
        if engine.variable and engine.variable not in os.environ:
            pytest.skip(f"{engine.variable} is not set")
        return engine.flags_with(request.getfixturevalue("services") if engine.external else None)

    return flags


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("engine", [name for name, engine in ENGINES.items() if not engine.loses_worker])
def test_same_bytes(engine, job, commands, flags_of):
    with proving(engine, job):
        flags = flags_of(engine)
        expected, found = (commands.output(JOBS[job].command, each) for each in ((), flags))
        for folder in JOBS[job].folders:
            counters = not ENGINES[engine].repeats
            assert contents(found / folder, counters) == contents(expected / folder, counters)
            assert contents(found / folder)


def test_the_jobs_have_something_to_do(commands):
    def manifest(command: str, folder: str) -> dict:
        return json.loads((commands.output(command) / folder / "_manifest.json").read_text())

    assert manifest("run", "embeddings")["rows"] == ROWS - 1
    assert manifest("run", "rejected")["rows"] == 1
    assert len(manifest("run", "embeddings")["parts"]) == 2 * SHARDS
    assert len(manifest("exact", "neighbors")["parts"]) > 2
    assert manifest("exact", "duplicates")["groups"] > 1
    assert manifest("routed", "neighbors")["audit"]["neighbors"] > 100
    figures = json.loads((commands.output("routed") / "neighbors/_run.json").read_text())
    assert figures["counters"]["mine/groups"] > 3
    for command in ("run", "kmeans", "two levels", "hdbscan", "existing"):
        assert manifest(command, "clusters/summary")["clusters"] > 1
    assert [manifest(command, "clusters/summary")["levels"] for command in ("run", "two levels")] == [1, 2]


def test_the_runner_of_many_bundles_does_what_it_says(commands, flags_of, monkeypatch):
    flags = flags_of("one bundle per element, some lost or run twice")
    found = []
    for seed in ("1", "2"):
        monkeypatch.setenv(SEED_VARIABLE, seed)
        found.append(commands.output("exact", (*flags, f"--job_name=seed-{seed}")))
        assert ManyBundlesRunner.happened["bundles"] > 200
        assert min(ManyBundlesRunner.happened.values()) > 20
    expected = commands.output("exact")
    first, second, undisturbed = (contents(folder, counters=False) for folder in (*found, expected))
    assert first == second == undisturbed


def test_workers_have_our_package_from_the_wheel(services: Services, flags_of, tmp_path):
    packages = ("sbert_core", "transforms", "pipelines")
    with beam.Pipeline(options=PipelineOptions(list(flags_of(PORTABLE)))) as root:
        # All of it in a lambda, which is pickled whole: workers cannot import this module.
        _ = (
            root
            | beam.Create(packages)
            | beam.Reshuffle()
            | beam.Map(lambda name: commit(f"{tmp_path}/{name}", importlib.import_module(name).__file__.encode()))
        )
    for package in packages:
        origin = Path((tmp_path / package).read_text())
        assert origin.is_relative_to(services.folder)
        assert origin.match(f"site-*/{package}/__init__.py")


def test_a_workers_failure_is_told_in_one_line(services: Services, flags_of, commands, tmp_path, capsys):
    sentences = make_sentences(tmp_path / "sentences")
    last = pq.read_table(sentences / "part-3.parquet")
    ids = ["r003", *last["id"].to_pylist()[1:]]
    pq.write_table(last.set_column(0, "id", pa.array(ids)), sentences / "part-3.parquet")
    told = []
    for number, flags in enumerate([(), flags_of(PORTABLE)]):
        output = tmp_path / f"out{number}"
        command = ["embed", "--input", str(sentences), "--output", str(output), "--model", str(commands.model), *flags]
        assert main(command) == 1
        told += [line for line in capsys.readouterr().err.splitlines() if " of 124 rows" not in line]
        assert not (output / "embeddings/_manifest.json").exists()
    reason = "ids are not unique: part-0.parquet row 3 and part-3.parquet row 0 have the same id"
    assert told == [f"sbert-beam embed: {reason}. Fix the duplicates, or see --id_column"] * 2


def test_the_record_tells_what_was_last_proven(tmp_path, monkeypatch):
    path = tmp_path / "record.json"
    monkeypatch.setenv("ENGINES_RECORD", str(path))

    def prove(job: str, error: BaseException | None = None) -> None:
        with contextlib.suppress(AssertionError, pytest.skip.Exception), proving("Prism", job):
            if error:
                raise error

    skip = pytest.skip.Exception("PRISM_BINARY is not set")
    prove("embed", skip)
    prove("mine, exact")
    prove("mine, exact", skip)
    prove("run")
    prove("run", AssertionError())
    record = json.loads(path.read_text())
    today = record["Prism"]["mine, exact"]["date"]
    text = render("Before\n<!-- engines: made -->\nold\n<!-- end of engines -->\nAfter\n", record)
    start, *lines, end = text.splitlines()
    assert (start, end) == ("Before", "After")
    assert lines[2] == "| engine | " + " | ".join(JOBS) + " |"
    (row,) = [line for line in lines if line.startswith("| Prism |")]
    cells = dict(zip(JOBS, row.split(" | ")[1:], strict=True))
    assert cells["embed"] == "skipped: PRISM_BINARY is not set"
    assert (cells["mine, exact"], cells["mine, routed"]) == (today, "not tried")
    assert cells["run"].startswith("failed: AssertionError")
    assert f"Passed on {today} with apache-beam {beam.version.__version__}, " in text
    assert render(text, record) == text
    with pytest.raises(SystemExit, match="no place for the table"):
        render("Before", record)
