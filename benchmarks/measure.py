"""Fair timing on a noisy machine: interleaved rounds, medians, CPU time beside wall time."""

import importlib.metadata
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"


def race(contestants: dict[str, Callable[[], Any]], rounds: int) -> dict[str, dict[str, float]]:
    """Runs every contestant once per round, in turn, and returns the median seconds of each."""
    cpu: dict[str, list[float]] = {name: [] for name in contestants}
    wall: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds):
        for name, run in contestants.items():
            cpu_start, wall_start = time.process_time(), time.perf_counter()
            run()
            cpu[name].append(time.process_time() - cpu_start)
            wall[name].append(time.perf_counter() - wall_start)
            print(f"  round {number + 1}/{rounds} {name:28} cpu {cpu[name][-1]:7.2f} s  wall {wall[name][-1]:7.2f} s")
    return {
        name: {"cpu_s": statistics.median(cpu[name]), "wall_s": statistics.median(wall[name])} for name in contestants
    }


def gemm_peak(size: int = 2048) -> float:
    """GFLOP per CPU second of a bare square float32 matrix product: what this processor can do at best."""
    left, right = torch.randn(size, size), torch.randn(size, size)
    best = 0.0
    for _ in range(12):
        start = time.process_time()
        torch.mm(left, right)
        best = max(best, 2 * size**3 / (time.process_time() - start) / 1e9)
    return best


def memory_mib(field: str) -> float:
    """A figure of Linux about this process: VmRSS now, VmHWM at the peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def machine(*packages: str) -> dict[str, Any]:
    """What a figure depends on."""
    cpu = platform.processor()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), cpu)
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "python": platform.python_version(),
        **{package: importlib.metadata.version(package) for package in packages},
    }


def measure_sections(name: str, sections: dict[str, Callable[[], Any]], only: str | None = None) -> None:
    """Measures each section and stores it at once in results/`name`.json; `only` leaves the others as they are."""
    path = RESULTS / f"{name}.json"
    for section, measure in sections.items():
        if only in (None, section):
            measured = measure()
            print(f"{section}: {json.dumps(measured, indent=2)}")
            # Read only now: another process may have stored its own section meanwhile.
            stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
            stored[section] = measured
            path.write_text(json.dumps({key: stored[key] for key in sections if key in stored}, indent=2) + "\n")
