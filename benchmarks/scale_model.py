"""What the jobs take at sizes that were not run: tasks, bytes shuffled, memory, hours and a price.

    python -m benchmarks.scale_model

Computes them from the constants in results/scale.json, which benchmarks.scale measured, sets the prediction beside
runs that the constants do not come from, and writes the tables of docs/scaling.md.
"""

import dataclasses
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import growth
from benchmarks.growth import cosines
from benchmarks.measure import RESULTS
from transforms.neighbors.route_rows import MAX_PROBES

DOCUMENT = Path(__file__).parents[1] / "docs" / "scaling.md"
SECTION = re.compile(r"(<!-- (\w+): [^\n]* -->\n).*?(<!-- end of \2 -->)", re.DOTALL)
SIZES = (1_000_000, 100_000_000, 10_000_000_000)
JOBS = ("embed", "mine exact", "mine routed", "cluster kmeans", "cluster leiden")
MEASURED_DIM, DIM = 64, 384
TWO_LEVEL_ROWS = 1_000_000  # the run that the cost of leiden in two levels is fitted to
GIB = 2**30
MAX_ROWS = 2**32 - 1  # of one job that ranks rows


@dataclasses.dataclass(frozen=True)
class Prices:
    """What an engine charges. Examples, of the order of a public cloud's list: put in your own."""

    vcpu_hour: float = 0.056
    gpu_hour: float = 0.35
    shuffled_gb: float = 0.011
    cores_per_gpu: float = 100.0  # cores of this machine that a GPU replaces in encoding: assumed, not measured


EXAMPLE = Prices()


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a job takes."""

    tasks: float
    shuffled_bytes: float
    worker_gib: float
    cpu_hours: float
    gpu_hours: float = 0.0  # instead of the encoder's share of cpu_hours

    def price(self, prices: Prices) -> float:
        """All on processors."""
        return self.cpu_hours * prices.vcpu_hour + self.shuffled_bytes / 1e9 * prices.shuffled_gb


def load() -> dict[str, Any]:
    """What was measured."""
    result: dict[str, Any] = json.loads((RESULTS / "scale.json").read_text(encoding="utf-8"))
    result["encode"] = json.loads((RESULTS / "encode.json").read_text(encoding="utf-8"))
    return result


class Model:
    """The constants, from the two smaller runs of a job; of exact mining from its smallest."""

    def __init__(self, result: dict[str, Any]) -> None:
        self._result = result
        self.cosine_s = {int(dim): seconds for dim, seconds in result["kernels"]["cosine_s"].items()}
        self.tokens = result["encode"]["speed"][-1]["tokens_mean"]
        self.token_s = result["kernels"]["token_s"]
        self.base_gib = result["embed-10000"]["start_mib"] / 1024
        self.encoder_gib = 0.1 + result["encode"]["memory"]["added_mib_beyond_output"] / 1024
        self.jobs = [job for job in JOBS if f"{job}-100000" in result]
        self._fits = {job: self._fit(job) for job in self.jobs}

    def _compared(self, job: str, rows: float, dim: int) -> float:
        """Seconds of the comparisons; those of clustering are bare products, and part of what a row costs."""
        return 0.0 if job.startswith("cluster") else cosines(job, rows) * self.cosine_s[dim]

    def _fit(self, job: str) -> tuple[float, float]:
        """Seconds to start, and for each row, comparisons aside."""
        if job == "cluster leiden" and f"{job}-{TWO_LEVEL_ROWS}" in self._result:  # smaller runs have one level
            start = self.run("embed", 10_000)["cpu_s"]
            return start, max(self.run(job, TWO_LEVEL_ROWS)["cpu_s"] - start, 0) / TWO_LEVEL_ROWS
        sizes = (10_000,) if job == "mine exact" else (10_000, 100_000)
        left = [self.run(job, rows)["cpu_s"] - self._compared(job, rows, MEASURED_DIM) for rows in sizes]
        if len(sizes) == 1:
            start = self.run("embed", 10_000)["cpu_s"]
            return start, max(left[0] - start, 0) / sizes[0]
        row_s = max((left[1] - left[0]) / (sizes[1] - sizes[0]), 0)
        return left[0] - row_s * sizes[0], row_s

    def fitted_sizes(self, job: str) -> tuple[int, ...]:
        """The sizes whose CPU time the constants come from; leiden has one level at the smaller ones."""
        if job == "cluster leiden":
            return (10_000, 100_000, TWO_LEVEL_ROWS)
        return (10_000,) if job == "mine exact" else (10_000, 100_000)

    def run(self, job: str, rows: int) -> dict[str, Any]:
        """What was measured of a job at a size."""
        found: dict[str, Any] = self._result[f"{job}-{rows}"]
        return found

    def cpu_s(self, job: str, rows: float, dim: int) -> float:
        """Without the encoder. What a row costs is taken to grow with the width of vectors: an upper bound."""
        start, row_s = self._fits[job]
        return start + row_s * rows * dim / MEASURED_DIM + self._compared(job, rows, dim)

    def largest(self, job: str) -> int:
        """The rows of the largest run of a job."""
        return max(run["rows"] for run in self._result.values() if run.get("job") == job)

    def shuffled(self, job: str, rows: float, seen: int = 100_000) -> float:
        """Bytes if all tasks of a step are in one bundle, by what each step sent for a row at `seen` rows."""
        run = self.run(job, seen)
        moved = {step: size for step, (_, size) in run["shuffles"].items() if not step.endswith(TASKS)}
        fixed = sum(size for step, size in moved.items() if FIXED.search(step))
        return fixed + (sum(moved.values()) - fixed) / run["rows"] * rows + growth.count_tasks(job, rows) * TASK_BYTES

    def shuffled_at_most(self, job: str, rows: float) -> float:
        """Bytes with a bundle for each task, which matters for the candidates of exact mining."""
        in_one_bundle = self.shuffled(job, rows, self.largest(job))
        return max(in_one_bundle, growth.candidate_bytes(rows)) if job == "mine exact" else in_one_bundle

    def worker_gib(self, job: str, rows: float, dim: int) -> float:
        """The peak of the worker that needs most."""
        encoder = self.encoder_gib if job == "embed" else 0.0
        return self.base_gib + encoder + growth.worker_bytes(job, rows, dim) / GIB

    def cost(self, job: str, rows: float, dim: int = DIM, prices: Prices = EXAMPLE) -> Cost:
        """All of a job."""
        encoding = rows * self.tokens * self.token_s / 3600 if job == "embed" else 0.0
        return Cost(
            growth.count_tasks(job, rows),
            self.shuffled_at_most(job, rows),
            self.worker_gib(job, rows, dim),
            encoding + self.cpu_s(job, rows, dim) / 3600,
            encoding / prices.cores_per_gpu,
        )

    def exact_rows(self, cpu_hours: float, dim: int = DIM) -> float:
        """How many rows exact mining does in so many hours of one core."""
        return math.sqrt(2 * cpu_hours * 3600 / self.cosine_s[dim])


# Steps whose bytes depend on clusters, cells or the size of a sample, and not on the rows.
FIXED = re.compile(
    r"AllSamples|Samples$|AllSums|Sizes|Audit|AllRouted|AllBlocks|AllStored|AllTallies|MicroLabels|Done$"
)
TASKS = ("/Spread", "/SpreadGroups", "/SpreadRuns", "/SpreadGathered", "/SpreadBlocks", "/SpreadMined")
TASK_BYTES = 120  # of an element that names a task, about


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.2g}"


def shuffles_table(model: Model) -> str:
    lines = ["| job | step | elements per 1,000 rows | bytes per row |", "|---|---|---|---|"]
    for job in (*model.jobs, "search"):
        run = model.run(job, 100_000)
        for step, (elements, size) in run["shuffles"].items():
            if size:
                per_row = "fixed" if FIXED.search(step) else f"{size / run['rows']:.3g}"
                lines.append(f"| {job} | {step} | {1000 * elements / run['rows']:.3g} | {per_row} |")
    return "\n".join(lines)


def driver_table(model: Model) -> str:
    lines = [
        "| job | rows | largest side input | handed to one worker in one piece | read on the driver |",
        "|---|---|---|---|---|",
    ]
    for job in model.jobs:
        run = model.run(job, 100_000)
        side, gathered = (_largest(run[name]) for name in ("side_inputs", "gathered"))
        lines.append(f"| {job} | {run['rows']:,} | {side} | {gathered} | {run['driver_read_bytes'] / 1e6:.2f} MB |")
    return "\n".join(lines)


def _largest(sizes: dict[str, int]) -> str:
    step = max(sizes, key=lambda name: sizes[name], default="")
    if not sizes.get(step):
        return "none"
    return f"{sizes[step] / 1e6:.2f} MB ({step})"


def check_table(model: Model, result: dict[str, Any]) -> str:
    lines = [
        "| job | rows | CPU s predicted | measured | MB shuffled predicted | measured | peak MiB measured |",
        "|---|---|---|---|---|---|---|",
    ]
    for job in model.jobs:
        for rows in (10_000, 100_000, 1_000_000):
            if f"{job}-{rows}" in result:
                run = model.run(job, rows)
                moved = sum(size for _, size in run["shuffles"].values())
                known = rows in model.fitted_sizes(job)
                lines.append(
                    f"| {job} | {rows:,} | {'(fitted)' if known else f'{model.cpu_s(job, rows, MEASURED_DIM):.1f}'} "
                    f"| {run['cpu_s']:.1f} | {model.shuffled(job, rows) / 1e6:.2f} | {moved / 1e6:.2f} "
                    f"| {run['peak_mib']:.0f} |"
                )
    reports = [run for run in result.values() if run.get("job") == "report"]  # no pipeline, and no model of it
    lines += [f"| report | {run['rows']:,} | | {run['cpu_s']:.1f} | | | {run['peak_mib']:.0f} |" for run in reports]
    return "\n".join(lines)


def sizes_table(model: Model) -> str:
    lines = [
        "| job | rows | tasks | GB shuffled at most | GiB per worker | core hours | GPU hours for encoding "
        "| price on cores |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for job in model.jobs:
        for rows in SIZES:
            cost = model.cost(job, rows)
            gpu = _short(cost.gpu_hours) if cost.gpu_hours else ""
            past = " (past one job)" if rows > MAX_ROWS and job != "embed" else ""
            lines.append(
                f"| {job} | {rows:,}{past} | {cost.tasks:,.0f} | {_short(cost.shuffled_bytes / 1e9)} "
                f"| {_short(cost.worker_gib)} | {_short(cost.cpu_hours)} | {gpu} | {cost.price(EXAMPLE):,.2f} |"
            )
    return "\n".join(lines)


def exact_table(model: Model) -> str:
    lines = [
        "| rows | exact: core hours | routed: core hours | times less | routed files on disk |",
        "|---|---|---|---|---|",
    ]
    for rows in (100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000):
        exact, routed = (model.cost(job, rows).cpu_hours for job in ("mine exact", "mine routed"))
        disk = 2 * rows * (16 + 4 * MAX_PROBES + 4 * DIM) / 1e9  # routed, then grouped
        lines.append(
            f"| {rows:,} | {_short(exact)} | {_short(routed)} | {_short(exact / routed)} | {_short(disk)} GB |"
        )
    lines += [
        "",
        f"Exact mining does {model.exact_rows(10):,.0f} rows in ten core hours, "
        f"and {model.exact_rows(1000):,.0f} in a thousand.",
    ]
    return "\n".join(lines)


def machine_line(model: Model, result: dict[str, Any]) -> str:
    machine, encode = result["machine"], result["encode"]
    there = encode["speed"][-1]["rows"]["sbert-beam"]["tokens_per_s"]
    return "\n".join(
        [
            f"Measured on one core of {machine['cpu']} with Beam {machine['apache-beam']}: "
            f"{1 / model.token_s:,.0f} tokens per second of the default model,",
            f"{1 / model.cosine_s[DIM] / 1e6:,.0f} million cosines per second of {DIM} dimensions "
            f"({1 / model.cosine_s[MEASURED_DIM] / 1e6:,.0f} million of {MEASURED_DIM}).",
            f"The processor of the encoder's own benchmark ({encode['machine']['cpu']}) does "
            f"{there * model.token_s:.2f} times the tokens.",
        ]
    )


def render(text: str) -> str:
    """The document with its tables as the stored results have them."""
    result = load()
    model = Model(result)
    tables: dict[str, Callable[[], str]] = {
        "machine": lambda: machine_line(model, result),
        "shuffles": lambda: shuffles_table(model),
        "driver": lambda: driver_table(model),
        "check": lambda: check_table(model, result),
        "sizes": lambda: sizes_table(model),
        "exact": lambda: exact_table(model),
    }
    return SECTION.sub(lambda match: f"{match[1]}\n{tables[match[2]]()}\n\n{match[3]}", text)


if __name__ == "__main__":
    DOCUMENT.write_text(render(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
