"""The cluster and report jobs, and all jobs in one go."""

import dataclasses
import json
import re
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
from sbert_core.errors import DataError, FormatWarning, JobError
from tests.corpora import WORDS, blobs, make_corpus
from transforms.clusters import labels as label
from transforms.dataset.corpus import open_corpus


def run(folder: Path, output: Path | None = None, **options) -> dict:
    return cluster.run(ClusterOptions(input=str(folder), output=str(output or folder), **options))


def read(folder: Path, name: str) -> pa.Table:
    parts = json.loads((folder / "clusters" / name / "_manifest.json").read_text())["parts"]
    return pa.concat_tables([pq.read_table(folder / "clusters" / name / part["name"]) for part in parts])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return make_corpus(tmp_path_factory.mktemp("corpus"), *blobs())


TRIED = [
    ("leiden", {}),
    ("leiden", {"resolution": 1.0}),
    ("hdbscan", {}),
    ("hdbscan_reduced", {}),
    ("kmeans", {"k": "8"}),
    ("kmeans", {}),
    ("agglomerative", {"k": "8"}),
    ("communities", {"min_score": 0.6}),
    ("components", {"min_score": 0.8}),
]


@pytest.mark.parametrize(("algorithm", "options"), TRIED)
def test_algorithms_find_the_blobs(tmp_path, corpus, algorithm, options):
    figures = run(corpus, tmp_path, algorithm=algorithm, labels_column="gold", **options)
    assert figures["ari"] > 0.7
    table = read(tmp_path, "assignments").sort_by("id")
    assert table["id"].to_pylist() == [f"r{row:05}" for row in range(480)]
    labels = table["cluster"].to_numpy()
    assert figures["ari"] == pytest.approx(adjusted_rand_score(blobs()[1], labels), abs=1e-3)
    assert table["is_noise"].to_pylist() == (labels == -1).tolist()
    strengths = table["strength"].to_numpy()
    assert ((strengths >= 0) & (strengths <= 1)).all()
    summary = read(tmp_path, "summary")
    sizes = summary.filter(pa.compute.greater_equal(summary["cluster"], 0))["size"].to_pylist()
    assert sizes == sorted(sizes, reverse=True)
    assert sum(summary["size"].to_pylist()) == 480


def test_every_algorithm_is_tried_and_named():
    assert {algorithm for algorithm, _ in TRIED} == set(label.ALGORITHMS)
    (field,) = (field for field in dataclasses.fields(ClusterOptions) if field.name == "algorithm")
    assert set(re.findall(r"[a-z_]+", field.metadata["help"])) >= set(label.ALGORITHMS)


@pytest.mark.parametrize("listed", [label.ALGORITHMS, (*label.ALGORITHMS, "spectral")])
def test_no_algorithm_runs_as_another(corpus, monkeypatch, listed):
    """Each name leads to a function of its own, and one that is only listed to none."""
    monkeypatch.setattr(label, "ALGORITHMS", listed)
    called = []
    for table in (label._OF_GRAPH, label._OF_VECTORS):
        for name in table:
            monkeypatch.setitem(table, name, lambda *_, name=name: called.append(name))
    monkeypatch.setattr(label, "load_graph", lambda *_: None)
    ranked = open_corpus(str(corpus / "embeddings"))
    for name in listed:
        if name in (label.KMEANS, "spectral"):  # k-means has Beam steps of its own
            with pytest.raises(KeyError, match=name):
                label.label_rows(ranked, "", label.Clustering(algorithm=name))
        else:
            label.label_rows(ranked, "", label.Clustering(algorithm=name))
            assert called.pop() == name


def test_summary_tells_what_clusters_are_about(tmp_path, corpus):
    run(corpus, tmp_path, time_column="day")
    vectors, truth = blobs()
    labels = read(tmp_path, "assignments").sort_by("id")["cluster"].to_numpy()
    names = []
    for row in read(tmp_path, "summary").to_pylist():
        members = np.flatnonzero(labels == row["cluster"])
        word = WORDS[np.bincount(truth[members]).argmax()]
        assert word in row["name"]
        assert word in row["terms"]
        center = vectors[members].sum(axis=0)
        center /= np.linalg.norm(center)
        assert np.allclose(row["center"], center, atol=1e-5)
        assert row["cohesion"] == pytest.approx(float((vectors[members] @ center).mean()), abs=1e-5)
        rows = [int(name[1:]) for name in row["exemplar_ids"]]
        assert set(rows) <= set(members.tolist())
        assert row["exemplar_texts"] == [f"where is the {WORDS[truth[each]]} number {each}" for each in rows]
        names.append(row["name"])
    assert len(set(names)) == len(names)
    over_time = read(tmp_path, "over_time")
    assert set(over_time["period"].to_pylist()) == {"1970-01", "1970-02", "1970-03"}
    manifest = json.loads((tmp_path / "clusters/summary/_manifest.json").read_text())
    assert len(manifest["hierarchy"]) == manifest["clusters"] - 1
    assert manifest["quality"]["noise_share"] == 0


@pytest.mark.parametrize("algorithm", ["leiden", "kmeans", "hdbscan"])
def test_shards_and_blocks_have_no_effect(tmp_path, corpus, algorithm):
    run(corpus, tmp_path / "expected", algorithm=algorithm)
    other = make_corpus(tmp_path / "in", *blobs(), shards=5)
    run(other, tmp_path / "out", algorithm=algorithm, block_rows=70)
    for name in ("assignments", "summary"):
        order = "id" if name == "assignments" else "cluster"
        found, expected = (read(tmp_path / each, name).sort_by(order) for each in ("out", "expected"))
        # Sums of blocks of other sizes may differ in the last bit.
        rounded = {"center", "cohesion", "reach", "separation", "strength", "distance"}
        drop = [column for column in found.column_names if column in rounded]
        assert found.drop_columns(drop).equals(expected.drop_columns(drop))


def test_hdbscan_finds_more_neighbors_until_its_tree_is_exact(tmp_path, monkeypatch):
    vectors, truth = blobs(6, 60, spread=0.2)
    folder = make_corpus(tmp_path, vectors, truth, mined=False)
    mine.run(MineOptions(input=str(folder / "embeddings"), output=str(folder), top_k=5))
    figures = run(folder, algorithm="hdbscan", min_size=15)
    assert figures["neighbors"] > 5
    assert figures["tree_change"] <= 1e-6 or figures["neighbors"] == 256
    exact = hdbscan.HDBSCAN(min_cluster_size=15, min_samples=5, algorithm="generic", approx_min_span_tree=False)
    expected = exact.fit_predict(vectors.astype(np.float64))
    assert adjusted_rand_score(expected, read(folder, "assignments").sort_by("id")["cluster"].to_numpy()) >= 0.95
    monkeypatch.setattr(label, "MAX_COMPARED", 359)
    figures = run(folder, tmp_path / "large", algorithm="hdbscan", min_size=15)
    assert figures["neighbors"] == 5
    assert "larger --top_k" in figures["tree"]


def test_communities_find_more_neighbors_until_they_have_all(tmp_path, monkeypatch):
    vectors, truth = blobs(3, 60, spread=0.05)
    folder = make_corpus(tmp_path, vectors, truth, mined=False)
    mine.run(MineOptions(input=str(folder / "embeddings"), output=str(folder), top_k=10))
    figures = run(folder, algorithm="communities", labels_column="gold")
    assert figures["neighbors"] == 80
    assert figures["ari"] == 1
    monkeypatch.setattr(label, "MAX_COMPARED", 179)
    with pytest.raises((DataError, JobError), match="larger --top_k"):
        run(folder, tmp_path / "large", algorithm="communities")


def test_second_run_and_changes(tmp_path, corpus):
    assert run(corpus, tmp_path)["kept from before"] == "no"
    before = {path: path.read_bytes() for path in sorted((tmp_path / "clusters").rglob("*.parquet"))}
    assert run(corpus, tmp_path)["kept from before"] == "yes"
    assert run(corpus, tmp_path, min_size=70)["kept from before"] == "no"
    assert run(corpus, tmp_path)["kept from before"] == "no"
    assert {path: path.read_bytes() for path in sorted((tmp_path / "clusters").rglob("*.parquet"))} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clusters"]


def test_new_rows_are_assigned(tmp_path, corpus):
    run(corpus, tmp_path / "old")
    vectors, truth = blobs()
    new = make_corpus(tmp_path / "new", np.concatenate([vectors[:50], -vectors[:3]]), truth[:53] * 0, mined=False)
    figures = run(new, clusters=str(tmp_path / "old/clusters"))
    old = read(tmp_path / "old", "assignments").sort_by("id")["cluster"].to_numpy()
    labels = read(new, "assignments").sort_by("id")["cluster"].to_numpy()
    assert (labels[:50] == old[:50]).mean() > 0.9
    assert (labels[50:] == -1).all()
    assert figures["clusters"] == 8


def test_existing_clusters_stay_what_they_are(tmp_path, corpus):
    """Rows of one old cluster alone: the others are there with size 0, and all can be assigned to again."""
    run(corpus, tmp_path / "old")
    vectors, truth = blobs()
    chosen = np.flatnonzero(truth == truth[0])
    day2 = make_corpus(tmp_path / "day2", vectors[chosen], truth[chosen] * 0 + 7, mined=False)
    flags = ["cluster", "--input", str(day2), "--output", str(day2), "--time_column", "day"]
    assert main([*flags, "--clusters", str(tmp_path / "old/clusters")]) == 0
    old, new = (read(folder, "summary").sort_by("cluster").to_pylist() for folder in (tmp_path / "old", day2))
    assert sum(row["size"] for row in new) == len(chosen)
    new = [row for row in new if row["cluster"] >= 0]
    assert [row["size"] > 0 for row in new].count(True) == 1
    for before, after in zip((row for row in old if row["cluster"] >= 0), new, strict=True):
        for column in ("cluster", "name", "terms", "center", "reach", "nearest_cluster"):
            assert after[column] == before[column]
        assert bool(after["exemplar_ids"]) == bool(after["cohesion"]) == (after["size"] > 0)
    day3 = make_corpus(tmp_path / "day3", vectors, truth, mined=False)
    run(day3, tmp_path / "from_old", clusters=str(tmp_path / "old/clusters"))
    run(day3, tmp_path / "from_day2", clusters=str(day2 / "clusters"))
    found, expected = (read(tmp_path / name, "assignments") for name in ("from_day2", "from_old"))
    assert found.equals(expected)
    assert main(["report", "--input", str(day2)]) == 0
    none = make_corpus(tmp_path / "none", vectors[:0], truth[:0], mined=False)
    assert run(none, clusters=str(tmp_path / "old/clusters"))["clusters"] == 8
    assert set(read(none, "summary")["size"].to_pylist()) == {0}


def test_existing_clusters_of_another_model_are_refused(tmp_path, corpus, capsys):
    run(corpus, tmp_path / "old")
    old, (vectors, truth) = str(tmp_path / "old/clusters"), blobs()
    other = make_corpus(tmp_path / "other", vectors[:20], truth[:20], mined=False, fingerprint="another")
    narrow = make_corpus(tmp_path / "narrow", vectors[:20, :4].copy(), truth[:20], mined=False)
    for folder, message in ((other, "different models"), (narrow, "vectors of 4 dimensions")):
        capsys.readouterr()
        assert main(["cluster", "--input", str(folder), "--output", str(folder), "--clusters", old]) == 2
        errors = capsys.readouterr().err
        assert message in errors
        assert len(errors.splitlines()) == 1
        assert not (folder / "clusters").exists()
    manifests = [tmp_path / f"old/clusters/{name}/_manifest.json" for name in ("summary", "assignments")]
    for path in manifests:  # as releases before this one wrote them
        content = json.loads(path.read_text())
        path.write_text(json.dumps({**content, "fingerprint": None, "format": 1, "digest": None}))
    with pytest.warns(FormatWarning):
        assert run(other, clusters=old)["clusters"] == 8
    with pytest.warns(FormatWarning), pytest.raises(DataError, match="4 dimensions"):
        run(narrow, clusters=old)


def test_existing_clusters_are_not_overwritten(tmp_path, corpus, capsys):
    run(corpus, tmp_path)
    before = read(tmp_path, "summary")
    flags = ["cluster", "--input", str(corpus), "--output", str(tmp_path)]
    assert main([*flags, "--clusters", f"{tmp_path}/clusters/"]) == 2
    assert "give another --output" in capsys.readouterr().err
    assert read(tmp_path, "summary").equals(before)


def test_odd_corpora(tmp_path):
    one = make_corpus(tmp_path / "one", np.ones((1, 4), np.float32), np.zeros(1, int))
    same = make_corpus(tmp_path / "same", np.ones((30, 4), np.float32), np.zeros(30, int))
    none = make_corpus(tmp_path / "none", np.ones((0, 4), np.float32), np.zeros(0, int))
    for algorithm in ("leiden", "hdbscan", "components", "hdbscan_reduced"):
        assert run(one, algorithm=algorithm)["clusters"] == 0
        assert run(same, algorithm=algorithm)["clusters"] <= 1
    for algorithm in ("leiden", "hdbscan_reduced"):
        assert run(none, algorithm=algorithm)["clusters"] == 0
    assert run(same, algorithm="kmeans", k="1")["clusters"] == 1
    for options in ({"algorithm": "kmeans", "k": "5"}, {"algorithm": "agglomerative", "k": "99"}):
        with pytest.raises((DataError, JobError), match="ask for fewer clusters"):
            run(same, **options)


def test_refused(tmp_path, corpus, capsys):
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
    assert main(["report", "--input", str(tmp_path / "nothing")]) == 2
    assert "run embed first" in capsys.readouterr().err


def test_run_does_all_jobs(tmp_path, capsys):
    texts = [f"where is the {WORDS[row % 3]} {row}" for row in range(60)] + ["<script>alert(1)</script>"]
    pq.write_table(pa.table({"text": [*texts, texts[0], texts[0], None, None]}), tmp_path / "in.parquet")
    flags = [
        "run",
        "--input",
        str(tmp_path / "in.parquet"),
        "--output",
        str(tmp_path / "out"),
        "--title",
        "Tickets & co",
    ]
    assert main(flags) == 0
    told = capsys.readouterr()
    assert [line for line in told.err.splitlines() if line.startswith("[")] == [
        "[1/4] embed",
        "[2/4] mine",
        "[3/4] cluster",
        "[4/4] report",
    ]
    assert str(tmp_path / "out/report.html") in told.out
    page = (tmp_path / "out/report.html").read_text()
    assert "Tickets &amp; co" in page
    assert "<script>alert(1)" not in page
    assert "Of <b>65</b> rows, <b>2</b> were rejected" in page  # rows in, not rows that are left
    assert "rows are nearly the same as a row that is kept" in page
    assert main(flags) == 0
    assert "parts kept  1" in capsys.readouterr().out


def test_submit_hands_over_and_does_no_more(tmp_path, corpus):
    run(corpus, tmp_path / "run", algorithm="kmeans", k="8")
    run(corpus, tmp_path / "out", algorithm="kmeans", k="6")
    options = ClusterOptions(input=str(corpus), output=str(tmp_path / "out"), algorithm="kmeans", k="8")
    cluster.submit(options).wait_until_finish()
    for name in ("assignments", "summary"):
        assert read(tmp_path / "out", name).equals(read(tmp_path / "run", name))
    assert (tmp_path / "out/_cluster").is_dir()
    assert run(corpus, tmp_path / "out", algorithm="kmeans", k="8")["kept from before"] == "yes"


def test_submit_checks_before_it_takes_back(tmp_path, corpus):
    run(corpus, tmp_path, algorithm="kmeans", k="8")
    with pytest.raises(DataError, match=r"has no column 'topic'.*--labels_column"):
        cluster.submit(ClusterOptions(input=str(corpus), output=str(tmp_path), labels_column="topic"))
    with pytest.raises(DataError, match="writes nothing"):
        cluster.submit(ClusterOptions(input=str(corpus), output=str(tmp_path)), ["--runner=DaskRunner"])
    assert run(corpus, tmp_path, algorithm="kmeans", k="8")["kept from before"] == "yes"
