"""What the report job reads."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from pipelines import cluster
from pipelines.cli import main
from pipelines.cluster_options import ClusterOptions
from sbert_core.errors import DataError
from tests.corpora import blobs, make_corpus
from transforms.dataset.corpus import open_corpus
from transforms.report.collect_report import collect_report, sample_rows

pytestmark = pytest.mark.slow  # seconds in all


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus"), *blobs(3, 20), shards=6)


def test_report_of_embeddings_and_pairs(folder):
    data = collect_report(str(folder), "A title")
    assert data.title == "A title"
    assert data.points["id"] == [f"r{row:05}" for row in range(60)]
    assert data.points["text"][7].endswith("number 7")
    assert data.points["cluster"] == [-1] * 60
    assert np.isfinite([data.points["x"], data.points["y"]]).all()
    assert data.rows == 60
    assert data.clusters == []
    assert sum(count for _, count in data.score_counts) >= len(data.pairs) > 0
    assert data.manifests["embeddings"]["rows"] == 60


def test_a_sample_of_all_blocks(folder):
    corpus = open_corpus(str(folder / "embeddings"), block_rows=7)
    assert sample_rows(corpus)["id"].to_pylist() == [f"r{row:05}" for row in range(60)]
    assert sample_rows(corpus, max_rows=20)["id"].to_pylist() == [f"r{row:05}" for row in range(0, 60, 3)]


def test_a_large_corpus_is_not_read_in_full(tmp_path):
    folder = make_corpus(tmp_path, *blobs(3, 20), shards=6, mined=False) / "embeddings"
    corpus = open_corpus(str(folder), block_rows=10)
    for number in range(1, 5):
        Path(folder / f"part-{number}.parquet").unlink()
    sampled = sample_rows(corpus, max_rows=10, max_read_rows=20)
    assert sampled["id"].to_pylist() == [f"r{row:05}" for row in (*range(0, 10, 2), *range(50, 60, 2))]


def test_an_empty_corpus(tmp_path):
    vectors, truth = blobs(3, 20)
    empty = make_corpus(tmp_path, vectors[:0], truth[:0], mined=False)
    assert collect_report(str(empty), "").points["x"] == []


@pytest.mark.slow
def test_clusters_of_the_rows_and_of_others(folder, tmp_path):
    options = ClusterOptions(input=str(folder), output=str(tmp_path), algorithm="agglomerative", k="3")
    cluster.run(options)
    vectors, truth = blobs(3, 20)
    (tmp_path / "embeddings").symlink_to(folder / "embeddings")
    data = collect_report(str(tmp_path), "")
    assert [row["size"] for row in data.clusters] == [20, 20, 20]
    assert adjusted_rand_score(truth, data.points["cluster"]) == 1
    (tmp_path / "embeddings").unlink()
    make_corpus(tmp_path, np.concatenate([vectors, vectors]), np.concatenate([truth, truth]), mined=False)
    with pytest.raises(DataError, match="has other ids than the embeddings: run cluster again"):
        collect_report(str(tmp_path), "")


def test_a_folder_without_results_is_refused(tmp_path, capsys):
    assert main(["report", "--input", str(tmp_path / "nothing")]) == 2
    assert "run embed first" in capsys.readouterr().err
