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


def store(name: str, result: dict[str, Any]) -> None:
    """Writes a result where the README's table is made from."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))
    print(f"wrote {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")
