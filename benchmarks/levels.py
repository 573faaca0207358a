"""Leiden in two levels against one level at the same resolution: agreement with gold topics, by the cluster job.

    python -m benchmarks.levels --data DATA [--cache FOLDER]

DATA is that of benchmarks/cluster.py. The sets are small enough for one level; two levels are forced on them. Takes
about ten minutes, and as many more for the vectors.
"""

import argparse
import contextlib
import logging
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from benchmarks.measure import machine, measure_sections
from benchmarks.mine import write_corpus
from benchmarks.topic_sets import load_sets, vectors_of
from pipelines import cluster, mine
from pipelines.cluster_options import ClusterOptions
from pipelines.mine_options import MineOptions
from sbert_core.clusters import two_levels
from transforms.dataset.published import read_dataset

RESOLUTIONS = (1.0, 8.0)


def cluster_once(folder: Path, levels: int, resolution: float, truth: np.ndarray) -> dict[str, Any]:
    """One cluster job with so many levels; rows are in the order of their ids."""
    limit = 1 if levels == 2 else 2**40
    out = folder / f"levels-{levels}-{resolution}"
    cpu = time.process_time()
    with mock.patch.object(two_levels, "FLAT_BYTES", limit):
        figures = cluster.run(ClusterOptions(input=str(folder), output=str(out), resolution=resolution))
    seconds = time.process_time() - cpu
    assert figures["levels"] == levels
    table = read_dataset(f"{out}/clusters/assignments", ["id", "cluster"]).sort_by("id")
    labels = table["cluster"].to_numpy()
    return {
        "ari": adjusted_rand_score(truth, labels),
        "nmi": normalized_mutual_info_score(truth, labels),
        "clusters": int(labels.max()) + 1,
        "cpu_s": seconds,
    }


def compare_levels(data: Path, cache: Path | None) -> list[dict[str, Any]]:
    """Both levels on every set, at every resolution."""
    results = []
    for name, texts, truth in load_sets(data):
        vectors = vectors_of(name, texts, cache)
        with (
            tempfile.TemporaryDirectory() as scratch,
            Path(os.devnull).open("w") as sink,
            contextlib.redirect_stderr(sink),
        ):
            folder = Path(scratch)
            write_corpus(folder / "embeddings", vectors)
            mine.run(MineOptions(input=str(folder / "embeddings"), output=str(folder)))
            for resolution in RESOLUTIONS:
                one, two = (cluster_once(folder, levels, resolution, truth) for levels in (1, 2))
                entry = {"set": name, "rows": len(texts), "resolution": resolution, "one": one, "two": two}
                entry["nmi_difference"] = two["nmi"] - one["nmi"]
                print(entry, flush=True)
                results.append(entry)
    return results


def main() -> None:
    """Measures everything and stores benchmarks/results/levels.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of data sets; see benchmarks/README.md")
    parser.add_argument("--cache", type=Path, help="folder to keep vectors in")
    arguments = parser.parse_args()
    logging.getLogger().setLevel(logging.CRITICAL)
    if arguments.data is None or not arguments.data.is_dir():
        sys.exit("give the folder of data sets with --data DIR; see benchmarks/README.md")
    sections = {
        "machine": lambda: machine("apache-beam", "torch", "scikit-network"),
        "sets": lambda: compare_levels(arguments.data, arguments.cache),
    }
    measure_sections("levels", sections)


if __name__ == "__main__":
    main()
