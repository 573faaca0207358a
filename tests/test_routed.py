"""Routed mining: cells of any size and shape, and candidates that are emitted early."""

import json

import numpy as np
import pytest

from benchmarks.shuffles import count_moves
from pipelines.execute import execute, new_pipeline
from sbert_core.errors import DataError
from tests.corpora import clustered, run_mine, write_vectors
from tests.mined_outputs import read_manifest, read_neighbors, run_transforms
from transforms.dataset.published import PublishDatasets
from transforms.neighbors.exact import FindNeighbors
from transforms.neighbors.routed import FindRoutedNeighbors
from transforms.neighbors.write_neighbors import WriteNeighbors

slow = pytest.mark.slow


@slow
def test_candidates_that_are_emitted_early_give_the_same_result(tmp_path):
    pattern = write_vectors(tmp_path / "in", clustered(200), 2)
    emitted = {}
    for name, options in (("late", {}), ("early", {"max_held_bytes": 0})):
        find = FindNeighbors(corpus=pattern, work=str(tmp_path / f"_{name}"), k=8, block_rows=50, **options)
        with count_moves() as counts:
            run_transforms(
                FindRoutedNeighbors(find=find, cells=64, audit_rows=10),
                {"Write": WriteNeighbors(folder=str(tmp_path / name / "neighbors"))},
            )
        emitted[name] = counts.shuffles["FindRoutedNeighbors/GroupByBlockRange"].elements
    assert emitted["late"] < emitted["early"]
    assert read_neighbors(tmp_path / "early").equals(read_neighbors(tmp_path / "late"))


@slow
def test_a_crowded_cell_is_split(tmp_path):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(1250, 16)).astype(np.float32)
    vectors[np.arange(1250) % 10 > 0] = vectors[0] + 0.3 * rng.normal(size=(1125, 16))  # nine of ten are near row 0
    run_mine(write_vectors(tmp_path / "in", vectors), tmp_path / "out", index="routed", routes=1, audit_rows=10)
    counters = json.loads((tmp_path / "out/neighbors/_run.json").read_text())["counters"]
    assert counters["mine/cosines"] < 1125**2 / 5


@slow
def test_a_cell_of_identical_rows_is_divided(tmp_path):
    pattern = write_vectors(tmp_path / "in", np.repeat(np.eye(1, 16, dtype=np.float32), 2000, 0))
    find = FindNeighbors(corpus=pattern, work=str(tmp_path / "_work"), k=8)
    root = new_pipeline((), workers=1)
    mined = root | FindRoutedNeighbors(find=find, routes=1, cells=500, audit_rows=10, min_divided_rows=250)
    draft = mined | WriteNeighbors(folder=str(tmp_path / "out"))
    _ = (draft,) | PublishDatasets(expected=1)
    counters = execute(root, lambda: "")
    assert 2000 * 240 <= counters["mine/cosines"] <= 2000 * 260  # eight parts of 250 rows
    assert read_manifest(tmp_path / "out")["rows"] == 2000 * 8


@slow
def test_a_corpus_of_zero_vectors(tmp_path):
    pattern = write_vectors(tmp_path / "in", np.zeros((5, 4), np.float32))
    assert run_mine(pattern, tmp_path / "out", index="routed")["neighbors"] == 0


@pytest.mark.parametrize("options", [{"routes": 0}, {"cells": -1}, {"audit_rows": 0}])
def test_impossible_settings(options):
    with pytest.raises(DataError, match="at least"):
        FindRoutedNeighbors(find=FindNeighbors(corpus="unused", work="unused"), **options)


def test_two_corpora_need_the_exact_index():
    with pytest.raises(DataError, match="use the exact index"):
        FindRoutedNeighbors(find=FindNeighbors(corpus="one", other="two", work="unused"))
