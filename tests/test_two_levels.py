"""The default clustering in two levels: its graph, its labels, and the job past the limit of one worker."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import adjusted_rand_score

from pipelines import cluster, mine
from pipelines.cluster_options import ClusterOptions
from pipelines.mine_options import MineOptions
from sbert_core.clusters import two_levels
from sbert_core.clusters.graph import find_graph
from sbert_core.clusters.micro_clusters import (
    WEIGHT_SCALE,
    BlockGraph,
    learn_micro_centers,
    micro_edges,
    nearest_micro,
    smooth_rows,
)
from sbert_core.clusters.two_levels import choose_levels, flat_bytes
from sbert_core.neighbors.unit_vectors import unit_rows
from tests.corpora import blobs, clustered, make_corpus


def graph_of(vectors: np.ndarray, k: int) -> tuple[BlockGraph, np.ndarray]:
    """The graph as a block of all rows, and the matrix of the graph on one worker."""
    graph = find_graph(vectors, k)
    neighbors = np.maximum(graph.indices, 0).astype(np.uint32)
    return BlockGraph(np.arange(len(vectors), dtype=np.uint32), neighbors, graph.scores), graph.adjacency().toarray()


def test_the_graph_of_micro_clusters_is_the_row_graph_added_up():
    vectors = clustered(600)  # with exact copies, whose cosines are equal
    graph, matrix = graph_of(vectors, 8)
    centers = learn_micro_centers(vectors)
    labels = nearest_micro(vectors, centers)
    members = np.eye(len(centers))[labels]
    last = graph.last_candidates()
    blocks = np.array_split(np.random.default_rng(0).permutation(600), 5)
    parts = [BlockGraph(graph.ordinals[rows], graph.neighbors[rows], graph.scores[rows]) for rows in blocks]
    found = sum(micro_edges(part, labels, last, len(centers)).toarray() for part in parts)
    assert np.array_equal(found, micro_edges(graph, labels, last, len(centers)).toarray())
    assert np.allclose(found / (2 * WEIGHT_SCALE), members.T @ matrix @ members, atol=1e-5)
    assert 0 < len(centers) <= 150


def test_smoothing_with_one_micro_cluster_per_row_is_that_by_neighbors():
    vectors, _ = blobs(4, 20)
    graph, _ = graph_of(vectors, 79)  # all other rows: the lists are symmetric
    matrix = np.zeros((80, 80))
    np.put_along_axis(matrix, graph.neighbors.astype(int), graph.weights(), axis=1)
    expected = vectors + matrix @ vectors / matrix.sum(axis=1, keepdims=True)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert np.allclose(smooth_rows(vectors, graph.weights(), graph.neighbors, [vectors]), expected, atol=1e-5)


def test_the_label_of_a_row_does_not_depend_on_other_rows():
    vectors, _ = blobs(6, 100)
    centers = learn_micro_centers(vectors)
    single = [nearest_micro(vectors[row : row + 1], centers)[0] for row in range(0, 600, 7)]
    assert nearest_micro(vectors, centers)[::7].tolist() == single


def test_centers_that_products_cannot_tell_apart_are_compared_exactly():
    rng = np.random.default_rng(0)
    base = rng.normal(size=(40, 48))
    noise = 1e-7 * rng.normal(size=(40, 8, 48))
    centers = unit_rows((base[:, None] + noise).reshape(-1, 48))[0]
    centers = np.concatenate([centers, centers[:3]])  # of equal ones the first is taken
    vectors = unit_rows(base[rng.integers(0, 40, 500)] + 0.1 * rng.normal(size=(500, 48)))[0]
    scores = vectors.astype(np.float64) @ centers.astype(np.float64).T
    assert nearest_micro(vectors, centers).tolist() == scores.astype(np.float32).argmax(axis=1).tolist()


def test_levels_depend_on_memory():
    assert flat_bytes(1_000_000, 256, 32) == pytest.approx(4.9 * 2**30, rel=0.15)
    assert choose_levels(100_000, 256, 32) == 1
    assert choose_levels(1_000_000, 256, 32) == 2
    assert choose_levels(100_000, 1024, 100) == 2


def run(folder, output, **options) -> dict:
    return cluster.run(ClusterOptions(input=str(folder), output=str(output), labels_column="gold", **options))


def read(folder, name: str, order: str) -> pa.Table:
    parts = json.loads((folder / "clusters" / name / "_manifest.json").read_text())["parts"]
    table = pa.concat_tables([pq.read_table(folder / "clusters" / name / part["name"]) for part in parts])
    return table.sort_by(order)


@pytest.mark.slow
@pytest.mark.parametrize("resolution", [0.0, 2.0])
def test_the_job_in_two_levels_finds_what_one_worker_finds(tmp_path, monkeypatch, resolution):
    vectors, truth = blobs(8, 100)
    vectors[5] = 0  # has no neighbours
    folder = make_corpus(tmp_path / "corpus", vectors, truth)
    flat = run(folder, tmp_path / "flat", resolution=resolution)
    assert flat["levels"] == 1
    monkeypatch.setattr(two_levels, "FLAT_BYTES", 1)
    figures = run(folder, tmp_path / "two", resolution=resolution)
    assert figures["levels"] == 2
    assert figures["resolution"] == flat["resolution"]
    one, two = (read(tmp_path / name, "assignments", "id") for name in ("flat", "two"))
    assert adjusted_rand_score(one["cluster"].to_numpy(), two["cluster"].to_numpy()) > 0.97
    assert two["is_noise"].to_pylist() == [row == 5 for row in range(800)]
    same = one["cluster"].to_numpy() == two["cluster"].to_numpy()
    assert np.allclose(one["strength"].to_numpy()[same], two["strength"].to_numpy()[same], atol=0.1)


@pytest.mark.slow
def test_files_and_blocks_have_no_effect_in_two_levels(tmp_path, monkeypatch):
    monkeypatch.setattr(two_levels, "FLAT_BYTES", 1)
    vectors, truth = blobs(6, 60, spread=0.3)
    first = make_corpus(tmp_path / "first", vectors, truth)
    second = make_corpus(tmp_path / "second", vectors, truth, shards=5, mined=False)
    mine.run(MineOptions(input=str(second / "embeddings"), output=str(second), block_rows=50))
    run(first, tmp_path / "one", resolution=2.0)
    run(second, tmp_path / "many", resolution=2.0, block_rows=70)  # other blocks than those of mining
    columns = ["id", "cluster", "strength"]
    found, expected = (read(tmp_path / name, "assignments", "id").select(columns) for name in ("many", "one"))
    assert found.equals(expected)


@pytest.mark.slow
def test_rows_without_a_direction_are_noise_in_two_levels(tmp_path, monkeypatch):
    monkeypatch.setattr(two_levels, "FLAT_BYTES", 1)
    folder = make_corpus(tmp_path, np.zeros((20, 4), np.float32), np.zeros(20, int))
    assert run(folder, folder)["clusters"] == 0
