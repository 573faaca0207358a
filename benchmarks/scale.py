"""What the jobs cost as a corpus grows: CPU time, peak memory, bytes shuffled and read on the driver, at up to a
million rows, with an encoder that costs nothing.

    python -m benchmarks.scale [--only embed-1000000] [--work FOLDER]

Each run is a process of its own, on one core, and stored at once. Takes about a quarter of an hour. What follows from
the figures is computed by benchmarks.scale_model.
"""

import argparse
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from benchmarks.measure import RESULTS, machine, memory_mib
from benchmarks.shuffles import Counts, count_moves
from pipelines import cluster, embed, mine, report, search
from pipelines.cluster_options import ClusterOptions
from pipelines.embed_options import EmbedOptions
from pipelines.mine_options import MineOptions
from pipelines.report_options import ReportOptions
from pipelines.search_options import SearchOptions
from sbert_beam import Encoded
from sbert_core.encoder.sentence_encoder import SentenceEncoder
from sbert_core.neighbors.cosine import Block, compare
from sbert_core.neighbors.topk import TopK
from transforms.encode.encode_sentences import EncodeSentences

DIM, TOPICS, CLUSTERS, TOP_K, QUERIES = 64, 200, 100, 32, 1000
SHARD_ROWS = 50_000
MIN_SCORE = 0.8
RUNS = {
    "embed": (10_000, 100_000, 1_000_000),
    "mine exact": (10_000, 100_000),
    "mine routed": (10_000, 100_000, 1_000_000),
    "cluster kmeans": (10_000, 100_000, 1_000_000),
    "cluster leiden": (10_000, 100_000, 1_000_000),  # in two levels at a million rows
    "report": (10_000, 100_000, 1_000_000),
    "search": (10_000, 100_000),
}
RESULT_FOLDERS = {
    "embed": ("embeddings", "rejected"),
    "mine exact": ("mine-exact",),
    "mine routed": ("neighbors", "pairs", "duplicates"),
    "cluster kmeans": ("clusters",),
    "cluster leiden": ("leiden",),
}


class TopicEncoder:
    """Gives a text a vector near that of one of many topics, by its hash; it costs next to nothing."""

    dim = DIM
    fingerprint = "topics"

    def __init__(self) -> None:
        self._topics = np.random.default_rng(0).normal(size=(TOPICS, DIM)).astype(np.float32)

    def encode(self, texts: list[str], **options: Any) -> Encoded:
        rng = np.random.default_rng(zlib.crc32(texts[0].encode()))
        topics = self._topics[rng.integers(0, TOPICS, len(texts))]
        vectors = topics + np.float32(0.7) * rng.standard_normal((len(texts), DIM), np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return Encoded(vectors, np.full(len(texts), 9), np.zeros(len(texts), bool))

    @classmethod
    def load(cls, model: str, **options: Any) -> "TopicEncoder":
        return cls()


def write_corpus(folder: Path, rows: int) -> None:
    """Sentences of eight words, which are as unevenly frequent as real ones are."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = np.array(["".join(word) for word in letters[rng.integers(0, 26, (50_000, 7))]])
    for start in range(0, rows, SHARD_ROWS):
        size = min(SHARD_ROWS, rows - start)
        chosen = np.minimum(rng.zipf(1.3, (size, 8)) - 1, len(words) - 1)
        texts = [" ".join(row) for row in words[chosen]]
        ids = [f"r{row:010}" for row in range(start, start + size)]
        pq.write_table(pa.table({"id": ids, "text": texts}), folder / f"part-{start:010}.parquet")


def _embed(folder: Path) -> None:
    options = EmbedOptions(input=[str(folder / "sentences")], output=str(folder))
    embed.run(options, encode=embed.make_encode(options, load=TopicEncoder.load))


def _mine(folder: Path, index: str) -> None:
    # The routed result is what cluster and report read: exact mining of a million rows takes too long here.
    output = folder if index == "routed" else folder / "mine-exact"
    options = {"input": str(folder / "embeddings"), "output": str(output), "top_k": TOP_K, "min_score": MIN_SCORE}
    mine.run(MineOptions(**options, index=index))


def _kmeans(folder: Path) -> None:
    cluster.run(ClusterOptions(input=str(folder), output=str(folder), algorithm="kmeans", k=str(CLUSTERS)))


def _leiden(folder: Path) -> None:
    cluster.run(ClusterOptions(input=str(folder), output=str(folder / "leiden")))


def _search(folder: Path) -> None:
    queries = folder / "queries.txt"
    queries.write_text("".join(f"query number {number}\n" for number in range(QUERIES)))
    options = SearchOptions(queries=str(queries), corpus=str(folder / "embeddings"), output=str(folder))
    search.run(options, encode=EncodeSentences(model="topics", load=TopicEncoder.load))


JOBS: dict[str, Callable[[Path], Any]] = {
    "embed": _embed,
    "mine exact": partial(_mine, index="exact"),
    "mine routed": partial(_mine, index="routed"),
    "cluster kmeans": _kmeans,
    "cluster leiden": _leiden,
    "report": lambda folder: report.run(ReportOptions(input=str(folder))),
    "search": _search,
}


def measure_once(job: str, rows: int, work: Path) -> dict[str, Any]:
    """One job in this process; what it works on is made before, and kept for the others."""
    folder = work / str(rows)
    if not (folder / "sentences").exists():
        write_corpus(folder / "sentences", rows)
    for name in RESULT_FOLDERS.get(job, ()):  # what is there already would be kept
        shutil.rmtree(folder / name, ignore_errors=True)
    before = memory_mib("VmRSS")
    figures, counts = measured(lambda: JOBS[job](folder))
    return {"job": job, "rows": rows, "start_mib": before, **figures, **moved(counts), "disk": disk_bytes(folder)}


def measured(run: Callable[[], Any]) -> tuple[dict[str, float], Counts]:
    """CPU and wall time and the peak of memory of a job, and what it moved."""
    cpu, wall = time.process_time(), time.perf_counter()
    with count_moves() as counts:
        run()
    figures = {
        "cpu_s": time.process_time() - cpu,
        "wall_s": time.perf_counter() - wall,
        "peak_mib": memory_mib("VmHWM"),
    }
    return figures, counts


def moved(counts: Counts) -> dict[str, Any]:
    """What was moved, fit to be stored."""
    return {
        "shuffles": {step: [each.elements, each.bytes] for step, each in counts.shuffles.items()},
        "largest_elements": {step: each.largest for step, each in counts.moved.items()},
        "files_opened": dict(counts.opened),
        "side_inputs": counts.side_inputs,
        "gathered": counts.gathered,
        "driver_read_bytes": counts.driver_bytes,
    }


def disk_bytes(folder: Path) -> dict[str, int]:
    """What the datasets below a folder take."""
    names = ("sentences", "embeddings", "clusters", "neighbors", "mine-exact/neighbors")
    sizes = {name: sum(file.stat().st_size for file in (folder / name).rglob("*.parquet")) for name in names}
    return {name: size for name, size in sizes.items() if size}


def measure_kernels() -> dict[str, Any]:
    """CPU seconds of one cosine in a comparison of two blocks, at two widths, and of one token in the encoder."""
    kernels: dict[str, Any] = {"cosine_s": {}}
    rows = 8192
    rng = np.random.default_rng(0)
    for dim in (DIM, 384):
        vectors = rng.standard_normal((2 * rows, dim), np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        ordinals = np.arange(2 * rows, dtype=np.uint32)
        left, right = (
            Block(torch.from_numpy(vectors[half]), ordinals[half]) for half in np.split(np.arange(2 * rows), 2)
        )
        best = [TopK(rows, TOP_K) for _ in range(2)]
        times = []
        for _ in range(3):
            start = time.process_time()
            compare(left, right, best[0], best[1])
            times.append(time.process_time() - start)
        kernels["cosine_s"][str(dim)] = min(times) / rows**2
    encoder = SentenceEncoder.load("default")
    texts = [
        f"parcel number {number} that i ordered last week has not arrived, where is it now" for number in range(64)
    ]
    encoder.encode(texts)
    start = time.process_time()
    encoded = encoder.encode(texts, details=True)
    kernels["token_s"] = (time.process_time() - start) / int(encoded.n_tokens.sum())
    return kernels


def store(name: str, value: Any) -> None:
    """Adds a figure to benchmarks/results/scale.json."""
    path = RESULTS / "scale.json"
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    stored[name] = value
    path.write_text(json.dumps(dict(sorted(stored.items())), indent=2) + "\n", encoding="utf-8")


def main() -> None:
    """Measures everything and stores benchmarks/results/scale.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, help="folder to keep corpora in")
    parser.add_argument("--only", help="measure only this, such as embed-1000000, machine or kernels")
    parser.add_argument("--once", help="only run one job of so many rows in this process, and print what it took")
    arguments = parser.parse_args()
    logging.getLogger().setLevel(logging.CRITICAL)
    torch.set_num_threads(1)
    if arguments.once:
        job, _, rows = arguments.once.rpartition("-")
        print(json.dumps(measure_once(job, int(rows), arguments.work)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        work = arguments.work or Path(scratch)
        if arguments.only in (None, "machine"):
            store("machine", machine("apache-beam", "torch", "pyarrow"))
        if arguments.only in (None, "kernels"):
            store("kernels", measure_kernels())
        for name in (f"{job}-{rows}" for job, sizes in RUNS.items() for rows in sizes):
            if arguments.only in (None, name):
                command = [sys.executable, "-m", "benchmarks.scale", "--once", name, "--work", str(work)]
                core = str(max(os.sched_getaffinity(0)))
                done = subprocess.run(["taskset", "-c", core, *command], check=True, capture_output=True, text=True)
                figures = json.loads(done.stdout.splitlines()[-1])
                print(name, figures, flush=True)
                store(name, figures)


if __name__ == "__main__":
    main()
