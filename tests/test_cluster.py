"""The cluster job."""

import json
import re
import shutil
from dataclasses import fields
from pathlib import Path

import hdbscan
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import adjusted_rand_score

from pipelines import cluster, mine
from pipelines.cli import main
from pipelines.cluster_options import ClusterOptions
from pipelines.mine_options import MineOptions
from sbert_core.clusters.algorithms import ALGORITHMS, Hdbscan
from sbert_core.errors import DataError, FormatWarning, JobError
from tests.corpora import WORDS, blobs, make_corpus

CLUSTERS, ROWS = 6, 240
SETTINGS = {
    "kmeans": {"k": "6"},
    "agglomerative": {"k": "6"},
    "communities": {"min_score": 0.6},
    "components": {"min_score": 0.8},
}
TIME_AND_LABELS = {"time_column": "day", "labels_column": "gold"}

pytestmark = pytest.mark.slow


def make_blobs():
    return blobs(CLUSTERS, ROWS // CLUSTERS)


def run(folder: Path, output: Path | None = None, **options) -> dict:
    return cluster.run(ClusterOptions(input=str(folder), output=str(output or folder), **options))


def options_of(algorithm: str) -> dict:
    return {"algorithm": algorithm, **TIME_AND_LABELS, **SETTINGS.get(algorithm, {})}


def read(folder: Path, name: str) -> pa.Table:
    parts = json.loads((folder / "clusters" / name / "_manifest.json").read_text())["parts"]
    return pa.concat_tables([pq.read_table(folder / "clusters" / name / part["name"]) for part in parts])


def read_labels(folder: Path) -> np.ndarray:
    return read(folder, "assignments").sort_by("id")["cluster"].to_numpy()


def parquet_bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*.parquet"))}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return make_corpus(tmp_path_factory.mktemp("corpus"), *make_blobs())


@pytest.fixture(scope="module")
def resharded(tmp_path_factory) -> Path:
    """The same rows in other files."""
    return make_corpus(tmp_path_factory.mktemp("resharded"), *make_blobs(), shards=5)


@pytest.fixture(scope="module")
def clustered(tmp_path_factory, corpus):
    """A function that clusters the corpus with an algorithm, once, and returns the folder and the figures."""
    results = {}

    def cluster_once(algorithm: str) -> tuple[Path, dict]:
        if algorithm not in results:
            folder = tmp_path_factory.mktemp(algorithm)
            results[algorithm] = folder, run(corpus, folder, **options_of(algorithm))
        return results[algorithm]

    return cluster_once


@pytest.fixture
def copy_of(clustered, tmp_path):
    """A function that copies what an algorithm has written, for a test that changes it."""

    def copy(algorithm: str) -> Path:
        return Path(shutil.copytree(clustered(algorithm)[0], tmp_path / "copy"))

    return copy


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_finds_the_blobs(clustered, algorithm):
    folder, figures = clustered(algorithm)
    table = read(folder, "assignments").sort_by("id")
    assert table["id"].to_pylist() == [f"r{row:05}" for row in range(ROWS)]
    labels = table["cluster"].to_numpy()
    assert figures["ari"] > 0.7
    assert figures["ari"] == pytest.approx(adjusted_rand_score(make_blobs()[1], labels), abs=1e-3)
    assert ("dbcv" in figures) == ("hdbscan" in algorithm)
    assert table["is_noise"].to_pylist() == (labels == -1).tolist()
    strengths = table["strength"].to_numpy()
    assert ((strengths >= 0) & (strengths <= 1)).all()
    summary = read(folder, "summary")
    sizes = summary.filter(pa.compute.greater_equal(summary["cluster"], 0))["size"].to_pylist()
    assert sizes == sorted(sizes, reverse=True)
    assert sum(summary["size"].to_pylist()) == ROWS


def test_help_names_every_algorithm():
    (field,) = (field for field in fields(ClusterOptions) if field.name == "algorithm")
    assert set(re.findall(r"[a-z_]+", field.metadata["help"])) >= set(ALGORITHMS)
    assert field.metadata["one_of"] == tuple(ALGORITHMS)


def test_summary_describes_the_clusters(clustered):
    folder, _ = clustered("leiden")
    vectors, truth = make_blobs()
    labels = read_labels(folder)
    names = []
    for row in read(folder, "summary").to_pylist():
        members = np.flatnonzero(labels == row["cluster"])
        word = WORDS[np.bincount(truth[members]).argmax()]
        assert word in row["name"]
        assert word in row["terms"]
        center = vectors[members].sum(axis=0)
        center /= np.linalg.norm(center)
        cosines = vectors[members] @ center
        assert np.allclose(row["center"], center, atol=1e-5)
        assert row["cohesion"] == pytest.approx(float(cosines.mean()), abs=1e-5)
        assert row["radius"] == pytest.approx(np.quantile(cosines, 0.01), abs=1e-5)
        rows = [int(name[1:]) for name in row["exemplar_ids"]]
        assert set(rows) <= set(members.tolist())
        assert row["exemplar_texts"] == [f"where is the {WORDS[truth[each]]} number {each}" for each in rows]
        names.append(row["name"])
    assert len(set(names)) == len(names)
    over_time = read(folder, "over_time")
    assert set(over_time["period"].to_pylist()) == {"1970-01", "1970-02", "1970-03"}
    manifest = json.loads((folder / "clusters/summary/_manifest.json").read_text())
    assert len(manifest["hierarchy"]) == manifest["clusters"] - 1
    assert manifest["quality"]["noise_share"] == 0


@pytest.mark.parametrize("algorithm", ["leiden", "kmeans", "hdbscan"])
def test_shards_and_blocks_have_no_effect(tmp_path, clustered, resharded, algorithm):
    run(resharded, tmp_path, block_rows=70, **options_of(algorithm))
    for name in ("assignments", "summary"):
        order = "id" if name == "assignments" else "cluster"
        found, expected = (read(each, name).sort_by(order) for each in (tmp_path, clustered(algorithm)[0]))
        # Sums of blocks of other sizes may differ in the last bit.
        rounded = {"center", "cohesion", "radius", "separation", "strength", "distance"}
        drop = [column for column in found.column_names if column in rounded]
        assert found.drop_columns(drop).equals(expected.drop_columns(drop))


def test_hdbscan_finds_more_neighbors_until_its_tree_is_exact(tmp_path, monkeypatch):
    vectors, truth = blobs(6, 50, spread=0.2)
    folder = make_corpus(tmp_path, vectors, truth, mined=False)
    mine.run(MineOptions(input=str(folder / "embeddings"), output=str(folder), top_k=5))
    figures = run(folder, algorithm="hdbscan", min_size=15)
    assert figures["neighbors"] > 5
    assert figures["tree_change"] <= 1e-6 or figures["neighbors"] == 256
    exact = hdbscan.HDBSCAN(min_cluster_size=15, min_samples=5, algorithm="generic", approx_min_span_tree=False)
    expected = exact.fit_predict(vectors.astype(np.float64))
    assert adjusted_rand_score(expected, read_labels(folder)) >= 0.95
    monkeypatch.setattr(Hdbscan, "max_compared_rows", 299)
    figures = run(folder, tmp_path / "large", algorithm="hdbscan", min_size=15)
    assert figures["neighbors"] == 5
    assert "larger --top_k" in figures["tree"]


def test_second_run_and_changes(corpus, clustered, copy_of):
    assert clustered("components")[1]["kept from before"] == "no"
    folder, options = copy_of("components"), options_of("components")
    before = parquet_bytes(folder)
    assert run(corpus, folder, **options)["kept from before"] == "yes"
    assert run(corpus, folder, **options, min_size=70)["kept from before"] == "no"
    assert parquet_bytes(folder) != before
    assert run(corpus, folder, **options)["kept from before"] == "no"
    assert parquet_bytes(folder) == before
    assert sorted(path.name for path in folder.iterdir()) == ["clusters"]


def test_existing_clusters_do_not_change(tmp_path, clustered):
    """Rows of one old cluster only: the other clusters have size 0, and rows can be assigned to all of them again."""
    old = clustered("leiden")[0]
    vectors, truth = make_blobs()
    chosen = np.flatnonzero(truth == truth[0])
    day2 = make_corpus(tmp_path / "day2", vectors[chosen], truth[chosen] * 0 + 7, mined=False)
    flags = ["cluster", "--input", str(day2), "--output", str(day2), "--time_column", "day"]
    assert main([*flags, "--clusters", str(old / "clusters")]) == 0
    before, after = (read(folder, "summary").sort_by("cluster").to_pylist() for folder in (old, day2))
    assert sum(row["size"] for row in after) == len(chosen)
    after = [row for row in after if row["cluster"] >= 0]
    assert [row["size"] > 0 for row in after].count(True) == 1
    for old_row, new_row in zip((row for row in before if row["cluster"] >= 0), after, strict=True):
        for column in ("cluster", "name", "terms", "center", "radius", "nearest_cluster"):
            assert new_row[column] == old_row[column]
        assert bool(new_row["exemplar_ids"]) == bool(new_row["cohesion"]) == (new_row["size"] > 0)
    assert main(["report", "--input", str(day2)]) == 0

    new_vectors = np.concatenate([vectors[:50], -vectors[:3]])  # the last three are far from all clusters
    day3 = make_corpus(tmp_path / "day3", new_vectors, truth[:53] * 0, mined=False)
    figures = run(day3, tmp_path / "from_old", clusters=str(old / "clusters"))
    assert figures["clusters"] == CLUSTERS
    labels = read_labels(tmp_path / "from_old")
    assert (labels[:50] == read_labels(old)[:50]).mean() > 0.9
    assert (labels[50:] == -1).all()
    run(day3, tmp_path / "from_day2", clusters=str(day2 / "clusters"))
    found, expected = (read(tmp_path / name, "assignments") for name in ("from_day2", "from_old"))
    assert found.equals(expected)


def test_an_empty_corpus_is_assigned_to_existing_clusters(tmp_path, clustered):
    vectors, truth = make_blobs()
    empty = make_corpus(tmp_path, vectors[:0], truth[:0], mined=False)
    assert run(empty, clusters=str(clustered("leiden")[0] / "clusters"))["clusters"] == CLUSTERS
    assert set(read(empty, "summary")["size"].to_pylist()) == {0}


def test_existing_clusters_of_another_model_are_refused(tmp_path, copy_of, capsys):
    old, (vectors, truth) = copy_of("leiden") / "clusters", make_blobs()
    other = make_corpus(tmp_path / "other", vectors[:20], truth[:20], mined=False, fingerprint="another")
    narrow = make_corpus(tmp_path / "narrow", vectors[:20, :4].copy(), truth[:20], mined=False)
    for folder, message in ((other, "different models"), (narrow, "vectors of 4 dimensions")):
        capsys.readouterr()
        assert main(["cluster", "--input", str(folder), "--output", str(folder), "--clusters", str(old)]) == 2
        errors = capsys.readouterr().err
        assert message in errors
        assert len(errors.splitlines()) == 1
        assert not (folder / "clusters").exists()
    for name in ("summary", "assignments"):  # as releases of format 1 wrote them
        path = old / name / "_manifest.json"
        content = json.loads(path.read_text())
        path.write_text(json.dumps({**content, "fingerprint": None, "format": 1, "digest": None}))
    with pytest.warns(FormatWarning):
        assert run(other, clusters=str(old))["clusters"] == CLUSTERS
    with pytest.warns(FormatWarning), pytest.raises(DataError, match="4 dimensions"):
        run(narrow, clusters=str(old))


def test_existing_clusters_are_not_overwritten(corpus, copy_of, capsys):
    folder = copy_of("components")
    before = parquet_bytes(folder)
    flags = ["cluster", "--input", str(corpus), "--output", str(folder)]
    assert main([*flags, "--clusters", f"{folder}/clusters/"]) == 2
    assert "give another --output" in capsys.readouterr().err
    assert parquet_bytes(folder) == before


def test_corpora_without_clusters(tmp_path):
    one = make_corpus(tmp_path / "one", np.ones((1, 4), np.float32), np.zeros(1, int))
    empty = make_corpus(tmp_path / "empty", np.ones((0, 4), np.float32), np.zeros(0, int), mined=False)
    assert run(one)["clusters"] == 0
    assert run(empty, algorithm="hdbscan_reduced")["clusters"] == 0


def test_too_many_clusters_are_refused(tmp_path):
    same = make_corpus(tmp_path, np.ones((30, 4), np.float32), np.zeros(30, int), mined=False)
    for options in ({"algorithm": "kmeans", "k": "5"}, {"algorithm": "agglomerative", "k": "99"}):
        with pytest.raises((DataError, JobError), match="ask for fewer clusters"):
            run(same, **options)


def test_too_many_rows_are_refused(corpus, monkeypatch, tmp_path):
    monkeypatch.setattr(ALGORITHMS["agglomerative"], "max_rows", 239)
    with pytest.raises(DataError, match=r"at most 239 rows, .* has 240: use leiden or kmeans"):
        run(corpus, tmp_path, algorithm="agglomerative")


def test_bad_options_and_input_are_refused(tmp_path, corpus, capsys):
    with pytest.raises(DataError, match="one of leiden"):
        run(corpus, algorithm="dbscan")
    with pytest.raises(DataError, match="no column 'topic'"):
        run(corpus, labels_column="topic")
    with pytest.raises(DataError, match="--k is a number"):
        run(corpus, k="many")
    unmined = make_corpus(tmp_path / "unmined", *blobs(2, 10), mined=False)
    with pytest.raises(DataError, match=r"neighbors has no _manifest.json"):
        run(unmined)
    assert main(["cluster", "--input", str(tmp_path / "nothing"), "--output", str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_submit_does_not_wait_or_clean_up(corpus, clustered, copy_of):
    folder, options = copy_of("agglomerative"), options_of("components")
    cluster.submit(ClusterOptions(input=str(corpus), output=str(folder), **options)).wait_until_finish()
    assert parquet_bytes(folder / "clusters") == parquet_bytes(clustered("components")[0] / "clusters")
    assert (folder / "_cluster").is_dir()
    assert run(corpus, folder, **options)["kept from before"] == "yes"


def test_submit_checks_the_input_and_keeps_the_old_result(corpus, copy_of):
    folder = copy_of("components")
    with pytest.raises(DataError, match=r"has no column 'topic'.*--labels_column"):
        cluster.submit(ClusterOptions(input=str(corpus), output=str(folder), labels_column="topic"))
    with pytest.raises(DataError, match="writes nothing"):
        cluster.submit(ClusterOptions(input=str(corpus), output=str(folder)), ["--runner=DaskRunner"])
    assert run(corpus, folder, **options_of("components"))["kept from before"] == "yes"
