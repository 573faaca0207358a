"""The drill of faults in its long form: many exercises with random seeds, their counts and every failure.

    python -m benchmarks.faults [--minutes 18] [--seed N]

Exercises are done in turn until the time is over. `tests/test_faults.py` is the short form.
"""

import argparse
import collections
import json
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")  # as in tests/conftest.py; processes inherit it

from benchmarks.measure import RESULTS, machine
from tests import fault_files, fault_inputs, fault_processes
from tests.fault_drill import Record

Exercise = Callable[[int, Path, Path], Record]

EXERCISES: dict[str, tuple[Exercise, int]] = {  # and how often in a round
    "kill": (fault_processes.kill, 3),
    "full disk": (fault_processes.full_disk, 2),
    "small file system": (fault_processes.small_file_system, 1),
    "damaged output": (fault_files.damaged_output, 3),
    "damaged work files": (fault_files.damaged_work, 2),
    "two at once": (fault_processes.race, 1),
    "hostile manifest": (fault_files.hostile_manifest, 3),
    "hostile model": (fault_inputs.hostile_model, 4),
    "random input": (fault_inputs.random_rows, 6),
}


def can_mount(folder: Path) -> bool:
    """Whether this user may mount a file system."""
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)]
    try:
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return False
    except OSError:
        return False
    subprocess.run(["umount", str(folder)], check=True)
    return True


def drill(minutes: float, seed: int) -> dict[str, Any]:
    """Does exercises round by round; returns the counts, and the failures with their seeds."""
    rng = random.Random(seed)
    records: list[Record] = []
    base = Path(tempfile.mkdtemp(prefix="faults-"))
    (base / "mount").mkdir()
    left_out = {} if can_mount(base / "mount") else {"small file system": "no right to mount one"}
    end = time.monotonic() + 60 * minutes
    try:
        while time.monotonic() < end:
            for name, (exercise, times) in EXERCISES.items():
                for _ in range(0 if name in left_out else times):
                    if time.monotonic() < end:
                        records.append(_attempt(name, exercise, rng.randrange(2**31), base))
    finally:
        shutil.rmtree(base)
    counts = collections.Counter(record.exercise for record in records)
    failed = [record for record in records if record.failures]
    lost = collections.Counter(record.exercise for record in failed)
    return {
        "seed": seed,
        "minutes": minutes,
        "machine": machine("apache-beam", "pyarrow", "torch"),
        "exercises": {name: {"attempted": n, "survived": n - lost[name]} for name, n in counts.items()},
        "exit_codes": _exit_codes(records),
        "left_out": left_out,
        "slowest_seconds": max(record.seconds for record in records),
        "failures": [
            {"exercise": record.exercise, "seed": record.seed, "done": record.done, "failures": record.failures}
            for record in failed
        ],
    }


def _exit_codes(records: list[Record]) -> dict[str, dict[str, int]]:
    """How often the disturbed commands ended with which code."""
    found: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for record in records:
        if record.exit_code is not None:
            found[record.exercise][str(record.exit_code)] += 1
    return {name: dict(sorted(codes.items())) for name, codes in found.items()}


def _attempt(name: str, exercise: Exercise, seed: int, base: Path) -> Record:
    folder = base / f"attempt-{seed}"
    folder.mkdir()
    try:
        record = exercise(seed, folder, base)
    except Exception as error:  # a fault of the drill itself, or a job that failed undisturbed
        record = Record(name, seed, failures=[f"{type(error).__name__}: {error}"[-600:]])
    finally:
        shutil.rmtree(folder)
    told = f"{name} {seed}: {record.done[:100]}: {record.failures or 'survived'}"
    print(told.encode(errors="backslashreplace").decode(), flush=True)
    return record


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=18.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    given = parser.parse_args()
    found = drill(given.minutes, given.seed)
    (RESULTS / "faults.json").write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps({name: found[name] for name in ("exercises", "failures")}, indent=2))
