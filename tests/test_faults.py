"""The drill of faults in its short form: jobs that are killed, starved, damaged, raced and deceived lose nothing.

`python -m benchmarks.faults` is the long form, with more of each and random seeds.
"""

import json
import random
import shutil
import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sbert_core.data.manifest import digest_of
from tests import fault_files, fault_inputs, fault_processes
from tests.fault_drill import Outcome, Record, commands, finished_output, readers, run_here

pytestmark = pytest.mark.slow

needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes in /proc")


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    """The inputs of the exercises, which are made once."""
    return tmp_path_factory.mktemp("drill")


def survived(record: Record) -> bool:
    assert not record.failures, f"{record.exercise}, seed {record.seed}, {record.done}: {record.failures}"
    return True


# Kills


@needs_proc
@pytest.mark.parametrize(
    ("seed", "job", "workers", "whom", "number"),
    [
        (3, "embed", 1, "driver", signal.SIGKILL),
        (5, "mine", 2, "worker", signal.SIGKILL),
    ],
)
def test_kill(tmp_path, base, seed, job, workers, whom, number):
    assert survived(fault_processes.kill(seed, tmp_path, base, job, workers, whom, number))


# Full disks


@pytest.mark.parametrize(("seed", "job", "size"), [(1, "embed", 20), (2, "embed", 2500), (1, "mine", 900)])
def test_full_disk(tmp_path, base, seed, job, size):
    record = fault_processes.full_disk(seed, tmp_path, base, job, size)
    assert survived(record)
    assert record.exit_code in (1, 2)


# Damaged files


@pytest.mark.parametrize("seed", [3])
def test_damaged_output(tmp_path, base, seed):
    assert survived(fault_files.damaged_output(seed, tmp_path, base))


@pytest.mark.parametrize("seed", [0, 1])
def test_damaged_work_files(tmp_path, base, seed):
    assert survived(fault_files.damaged_work(seed, tmp_path, base))


def copied(base: Path, tmp_path: Path) -> tuple[Path, Path]:
    source, intact = finished_output(base)
    return source, shutil.copytree(intact, tmp_path / "out")


def test_verify_finds_a_manifest_in_other_bytes(tmp_path, base):
    _, out = copied(base, tmp_path)
    with (out / "pairs/_manifest.json").open("a") as file:
        file.write("\n")
    outcome = run_here("verify", str(out))
    assert outcome.code == 1
    assert "same content, other bytes" in outcome.output


# Two at once


@needs_proc
def test_two_at_once(tmp_path, base):
    assert survived(fault_processes.race(1, tmp_path, base))


# Hostile manifests


@pytest.mark.parametrize("seed", [2, 112])
def test_hostile_manifest(tmp_path, base, seed):
    assert survived(fault_files.hostile_manifest(seed, tmp_path, base))


HOSTILE = [
    ("embeddings", ("id_column",), "\ud800", "verify"),
    ("embeddings", ("id_column",), "topic", "report"),
    ("embeddings", ("n_tokens",), None, "report"),
    ("pairs", ("settings", "min_score"), "x", "verify"),
    ("pairs", ("settings",), {}, "report"),
    ("neighbors", ("settings", "top_k"), [], "verify"),
    ("neighbors", ("settings",), {}, "graph"),
    ("neighbors", ("audit",), {"recall": 0.5, "interval_95": 3}, "mine again"),
    ("neighbors", ("audit",), {}, "mine again"),
    ("clusters/summary", ("quality",), {"silhouette": [1]}, "report"),
    ("clusters/summary", ("quality",), {"silhouette": "x"}, "cluster again"),
    ("clusters/summary", ("clusters",), None, "report"),
]


@pytest.mark.parametrize(("dataset", "place", "value", "job"), HOSTILE)
def test_an_unexpected_value(tmp_path, base, dataset, place, value, job):
    """The digest is right: only the value itself is wrong."""
    source, out = copied(base, tmp_path)
    path = out / dataset / "_manifest.json"
    content = json.loads(path.read_text())
    del content["digest"]
    target = content
    for name in place[:-1]:
        target = target[name]
    target[place[-1]] = value
    path.write_text(json.dumps({**content, "digest": digest_of(content)}))
    arguments = {"verify": ["verify", str(out)], **readers(out, tmp_path / "elsewhere")}
    arguments |= {f"{name} again": again for name, again in commands(source, out).items()}
    outcome = run_here(*arguments[job])
    assert not outcome.faults(0, 1, 2)


def test_a_damaged_record_of_a_run_does_not_stop_the_report(tmp_path, base):
    _, out = copied(base, tmp_path)
    (out / "embeddings/_run.json").write_text("{")
    assert run_here("report", "--input", str(out)).code == 0


# Random inputs and models


@pytest.mark.parametrize("seed", [3, 11, 16, 22, 43])
def test_random_input(tmp_path, base, seed):
    assert survived(fault_inputs.random_rows(seed, tmp_path, base))


@pytest.mark.parametrize("kind", [pa.uuid(), pa.decimal64(15, 3)], ids=str)
def test_ids_that_arrow_cannot_compare(tmp_path, kind):
    rng = random.Random(1)
    table = pa.table(
        {
            "id": fault_inputs.random_column(rng, kind, 40, nulls=False),
            "text": [f"ticket {row} " + "again " * (row % 9) for row in range(40)],
        }
    )
    (tmp_path / "in").mkdir()
    pq.write_table(table, tmp_path / "in/part.parquet")
    out = tmp_path / "out"
    for job, arguments in commands(tmp_path / "in", out).items():
        graph = ["cluster", "--input", str(out), "--output", str(out)]
        outcome = run_here(*(graph if job == "cluster" else arguments))
        assert outcome.code == 0, outcome.errors
    assert run_here("verify", str(out)).code == 0
    assert run_here("report", "--input", str(out)).code == 0


@pytest.mark.parametrize("seed", [0, 9])
def test_hostile_model(tmp_path, base, seed):
    assert survived(fault_inputs.hostile_model(seed, tmp_path, base))


# The drill itself


def test_the_drill_finds_failures():
    assert not Outcome(2, "", "sbert-beam embed: no such file\n").faults(1, 2)
    assert Outcome(2, "", "one\ntwo\n").faults(1, 2)
    assert Outcome(1, "", "Traceback (most recent call last):\n").faults(1, 2)
    assert Outcome(None, "", "").faults(0, 1, 2)
    assert Outcome(0, "", "surprise\n").faults(0)
