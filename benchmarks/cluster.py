"""Clusters against gold topics and against BERTopic, k-means, HDBSCAN and sentence-transformers' communities.

    python -m benchmarks.cluster --data DATA --vectors FILE.npy [--cache FOLDER]

DATA holds topic_sets/, newsgroups20/ and reuters21578/; FILE.npy is what benchmarks.mine --vectors has kept. Needs the
extra `bench`. The vectors of the sets are made with the default model, and kept with --cache. Takes about half an hour.
"""

import argparse
import json
import math
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import hdbscan
import numpy as np
import torch
from bertopic import BERTopic
from sentence_transformers.util import community_detection
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from benchmarks.measure import machine, measure_sections, memory_mib
from benchmarks.topic_sets import load_sets, vectors_of
from sbert_core.clusters.graph import NeighborGraph, find_graph
from sbert_core.clusters.graph_clustering import cluster_graph
from sbert_core.numbering import number_labels

NEIGHBORS, MIN_SIZE = 32, 5
HDBSCAN_ROWS = (5_000, 10_000, 20_000)
LARGE = 100_000


def cluster_default(graph: NeighborGraph, vectors: np.ndarray) -> np.ndarray:
    """Our default algorithm, as the cluster job runs it."""
    return number_labels(cluster_graph(graph, vectors)[1], MIN_SIZE)


def cluster_bertopic(texts: list[str], vectors: np.ndarray) -> np.ndarray:
    """BERTopic with its defaults on the same vectors."""
    return np.array(BERTopic(calculate_probabilities=False).fit_transform(texts, vectors)[0])


def cluster_communities(vectors: np.ndarray) -> np.ndarray:
    labels = np.full(len(vectors), -1)
    for number, rows in enumerate(
        community_detection(torch.from_numpy(vectors), threshold=0.75, min_community_size=10)
    ):
        labels[rows] = number
    return labels


def measure_quality(data: Path, cache: Path | None) -> list[dict[str, Any]]:
    """Agreement with gold topics, the number of clusters unknown to all but k-means."""
    results = []
    for name, texts, truth in load_sets(data):
        vectors = vectors_of(name, texts, cache)
        kinds = len(np.unique(truth))
        contestants = {
            "sbert-beam": lambda v=vectors: cluster_default(find_graph(v, NEIGHBORS), v),
            "BERTopic": lambda t=texts, v=vectors: cluster_bertopic(t, v),
            "k-means, true k": lambda v=vectors, k=kinds: KMeans(k, n_init=1, random_state=0).fit_predict(v),
            "sentence-transformers communities": lambda v=vectors: cluster_communities(v),
        }
        entry: dict[str, Any] = {"set": name, "rows": len(texts), "gold": kinds}
        for contestant, run in contestants.items():
            cpu = time.process_time()
            labels = run()
            entry[contestant] = {
                "ari": adjusted_rand_score(truth, labels),
                "nmi": normalized_mutual_info_score(truth, labels),
                "clusters": int(labels.max()) + 1,
                "noise_share": float((labels < 0).mean()),
                "cpu_s": time.process_time() - cpu,
            }
            print(name, contestant, entry[contestant], flush=True)
        results.append(entry)
    return results


def measure_speed(vectors_file: Path) -> dict[str, Any]:
    """Our default from a neighbour graph at 100,000 rows, and HDBSCAN at sizes it can do, extrapolated."""
    vectors = np.load(vectors_file)[:LARGE]
    times = []
    for rows in HDBSCAN_ROWS:
        cpu = time.process_time()
        hdbscan.HDBSCAN(min_cluster_size=15, min_samples=5, core_dist_n_jobs=1).fit(vectors[:rows].astype(np.float64))
        times.append(time.process_time() - cpu)
        print("hdbscan", rows, times[-1], flush=True)
    exponent, constant = np.polyfit(np.log(HDBSCAN_ROWS), np.log(times), 1)
    expected = math.exp(constant + exponent * math.log(len(vectors)))
    command = [sys.executable, "-m", "benchmarks.cluster", "--once", str(vectors_file)]
    ours = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    return {
        "rows": len(vectors),
        "hdbscan": [{"rows": rows, "cpu_s": cpu} for rows, cpu in zip(HDBSCAN_ROWS, times, strict=True)],
        "hdbscan_exponent": float(exponent),
        "hdbscan_expected_cpu_s": expected,
        "sbert-beam": ours,
        "share_of_hdbscan": ours["cpu_s"] / expected,
    }


def run_once(vectors_file: str) -> dict[str, float]:
    """The clustering alone, from a graph that is there, in a process of its own."""
    vectors = np.load(vectors_file)[:LARGE]
    graph = find_graph(vectors, NEIGHBORS)
    cpu = time.process_time()
    labels = cluster_default(graph, vectors)
    return {"cpu_s": time.process_time() - cpu, "clusters": int(labels.max()) + 1, "peak_mib": memory_mib("VmHWM")}


def main() -> None:
    """Measures everything and stores benchmarks/results/cluster.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of data sets; see benchmarks/README.md")
    parser.add_argument("--cache", type=Path, help="folder to keep vectors in")
    parser.add_argument(
        "--vectors", type=Path, help="the vectors that benchmarks.mine keeps, for the speed at 100,000 rows"
    )
    parser.add_argument("--only", help="measure only this section of the stored result")
    parser.add_argument("--once", help="only cluster the vectors of this file, and print what it took")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if arguments.once:
        print(json.dumps(run_once(arguments.once)))
        return
    if arguments.data is None or not arguments.data.is_dir() or arguments.vectors is None:
        sys.exit(
            "give the folder of data sets with --data DIR and the vectors with --vectors; see benchmarks/README.md"
        )
    sections = {
        "machine": lambda: machine("torch", "scikit-network", "hdbscan", "scikit-learn", "bertopic"),
        "quality": lambda: measure_quality(arguments.data, arguments.cache),
        "speed": lambda: measure_speed(arguments.vectors),
    }
    measure_sections("cluster", sections, arguments.only)


if __name__ == "__main__":
    main()
