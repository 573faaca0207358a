"""Routed mining: groups of cells of any size, rounds over neighbours of neighbours, and a job that continues."""

import json

import numpy as np
import pytest

from pipelines.execute import execute, new_pipeline
from sbert_core.errors import DataError
from sbert_core.neighbors.in_memory import find_neighbors
from tests.corpora import clustered, run_mine, write_vectors
from tests.mined_outputs import read_manifest, read_neighbors
from transforms.dataset.ordinal_files import ORDINALS_FOLDER
from transforms.dataset.published import PublishDatasets
from transforms.neighbors.exact import FindNeighbors
from transforms.neighbors.routed import FindRoutedNeighbors
from transforms.neighbors.write_neighbors import WriteNeighbors

slow = pytest.mark.slow


def run_routed(pattern, folder, k=8, block_rows=100, **options) -> dict:
    """Runs the search alone and writes the neighbours; returns the counters. The work files are kept."""
    find = FindNeighbors(corpus=pattern, work=str(folder / "_work"), k=k, block_rows=block_rows)
    root = new_pipeline((), workers=1)
    mined = root | FindRoutedNeighbors(find=find, audit_rows=100, **options)
    draft = mined | WriteNeighbors(folder=str(folder / "neighbors"))
    _ = (draft,) | PublishDatasets(expected=1)
    return execute(root, lambda: "")


def recall_of(vectors: np.ndarray, folder, k=8) -> float:
    true = find_neighbors(vectors, k).indices
    found = read_neighbors(folder)
    pairs = set(zip(found["ordinal"].to_pylist(), found["neighbor_ordinal"].to_pylist(), strict=True))
    return sum((row, int(other)) in pairs for row, others in enumerate(true) for other in others) / true.size


@slow
def test_groups_and_blocks_do_not_change_the_result(tmp_path):
    pattern = write_vectors(tmp_path / "in", clustered(900, 16), 3)
    run_routed(pattern, tmp_path / "one", cells=40, probes=5)
    counters = run_routed(pattern, tmp_path / "many", block_rows=37, cells=40, probes=5, group_rows=100)
    assert counters["mine/groups"] >= 8
    one, many = (read_neighbors(tmp_path / name) for name in ("one", "many"))
    assert one.sort_by([("ordinal", "ascending"), ("rank", "ascending")]).equals(
        many.sort_by([("ordinal", "ascending"), ("rank", "ascending")])
    )


@slow
def test_a_row_that_probes_all_cells_finds_all_neighbors(tmp_path):
    vectors = clustered(600, 16)
    run_routed(write_vectors(tmp_path / "in", vectors, 2), tmp_path, cells=30, probes=30, group_rows=100)
    assert recall_of(vectors, tmp_path) == 1
    audit = read_manifest(tmp_path / "neighbors")["audit"]
    assert audit["recall"] == 1
    assert audit["found"] == audit["neighbors"] == 8 * audit["rows"]


@slow
def test_rounds_over_neighbors_of_neighbors_find_more(tmp_path):
    vectors = clustered(1500, 24)
    pattern = write_vectors(tmp_path / "in", vectors, 2)
    recalls = []
    for recall in (0.5, 0.97, 0.99):  # no round, one, two
        run_routed(pattern, tmp_path / str(recall), cells=75, probes=2, group_rows=400, recall=recall)
        recalls.append(recall_of(vectors, tmp_path / str(recall)))
    assert recalls[0] + 0.05 < recalls[1] <= recalls[2]


@slow
def test_a_run_continues_from_the_work_files(tmp_path):
    vectors = clustered(600, 16)
    pattern = write_vectors(tmp_path / "in", vectors, 2)
    options = {"cells": 30, "probes": 4, "group_rows": 150}
    first = run_routed(pattern, tmp_path, **options)
    expected = read_neighbors(tmp_path)
    again = run_routed(pattern, tmp_path, **options)
    assert again["mine/cosines"] == 0 < first["mine/cosines"]
    (work,) = (path for path in (tmp_path / "_work").iterdir() if path.name != ORDINALS_FOLDER)
    for name in ("within-000001.npz", "across-000000.npz", "found-1-000002.npz"):
        (work / name).write_bytes(b"damaged")
    assert 0 < run_routed(pattern, tmp_path, **options)["mine/cosines"] < first["mine/cosines"]
    assert read_neighbors(tmp_path).equals(expected)


@slow
def test_a_cell_of_identical_rows_is_divided(tmp_path):
    pattern = write_vectors(tmp_path / "in", np.repeat(np.eye(1, 16, dtype=np.float32), 2000, 0))
    counters = run_routed(pattern, tmp_path, cells=10, probes=1, max_cell_rows=250, group_rows=600)
    assert counters["mine/cosines"] <= 2000 * 300  # eight parts of 250 rows
    assert read_manifest(tmp_path / "neighbors")["rows"] == 2000 * 8


@slow
def test_crowded_regions_have_more_cells(tmp_path):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(1250, 16)).astype(np.float32)
    vectors[np.arange(1250) % 10 > 0] = vectors[0] + 0.3 * rng.normal(size=(1125, 16))  # nine of ten are near row 0
    options = {"index": "routed", "probes": 1, "cells": 100, "audit_rows": 10}
    run_mine(write_vectors(tmp_path / "in", vectors), tmp_path / "out", **options)
    counters = json.loads((tmp_path / "out/neighbors/_run.json").read_text())["counters"]
    assert counters["mine/cosines"] < 1125**2 / 5


@slow
def test_a_corpus_of_zero_vectors(tmp_path):
    pattern = write_vectors(tmp_path / "in", np.zeros((5, 4), np.float32))
    assert run_mine(pattern, tmp_path / "out", index="routed")["neighbors"] == 0


@pytest.mark.parametrize("options", [{"probes": -1}, {"cells": -1}, {"audit_rows": 0}])
def test_impossible_settings(options):
    with pytest.raises(DataError, match="at least"):
        FindRoutedNeighbors(find=FindNeighbors(corpus="unused", work="unused"), **options)


def test_two_corpora_need_the_exact_index():
    with pytest.raises(DataError, match="use the exact index"):
        FindRoutedNeighbors(find=FindNeighbors(corpus="one", other="two", work="unused"))
