"""What the checks on reading and writing cost: every job with them and without them, and what verify costs.

    python -m benchmarks.checks --data DATA [--work FOLDER] [--only SECTION]

DATA holds english_sentences/english_1m.parquet (text). Takes about fifteen minutes.

With and without run in turn, in one process on one thread, after a warm-up; which comes first alternates. A ratio is
the median over rounds of CPU time with checks / CPU time without, children included, and its quartiles are stored
beside it; `noise_ratio` is that of two runs with checks. Where a job is long, noise is larger than what the checks
cost. So the section `inside` has the CPU time inside the checks themselves, of further runs with a clock in each.
Checksums of pages are computed by Arrow while it reads and writes; their part of that time is the one that
`page_checksums` has for vectors, where it is largest.
"""

import argparse
import contextlib
import logging
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from benchmarks.checked_jobs import LARGE, QUERY, SIZES, Bench
from benchmarks.measure import machine, measure_sections
from benchmarks.unchecked import clock, compare, medians, timed, without_checks
from pipelines import report, verify
from pipelines.cli import main as command
from pipelines.report_options import ReportOptions
from pipelines.verify_options import VerifyOptions
from sbert_core.errors import DataError
from transforms.dataset.published import BEAM_DATASETS, read_manifest
from transforms.dataset.write_parts import one_batch, write_parquet

MODEL_ROWS = 2_000  # of the embed job with the default model
CLUSTER_ROWS = 5_000  # of the cluster and the report job


def measure_embed(bench: Bench, model: str, rows: int, rounds: int) -> dict[str, Any]:
    """Embedding into an empty folder."""
    output = bench.work / "fresh"
    bench.sentences(rows)
    found = compare(lambda: bench.embed(rows, output, model), rounds, lambda: shutil.rmtree(output, ignore_errors=True))
    return {"rows": rows, **found}


def measure_rerun(bench: Bench, rounds: int) -> dict[str, Any]:
    """Embedding and mining again when all of it is done: little but checks is left to do."""
    output = bench.mined(SIZES[0])
    inputs, done = bench.sentences(LARGE), str(bench.embedded(LARGE))
    return {
        "embed": {"rows": LARGE, **compare(lambda: bench.embed(LARGE, Path(done), bench.static), rounds)},
        "mine": {"rows": SIZES[0], **compare(lambda: bench.mine(SIZES[0], output), rounds)},
        "embed command": {
            "rows": LARGE,
            **compare_commands(["embed", "--input", inputs, "--output", done, "--model", bench.static]),
        },
    }


def measure_into(bench: Bench, job: str, rows: int, rounds: int) -> dict[str, Any]:
    """Mining or clustering into an empty folder."""
    output = bench.work / "fresh"
    bench.embedded(rows) if job == "mine" else bench.mined(rows)
    run = getattr(bench, job)
    return {
        "rows": rows,
        **compare(lambda: run(rows, output), rounds, lambda: shutil.rmtree(output, ignore_errors=True)),
    }


def measure_report(bench: Bench, rows: int, rounds: int) -> dict[str, Any]:
    """The report of a corpus that is mined and clustered."""
    folder = str(bench.clustered(rows))
    return {"rows": rows, **compare(lambda: report.run(ReportOptions(input=folder)), rounds)}


def measure_search(bench: Bench, rounds: int) -> dict[str, Any]:
    """One query: in a process that has all loaded, and as the command that a user types, start-up included."""
    corpus = str(bench.embedded(LARGE) / "embeddings")
    return {
        "loaded": {"rows": LARGE, **compare(bench.search(), rounds)},
        "command": {"rows": LARGE, **compare_commands(["search", "--queries", QUERY, "--corpus", corpus])},
    }


def compare_commands(arguments: Sequence[str], rounds: int = 5) -> dict[str, Any]:
    """A whole command, start-up included, with its checks against the same without."""

    def run(switch: str) -> None:
        line = [sys.executable, "-m", "benchmarks.checks", switch, *arguments]
        subprocess.run(line, check=True, capture_output=True)

    return compare(lambda: run("--checked"), rounds, run_unchecked=lambda: run("--unchecked"))


def measure_verify(bench: Bench, rows: int, rounds: int) -> dict[str, Any]:
    """The verify job on all results of a corpus; the largest one is mined and not clustered, to save minutes."""
    output = bench.mined(rows) if rows == LARGE else bench.clustered(rows)
    runs = [timed(lambda: verify.run(VerifyOptions(output=str(output)))) for _ in range(rounds)]
    found = list(output.rglob("*.parquet"))
    return {
        "rows": rows,
        "datasets": sorted(str(path.relative_to(output)) for path in {path.parent for path in found}),
        "mb": sum(path.stat().st_size for path in found) / 1e6,
        "rounds": rounds,
        **medians(runs),
    }


def measure_inside(bench: Bench) -> dict[str, Any]:
    """Every job with a clock in each check: what its checks take as a share of the job without them."""
    small, middle, large = SIZES
    fresh = bench.work / "fresh"
    done = bench.clustered(CLUSTER_ROWS)
    ask, again = bench.search(), bench.embedded(large)

    def clear() -> None:
        shutil.rmtree(fresh, ignore_errors=True)

    clocks = {
        "embed default": clock(lambda: bench.embed(MODEL_ROWS, fresh, "default"), 3, clear),
        "embed static": clock(lambda: bench.embed(large, fresh, bench.static), 3, clear),
        f"mine {small}": clock(lambda: bench.mine(small, fresh), 3, clear),
        f"mine {middle}": clock(lambda: bench.mine(middle, fresh), 3, clear),
        "cluster": clock(lambda: bench.cluster(CLUSTER_ROWS, fresh), 3, clear),
        "report": clock(lambda: report.run(ReportOptions(input=str(done))), 3),
        "search": clock(ask, 9),
        "rerun": clock(lambda: bench.embed(large, again, bench.static), 5),
    }
    pages = measure_pages(bench)
    rows = {"embed default": MODEL_ROWS, "embed static": large, f"mine {small}": small, f"mine {middle}": middle}
    rows |= {"cluster": CLUSTER_ROWS, "report": CLUSTER_ROWS, "search": large, "rerun": large}
    for name, found in clocks.items():
        found["rows"] = rows[name]
        page_s = sum(
            found[f"{clocked}_cpu_s"] * (1 - 1 / pages[side]["cpu_ratio"])
            for side, clocked in (("read", "reading"), ("write", "writing"))
        )
        found["pages_cpu_s"] = page_s
        found["share"] = (found["checks_cpu_s"] + page_s) / (found["cpu_s"] - found["checks_cpu_s"] - page_s)
    return clocks


def measure_pages(bench: Bench) -> dict[str, Any]:
    """What page checksums and the hash cost for one part of vectors, written to and read from memory."""
    folder = bench.embedded(SIZES[0]) / "embeddings"
    path = folder / read_manifest(str(folder)).parts[0].name
    content = path.read_bytes()
    batch = one_batch(pq.read_table(path))
    jobs = {
        "write": lambda: write_parquet(batch, pa.BufferOutputStream()),
        "read": lambda: list(pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True).iter_batches()),
    }
    found: dict[str, Any] = {"mb": len(content) / 1e6}
    for name, run in jobs.items():
        found[name] = compare(run, 51)
    found["hash"] = {"cpu_s": statistics.median(timed(lambda: _hash(str(path)))[0] for _ in range(51))}
    return found


def _hash(path: str) -> None:
    with contextlib.suppress(DataError):
        BEAM_DATASETS.check_content(path, "of another file")


def main() -> None:
    """Measures everything and stores benchmarks/results/checks.json."""
    if sys.argv[1:2] in (["--checked"], ["--unchecked"]):
        with without_checks() if sys.argv[1] == "--unchecked" else contextlib.nullcontext():
            sys.exit(command(sys.argv[2:]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of data sets; see benchmarks/README.md")
    parser.add_argument("--work", type=Path, help="folder to keep corpora in")
    parser.add_argument("--only", help="measure only this section of the stored result")
    arguments = parser.parse_args()
    if arguments.data is None or not arguments.data.is_dir():
        sys.exit("give the folder of data sets with --data DIR (make bench DATA=DIR); see benchmarks/README.md")
    logging.getLogger().setLevel(logging.CRITICAL)
    os.environ["OMP_NUM_THREADS"] = "1"  # of the commands
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    pa.set_cpu_count(1)
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(arguments.data, (arguments.work or Path(scratch)).absolute())
        small, middle, large = SIZES
        sections = {
            "machine": lambda: machine("apache-beam", "torch", "pyarrow"),
            "page_checksums": lambda: measure_pages(bench),
            "inside": lambda: measure_inside(bench),
            "embed default": lambda: measure_embed(bench, "default", MODEL_ROWS, 5),
            "embed static": lambda: measure_embed(bench, bench.static, large, 5),
            f"mine {small}": lambda: measure_into(bench, "mine", small, 5),
            f"mine {middle}": lambda: measure_into(bench, "mine", middle, 5),
            "cluster": lambda: measure_into(bench, "cluster", CLUSTER_ROWS, 5),
            "report": lambda: measure_report(bench, CLUSTER_ROWS, 5),
            "search": lambda: measure_search(bench, 11),
            "rerun": lambda: measure_rerun(bench, 9),
            "verify": lambda: [measure_verify(bench, CLUSTER_ROWS, 5), measure_verify(bench, large, 5)],
        }
        measure_sections("checks", sections, arguments.only)


if __name__ == "__main__":
    main()
