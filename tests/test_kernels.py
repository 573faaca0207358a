"""Results have the same bytes under kernels whose float32 products have other bits.

A setting of MKL stands for another processor. Where a machine's products do not depend on it, these tests cannot show
anything and are skipped.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sbert_core.neighbors.in_memory import find_neighbors, mine_paraphrases
from tests.corpora import write_vectors
from tests.kernels import DIVISIONS, make_vectors
from tests.mined_outputs import contents

ROOT = Path(__file__).parent.parent
KERNELS = ("AUTO,STRICT", "COMPATIBLE")


def run(kernels: str, *arguments: str) -> str:
    """The output of a Python module in a process that uses the kernels."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env={**os.environ, "MKL_CBWR": kernels},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


@pytest.fixture(scope="module")
def digests() -> list[list[str]]:
    """For each kind of kernels: a digest of products, and one of neighbours for each division into blocks and tiles."""
    found = [run(kernels, "tests.kernels").splitlines() for kernels in KERNELS]
    if found[0][0] == found[1][0]:
        pytest.skip("the products of this machine are the same under all settings")
    return found


def test_neighbors_have_the_same_bytes(digests):
    neighbors = [line for lines in digests for line in lines[1:]]
    assert len(neighbors) == len(KERNELS) * len(DIVISIONS)
    assert len(set(neighbors)) == 1


@pytest.mark.slow
def test_a_mine_job_writes_the_same_bytes(tmp_path, digests):
    pattern = write_vectors(tmp_path / "in", make_vectors(), 3)
    written = []
    for number, kernels in enumerate(KERNELS):
        output = tmp_path / str(number)
        flags = ["--top_k", "10", "--block_rows", "200", "--min_score", "0.5", "--workers", "1"]
        run(kernels, "pipelines", "mine", "--input", pattern, "--output", str(output), *flags)
        written.append(contents(output))
    assert written[0].keys() == written[1].keys()
    assert any(name.startswith("pairs/") for name in written[0])
    assert written[0] == written[1]


def test_a_row_with_a_hundred_copies():
    vectors = make_vectors()
    copies = np.flatnonzero((vectors == vectors[3]).all(axis=1))
    found = find_neighbors(vectors, 20, block_rows=128)
    assert len(copies) > 90
    for row in copies:
        assert found.indices[row].tolist() == [other for other in copies if other != row][:20]
        assert set(found.scores[row].tolist()) == {found.scores[copies[0], 0]}


def test_rows_of_zeros_and_more_neighbors_than_rows():
    vectors = make_vectors()[:50]
    found = find_neighbors(vectors, 60)
    assert (found.indices[10] == -1).all()
    assert sorted(found.indices[0].tolist()) == [-1] * 12 + [row for row in range(1, 50) if row != 10]


def test_a_pair_at_the_minimum_score_counts():
    vectors = make_vectors()
    scores = find_neighbors(vectors, 10).scores
    for boundary in np.unique(scores[np.isfinite(scores)])[::997]:
        above = float(np.nextafter(boundary, np.float32(2)))
        n_pairs = [len(mine_paraphrases(vectors, min_score=score, top_k=1499)) for score in (float(boundary), above)]
        assert n_pairs[0] > n_pairs[1]
