"""Routed against exact search for the 32 nearest rows: CPU time and recall, at three sizes.

    python -m benchmarks.routed --data DATA --models MODELS [--only rows-50000] [--work FOLDER]

50,000 vectors are of the default model, 384 dimensions, as in benchmarks/mine.py; 200,000 and 500,000 of WordLlama's
static table, 256 dimensions, of which fewer neighbours are near: these are harder to find. Each search is a process of
its own, on one core. `search` is the CPU time without that of the same search of 50 rows, `job` is all of it. Recall is
that of the job's own audit. How probes were chosen was tuned on 50,000 rows of both kinds; the other sizes judge it.
"""

import argparse
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import apache_beam as beam
import faiss
import numpy as np
import pyarrow.parquet as pq
import torch

from benchmarks.measure import machine, measure_sections, memory_mib
from benchmarks.mine import NEIGHBORS, load_vectors, write_corpus
from benchmarks.recipes import STATIC, Places, static
from pipelines.execute import execute, new_pipeline
from sbert_core.neighbors.in_memory import find_neighbors
from transforms.dataset.files import commit
from transforms.neighbors.exact import FindNeighbors
from transforms.neighbors.mining_plan import BlockNeighbors
from transforms.neighbors.routed import FindRoutedNeighbors

SIZES = {50_000: 3, 200_000: 1, 500_000: 1}  # and rounds
START_UP_ROWS = 50
PEER_ROWS, PEER_QUERIES = 50_000, 500


def search_once(pattern: str, index: str, audit_path: str) -> dict[str, float]:
    """One search in this process, on one thread; what it finds is counted and left."""
    torch.set_num_threads(1)
    cpu, wall = time.process_time(), time.perf_counter()
    with tempfile.TemporaryDirectory() as work:
        find = FindNeighbors(corpus=pattern, work=work, k=NEIGHBORS)
        root = new_pipeline((), workers=1)
        found = root | (find if index == "exact" else FindRoutedNeighbors(find=find))
        _ = found.neighbors | "Rows" >> beam.Map(_count_rows) | "AllRows" >> beam.CombineGlobally(sum)
        _ = found.audit | "Audit" >> beam.Map(_store_audit, audit_path)
        execute(root, lambda: "")
    return {
        "cpu_s": time.process_time() - cpu,
        "wall_s": time.perf_counter() - wall,
        "peak_mib": memory_mib("VmHWM"),
    }


def _count_rows(found: BlockNeighbors) -> int:
    return len(found.candidates)


def _store_audit(audit: Any, path: str) -> None:
    commit(path, json.dumps(audit).encode())


def start(pattern: str, index: str) -> dict[str, Any]:
    """Runs a search in a new process, and returns its figures."""
    with tempfile.TemporaryDirectory() as folder:
        audit = f"{folder}/audit.json"
        command = [sys.executable, "-m", "benchmarks.routed", "--once", pattern, index, audit]
        core = str(max(os.sched_getaffinity(0)))
        done = subprocess.run(["taskset", "-c", core, *command], check=True, capture_output=True, text=True)
        figures = {**json.loads(done.stdout.splitlines()[-1]), "audit": json.loads(Path(audit).read_text())}
    print(index, figures, flush=True)
    return figures


def compare(vectors: np.ndarray, rounds: int, scratch: Path) -> dict[str, Any]:
    """Exact and routed search of the same rows, in turn; medians."""
    corpus = write_corpus(scratch / f"rows-{len(vectors)}", vectors)
    few = write_corpus(scratch / f"few-{len(vectors)}", vectors[:START_UP_ROWS])
    runs: dict[str, list[dict[str, Any]]] = {}
    for _ in range(rounds):
        for index in ("exact", "routed"):
            runs.setdefault(index, []).append(start(corpus, index))
            runs.setdefault(f"{index} start-up", []).append(start(few, index))
    result: dict[str, Any] = {"rows": len(vectors), "dim": vectors.shape[1], "k": NEIGHBORS, "rounds": rounds}
    for index in ("exact", "routed"):
        job, start_up = (
            {key: statistics.median(run[key] for run in runs[name]) for key in ("cpu_s", "wall_s", "peak_mib")}
            for name in (index, f"{index} start-up")
        )
        result[index] = {"job": job, "search_cpu_s": job["cpu_s"] - start_up["cpu_s"]}
    result["routed"]["audit"] = runs["routed"][0]["audit"]
    result["search_ratio"] = result["routed"]["search_cpu_s"] / result["exact"]["search_cpu_s"]
    result["job_ratio"] = result["routed"]["job"]["cpu_s"] / result["exact"]["job"]["cpu_s"]
    return result


def compare_peers(vectors: np.ndarray) -> dict[str, Any]:
    """faiss's graph and inverted lists on the same rows, at the settings that first reach 0.97, and ours in memory."""
    faiss.omp_set_num_threads(1)
    torch.set_num_threads(1)
    cpu = time.process_time()
    true = find_neighbors(vectors, NEIGHBORS).indices
    result: dict[str, Any] = {"rows": len(vectors), "find_neighbors_cpu_s": time.process_time() - cpu}
    for name, effort, values in (
        ("HNSW32,Flat", "efSearch", (48, 64, 96, 128)),
        ("IVF512,Flat", "nprobe", (16, 32, 64, 96)),
    ):
        cpu = time.process_time()
        index = faiss.index_factory(vectors.shape[1], name, faiss.METRIC_INNER_PRODUCT)
        index.train(vectors)
        index.add(vectors)
        build = time.process_time() - cpu
        for value in values:
            faiss.ParameterSpace().set_index_parameter(index, effort, value)
            cpu = time.process_time()
            found = index.search(vectors, NEIGHBORS + 1)[1]
            search = time.process_time() - cpu
            rows = np.random.default_rng(0).choice(len(vectors), PEER_QUERIES, replace=False)
            recall = float(np.mean([np.isin(true[row], found[row]).mean() for row in rows]))
            figures = {effort: value, "build_cpu_s": build, "search_cpu_s": search, "recall": recall}
            print(name, figures, flush=True)
            result[name] = figures
            if recall >= 0.97:
                break
    return result


def load_static(data: Path, models: Path) -> np.ndarray:
    """The vectors (1,000,000, 256) of WordLlama in random order."""
    texts = pq.read_table(data / "english_sentences/english_1m.parquet", columns=["text"])["text"].to_pylist()
    order = np.random.default_rng(0).permutation(len(texts))
    encoder = static(STATIC[1], Places(data=data, models=models, work=models))
    return encoder.encode([texts[row] for row in order[: max(SIZES)]])


def main() -> None:
    """Measures everything and stores benchmarks/results/routed.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of data sets; see benchmarks/README.md")
    parser.add_argument("--models", type=Path, help="folder of models; see benchmarks/README.md")
    parser.add_argument("--vectors", type=Path, help="file to keep the vectors of the default model in")
    parser.add_argument("--only", help="measure only this section of the stored result")
    parser.add_argument(
        "--once", nargs=3, help="only run one search in this process: corpus, index, file for the audit"
    )
    arguments = parser.parse_args()
    logging.getLogger().setLevel(logging.CRITICAL)
    if arguments.once:
        print(json.dumps(search_once(*arguments.once)))
        return
    if not (arguments.data and arguments.models):
        sys.exit("give the folders of data sets and models with --data DIR --models DIR; see benchmarks/README.md")
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)

        def vectors_of(rows: int) -> np.ndarray:
            if rows <= PEER_ROWS:
                return load_vectors(arguments.data, arguments.vectors)[:rows]
            return load_static(arguments.data, arguments.models)[:rows]

        sections = {
            "machine": lambda: machine("torch", "faiss-cpu", "apache-beam"),
            **{
                f"rows-{rows}": lambda rows=rows, rounds=rounds: compare(vectors_of(rows), rounds, scratch)
                for rows, rounds in SIZES.items()
            },
            "peers": lambda: compare_peers(vectors_of(PEER_ROWS)),
        }
        measure_sections("routed", sections, arguments.only)


if __name__ == "__main__":
    main()
