"""Mining against sentence-transformers, faiss and the bare matrix product, and how it grows.

    python -m benchmarks.mine --data DATA [--vectors FILE.npy]

DATA holds topic_sets/, debian_packages/ and english_sentences/. Their vectors are made with the default model, which
takes about twenty minutes; with --vectors they are kept in a file for the next time. The rest takes about half an hour.
"""

import argparse
import json
import logging
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from sentence_transformers.util import paraphrase_mining_embeddings

from benchmarks.measure import machine, measure_sections, memory_mib, race
from pipelines import mine
from pipelines.mine_options import MineOptions
from sbert_beam import SentenceEncoder
from sbert_core.data.schema import AddedColumns
from sbert_core.neighbors import topk
from sbert_core.neighbors.cosine import TILE_ROWS
from sbert_core.neighbors.in_memory import find_neighbors, mine_paraphrases

ROWS = 200_000
SIZES = (10_000, 20_000, 50_000, 100_000)
PEER_ROWS = 50_000  # the peers are measured up to here
THRESHOLD, TOP_K, NEIGHBORS = 0.75, 100, 32


def load_vectors(data: Path, cache: Path | None) -> np.ndarray:
    """Vectors (n, 384) of real short texts in random order, each text once."""
    if cache and cache.exists():
        return np.load(cache)
    paths = [*sorted((data / "topic_sets").glob("*.parquet")), data / "debian_packages/debian_synopses.parquet"]
    texts = [text for path in paths for text in pq.read_table(path)["text"].to_pylist()]
    more = pq.read_table(data / "english_sentences/english_1m.parquet")["text"]
    texts = list(dict.fromkeys(texts + more.take(pa.array(range(0, 1_000_000, 10))).to_pylist()))
    order = np.random.default_rng(0).permutation(len(texts))[:ROWS]
    vectors = SentenceEncoder.load("default").encode([texts[row] for row in order])
    if cache:
        np.save(cache, vectors)
    return vectors


def bare_product(vectors: torch.Tensor) -> None:
    """Every pair's dot product once, and nothing else: the lower bound of the time."""
    tile = torch.empty(TILE_ROWS, TILE_ROWS)
    for i in range(0, len(vectors), TILE_ROWS):
        for j in range(i, len(vectors), TILE_ROWS):
            left, right = vectors[i : i + TILE_ROWS], vectors[j : j + TILE_ROWS]
            if len(left) == len(right) == TILE_ROWS:
                torch.mm(left, right.T, out=tile)
            else:
                left @ right.T


def faiss_flat(vectors: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    return index.search(vectors, k)


def faiss_ivf(vectors: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    lists = int(4 * math.sqrt(len(vectors)))
    quantizer = faiss.IndexFlatIP(vectors.shape[1])
    index = faiss.IndexIVFFlat(quantizer, vectors.shape[1], lists, faiss.METRIC_INNER_PRODUCT)
    index.train(vectors[: 40 * lists])
    index.add(vectors)
    index.nprobe = 16
    return index.search(vectors, k)


def pairs_found(scores: np.ndarray, indices: np.ndarray) -> set[tuple[int, int]]:
    """The pairs with at least the minimum score in a result of faiss."""
    rows, places = np.nonzero((scores >= THRESHOLD) & (indices >= 0))
    others = indices[rows, places]
    return {(min(a, b), max(a, b)) for a, b in zip(rows.tolist(), others.tolist(), strict=True) if a != b}


def compare_threshold(vectors: np.ndarray) -> dict[str, Any]:
    """Pairs over a threshold: CPU time on one thread at growing sizes, and whether all find the same."""
    sizes = []
    for size in SIZES:
        part, found = vectors[:size], {}

        def run(name: str, search: Any, part: np.ndarray = part, found: dict[str, Any] = found) -> Any:
            def call() -> None:
                found[name] = search(part)

            return call

        contestants = {
            "sbert-beam": run("sbert-beam", lambda part: mine_paraphrases(part, min_score=THRESHOLD, top_k=TOP_K)),
            "bare product": run("bare product", lambda part: bare_product(torch.from_numpy(part))),
        }
        if size <= PEER_ROWS:
            contestants |= {
                "sentence-transformers": run("peer", lambda part: paraphrase_mining_embeddings(torch.from_numpy(part))),
                "faiss flat": run("flat", lambda part: faiss_flat(part, TOP_K)),
                "faiss IVF": run("ivf", lambda part: faiss_ivf(part, TOP_K)),
            }
        times = race(contestants, 5 if size <= 20_000 else 1 if size == PEER_ROWS else 3)
        ours = found["sbert-beam"]
        pairs = set(zip(ours.first.tolist(), ours.second.tolist(), strict=True))
        mine_s = times["sbert-beam"]["cpu_s"]
        entry = {"rows": size, "pairs": len(pairs), **times}
        entry["cpu_ratio"] = {name: each["cpu_s"] / mine_s for name, each in times.items() if name != "sbert-beam"}
        entry["of_bare_product"] = mine_s / times["bare product"]["cpu_s"]
        if size <= PEER_ROWS:
            peer = {(min(a, b), max(a, b)) for score, a, b in found["peer"] if score >= THRESHOLD}
            entry["pairs_unlike_sentence_transformers"] = len(pairs ^ peer)
            entry["pairs_unlike_faiss_flat"] = len(pairs ^ pairs_found(*found["flat"]))
            entry["faiss_ivf_recall"] = len(pairs_found(*found["ivf"]) & pairs) / len(pairs)
        if size == SIZES[0]:
            entry["pairs_unlike_float64"] = len(pairs ^ brute_force(part))
        sizes.append(entry)
        print(json.dumps(entry))
    logs = [(math.log(entry["rows"]), math.log(entry["sbert-beam"]["cpu_s"])) for entry in sizes]
    exponent = float(np.polyfit(*zip(*logs, strict=True), 1)[0])
    return {"threshold": THRESHOLD, "top_k": TOP_K, "threads": 1, "sizes": sizes, "exponent": exponent}


def brute_force(vectors: np.ndarray) -> set[tuple[int, int]]:
    """Pairs over the threshold in float64; as many per row as there are."""
    exact = vectors.astype(np.float64)
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    rows, others = np.nonzero(np.triu(exact @ exact.T >= THRESHOLD, 1))
    return set(zip(rows.tolist(), others.tolist(), strict=True))


def compare_neighbors(vectors: np.ndarray) -> dict[str, Any]:
    """The nearest 32 of every row, without a threshold."""
    sizes = []
    for size, rounds in ((20_000, 5), (50_000, 3)):
        part = vectors[:size]
        times = race(
            {
                "sbert-beam": lambda part=part: find_neighbors(part, NEIGHBORS),
                "bare product": lambda part=part: bare_product(torch.from_numpy(part)),
                "faiss flat": lambda part=part: faiss_flat(part, NEIGHBORS + 1),
            },
            rounds,
        )
        ratio = times["sbert-beam"]["cpu_s"] / times["bare product"]["cpu_s"]
        sizes.append({"rows": size, **times, "of_bare_product": ratio})
    return {"k": NEIGHBORS, "threads": 1, "sizes": sizes}


def measure_exact_scores(vectors: np.ndarray) -> dict[str, Any]:
    """The nearest 32 of every row with exact scores, and with zeros in place of them: what the scores cost."""
    sizes = []
    for size in (20_000, 50_000):
        part = vectors[:size]

        def without(part: np.ndarray = part) -> None:
            with mock.patch.object(topk, "exact_scores", lambda _left, _right, rows, _: np.zeros(len(rows))):
                find_neighbors(part, NEIGHBORS)

        times = race({"with": lambda part=part: find_neighbors(part, NEIGHBORS), "without": without}, 5)
        sizes.append({"rows": size, **times, "cpu_ratio": times["with"]["cpu_s"] / times["without"]["cpu_s"]})
    return {"k": NEIGHBORS, "threads": 1, "sizes": sizes}


def write_corpus(folder: Path, vectors: np.ndarray) -> str:
    """The vectors as Parquet files with ids and texts."""
    folder.mkdir(parents=True)
    field = AddedColumns().fields(vectors.shape[1])[0]
    for start in range(0, len(vectors), 8192):
        part = np.ascontiguousarray(vectors[start : start + 8192])
        table = pa.table(
            {
                "id": [f"r{start + row:07}" for row in range(len(part))],
                "text": [f"text number {start + row}" for row in range(len(part))],
                "embedding": pa.FixedSizeListArray.from_arrays(pa.array(part.reshape(-1)), type=field.type),
            }
        )
        pq.write_table(table, folder / f"part-{start:07}.parquet", compression="none", use_dictionary=["text"])
    return f"{folder}/*.parquet"


def run_once(arguments: str) -> dict[str, Any]:
    """One mine job in a process of its own: options as JSON in, figures as JSON out."""
    options = json.loads(arguments)
    cpu, wall = time.process_time(), time.perf_counter()
    mine.run(MineOptions(**options))
    folder = Path(options["output"])
    return {
        "cpu_s": time.process_time() - cpu,
        "wall_s": time.perf_counter() - wall,
        "peak_mib": memory_mib("VmHWM"),
        "audit": json.loads((folder / "neighbors/_manifest.json").read_text())["audit"],
    }


def start(options: dict[str, Any]) -> dict[str, Any]:
    """Runs a job in a new process with one thread per worker, and returns its figures."""
    with tempfile.TemporaryDirectory() as output:
        command = [sys.executable, "-m", "benchmarks.mine", "--once", json.dumps({**options, "output": output})]
        # One core for each worker: the job gives each of them as many threads as there are cores for it.
        cores = sorted(os.sched_getaffinity(0))[: options.get("workers", 1)]
        done = subprocess.run(
            ["taskset", "-c", ",".join(map(str, cores)), *command], check=True, capture_output=True, text=True
        )
    figures = json.loads(done.stdout.splitlines()[-1])
    print(options, figures)
    return figures


def measure_workers(vectors: np.ndarray, scratch: Path) -> dict[str, Any]:
    """The exact job at 100,000 rows with one worker process and with two, and both on a corpus of one row."""
    corpus, one_row = write_corpus(scratch / "100k", vectors[:100_000]), write_corpus(scratch / "one", vectors[:1])
    walls: dict[tuple[str, int], list[float]] = {}
    for _ in range(3):
        for name, pattern in (("job", corpus), ("start_up", one_row)):
            for workers in (1, 2):
                walls.setdefault((name, workers), []).append(start({"input": pattern, "workers": workers})["wall_s"])
    medians = {key: statistics.median(value) for key, value in walls.items()}
    result: dict[str, Any] = {"rows": 100_000}
    for workers in (1, 2):
        result[f"wall_s_{workers}_workers"] = medians["job", workers]
        result[f"start_up_s_{workers}_workers"] = medians["start_up", workers]
    net = [medians["job", workers] - medians["start_up", workers] for workers in (1, 2)]
    return {**result, "speed_up": medians["job", 1] / medians["job", 2], "speed_up_start_up_aside": net[0] / net[1]}


def measure_memory(vectors: np.ndarray, scratch: Path) -> dict[str, Any]:
    """The peak of an exact job at three sizes."""
    runs = []
    for size in (25_000, 50_000, 100_000):
        figures = start({"input": write_corpus(scratch / f"memory-{size}", vectors[:size])})
        runs.append({"rows": size, "peak_mib": figures["peak_mib"], "cpu_s": figures["cpu_s"]})
    return {"k": NEIGHBORS, "sizes": runs}


def main() -> None:
    """Measures everything and stores benchmarks/results/mine.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of data sets; see benchmarks/README.md")
    parser.add_argument("--vectors", type=Path, help="file to keep the vectors in")
    parser.add_argument("--only", help="measure only this section of the stored result")
    parser.add_argument("--once", help="only run one job with these options (JSON), and print what it took")
    arguments = parser.parse_args()
    logging.getLogger().setLevel(logging.CRITICAL)
    if arguments.once:
        print(json.dumps(run_once(arguments.once)))
        return
    if not (arguments.vectors and arguments.vectors.exists()) and (
        arguments.data is None or not arguments.data.is_dir()
    ):
        sys.exit("give the folder of data sets with --data DIR (make bench DATA=DIR); see benchmarks/README.md")
    vectors = load_vectors(arguments.data, arguments.vectors)
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        sections = {
            "machine": lambda: machine("torch", "sentence-transformers", "faiss-cpu", "apache-beam"),
            "threshold": lambda: compare_threshold(vectors),
            "neighbors": lambda: compare_neighbors(vectors),
            "exact scores": lambda: measure_exact_scores(vectors),
            "memory": lambda: measure_memory(vectors, scratch),
            "workers": lambda: measure_workers(vectors, scratch),
        }
        measure_sections("mine", sections, arguments.only)


if __name__ == "__main__":
    main()
