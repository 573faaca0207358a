"""What was proven on which engine, when and with which versions; see benchmarks/engines.py for the table."""

import contextlib
import datetime
import importlib.metadata
import json
import os
import platform
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

PACKAGES = ("apache-beam", "torch", "pyarrow", "sbert-beam")


@contextlib.contextmanager
def proving(engine: str, job: str) -> Iterator[None]:
    """Notes how the block ends in the file that ENGINES_RECORD names, if it names one."""
    try:
        yield
    except pytest.skip.Exception as skipped:
        note(engine, job, "skipped", str(skipped))
        raise
    except BaseException as error:
        note(engine, job, "failed", type(error).__name__)
        raise
    note(engine, job, "passed")


def note(engine: str, job: str, outcome: str, reason: str | None = None) -> None:
    """Adds an outcome to the record; a job that is skipped today is still proven as it last was."""
    if "ENGINES_RECORD" not in os.environ:
        return
    path = Path(os.environ["ENGINES_RECORD"])
    versions = {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in PACKAGES}
    outcome_now = {"outcome": outcome, "date": datetime.date.today().isoformat(), "versions": versions}
    if reason is not None:
        outcome_now["reason"] = reason
    with FileLock(Path(tempfile.gettempdir(), "engines-record.lock")):  # tests run in several processes
        record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        known = record.setdefault(engine, {})
        if outcome != "skipped" or known.get(job, {}).get("outcome") != "passed":
            known[job] = outcome_now
        path.write_text(json.dumps(record, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def note_requests(store: str, counts: dict[str, dict[int, dict[str, int]]]) -> None:
    """Stores the requests of jobs, by the number of blocks and their kind, beside the record."""
    if "ENGINES_RECORD" not in os.environ:
        return
    path = Path(os.environ["ENGINES_RECORD"]).with_name("requests.json")
    path.write_text(json.dumps({store: counts}, indent=2) + "\n", encoding="utf-8")
