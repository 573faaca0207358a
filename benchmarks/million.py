"""All jobs on real sentences: a hundred thousand, a million and two million, in one process each.

    python -m benchmarks.million --data DATA --models MODELS [--only rows-1000000] [--work FOLDER]

Embed with WordLlama's static table (256 dimensions), routed mining, the default clustering and the report, with default
options, one after the other as `sbert-beam run` does it. Of each job: CPU and wall time, and the peak of memory from
its start to its end. There are a million sentences; the second million is made of the first half of one sentence and
the second half of another. Takes about an hour.
"""

import argparse
import contextlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure import machine, measure_sections, memory_mib
from benchmarks.recipes import STATIC, Places, static
from pipelines import cluster, embed, mine, report
from pipelines.cluster_options import ClusterOptions
from pipelines.embed_options import EmbedOptions
from pipelines.mine_options import MineOptions
from pipelines.report_options import ReportOptions
from transforms.dataset.published import read_manifest

SIZES = (100_000, 1_000_000, 2_000_000)
SHARD_ROWS = 100_000


def write_sentences(folder: Path, data: Path, rows: int) -> None:
    """Distinct sentences in random order, in shards."""
    folder.mkdir(parents=True)
    texts = pq.read_table(data / "english_sentences/english_1m.parquet", columns=["text"])["text"].to_pylist()
    rng = np.random.default_rng(0)
    chosen = [texts[row] for row in rng.permutation(len(texts))[:rows]]
    seen = set(chosen)
    while len(chosen) < rows:
        first, second = (texts[int(row)].split() for row in rng.integers(0, len(texts), 2))
        text = " ".join(first[: (len(first) + 1) // 2] + second[len(second) // 2 :])
        if text not in seen:
            seen.add(text)
            chosen.append(text)
    for start in range(0, rows, SHARD_ROWS):
        part = chosen[start : start + SHARD_ROWS]
        ids = [f"s{row:07}" for row in range(start, start + len(part))]
        pq.write_table(pa.table({"id": ids, "text": part}), folder / f"part-{start:07}.parquet")


def jobs_of(folder: Path, model: Path) -> dict[str, Callable[[], Any]]:
    """The jobs in their order, as `run --index routed` calls them."""
    out = str(folder / "out")
    return {
        "embed": lambda: embed.run(EmbedOptions(input=[str(folder / "sentences")], output=out, model=str(model))),
        "mine": lambda: mine.run(MineOptions(input=f"{out}/embeddings", output=out, index="routed")),
        "cluster": lambda: cluster.run(ClusterOptions(input=out, output=out)),
        "report": lambda: report.run(ReportOptions(input=out)),
    }


def measured(run: Callable[[], Any]) -> dict[str, float]:
    """CPU and wall time of a job, and the peak of memory while it runs."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak is that from here on
    cpu, wall = time.process_time(), time.perf_counter()
    run()
    return {
        "cpu_s": time.process_time() - cpu,
        "wall_s": time.perf_counter() - wall,
        "peak_mib": memory_mib("VmHWM"),
    }


def run_once(folder: Path, model: Path) -> dict[str, Any]:
    """All jobs in this process."""
    with Path(os.devnull).open("w") as sink, contextlib.redirect_stderr(sink):
        figures: dict[str, Any] = {name: measured(run) for name, run in jobs_of(folder, model).items()}
    figures["audit"] = read_manifest(str(folder / "out/neighbors")).audit
    clusters = read_manifest(str(folder / "out/clusters/summary"))
    figures["clusters"], figures["levels"] = clusters.clusters, clusters.levels
    figures["resolution"] = clusters.resolution
    return figures


def start(data: Path, model: Path, rows: int, work: Path) -> dict[str, Any]:
    """Runs all jobs in a new process on one core."""
    folder = work / f"rows-{rows}"
    if not (folder / "sentences").exists():
        write_sentences(folder / "sentences", data, rows)
    shutil.rmtree(folder / "out", ignore_errors=True)
    command = [sys.executable, "-m", "benchmarks.million", "--once", str(folder), str(model)]
    done = subprocess.run(["taskset", "-c", "0", *command], check=True, stdout=subprocess.PIPE, text=True)
    return {"rows": rows, **json.loads(done.stdout.splitlines()[-1])}


def main() -> None:
    """Measures all sizes and stores benchmarks/results/million.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of data sets; see benchmarks/README.md")
    parser.add_argument("--models", type=Path, help="folder of models; see benchmarks/README.md")
    parser.add_argument("--work", type=Path, help="folder to keep sentences and results in")
    parser.add_argument("--only", help="measure only this section of the stored result")
    parser.add_argument("--once", nargs=2, type=Path, help="only run all jobs in this process: folder, model")
    arguments = parser.parse_args()
    logging.getLogger().setLevel(logging.CRITICAL)
    if arguments.once:
        print(json.dumps(run_once(*arguments.once)))
        return
    if not (arguments.data and arguments.models):
        sys.exit("give the folders of data sets and models with --data DIR --models DIR; see benchmarks/README.md")
    with tempfile.TemporaryDirectory() as scratch:
        work = arguments.work or Path(scratch)
        model = work / "model"
        if not model.exists():
            static(STATIC[1], Places(data=arguments.data, models=arguments.models, work=work)).save(str(model))
        sections = {
            "machine": lambda: machine("apache-beam", "torch", "pyarrow"),
            **{f"rows-{rows}": lambda rows=rows: start(arguments.data, model, rows, work) for rows in SIZES},
        }
        measure_sections("million", sections, arguments.only)


if __name__ == "__main__":
    main()
