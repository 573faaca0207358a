"""The mine job on real datasets: what it writes, what it refuses, and that it can be interrupted."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from sentence_transformers.util import paraphrase_mining_embeddings

import transforms.neighbors.exact
from pipelines import embed, mine
from pipelines.cli import main
from pipelines.embed_options import EmbedOptions
from pipelines.mine_options import MineOptions
from sbert_core.encoder.cross_encoder import CrossEncoder
from sbert_core.errors import DataError, JobError
from tests.corpora import clustered, run_mine, write_vectors
from tests.tiny_models import make_classifier
from transforms.dataset.corpus import open_corpus, rank_rows, read_vectors, take_rows

DEMO = Path(__file__).parents[1] / "demo"


def read(output: Path, name: str) -> pa.Table:
    """Reads a dataset by its manifest."""
    parts = json.loads((output / name / "_manifest.json").read_text())["parts"]
    return pa.concat_tables([pq.read_table(output / name / part["name"]) for part in parts])


def manifest(output: Path, name: str) -> dict:
    return json.loads((output / name / "_manifest.json").read_text())


def results(output: Path) -> list[pa.Table]:
    """Everything that was mined, in an order that does not depend on files."""
    order = [("id", "ascending"), ("rank", "ascending")]
    return [read(output, "neighbors").sort_by(order), read(output, "pairs"), read(output, "duplicates")]


def brute_force(vectors: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    exact = vectors.astype(np.float64)
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    scores = exact @ exact.T
    np.fill_diagonal(scores, -np.inf)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(scores, order, axis=1)


def test_neighbors_are_those_of_brute_force(tmp_path):
    vectors = clustered(300)
    figures = run_mine(write_vectors(tmp_path / "in", vectors, 3), tmp_path / "out", top_k=7, block_rows=50)
    assert (figures["rows"], figures["neighbors"]) == (300, 2100)
    table = read(tmp_path / "out", "neighbors").sort_by([("id", "ascending"), ("rank", "ascending")])
    _, scores = brute_force(vectors, 7)
    assert np.allclose(table["score"].to_numpy().reshape(300, 7), scores, atol=1e-5)
    assert table["rank"].to_numpy().reshape(300, 7).tolist() == [[1, 2, 3, 4, 5, 6, 7]] * 300
    assert not pa.compute.any(pa.compute.equal(table["id"], table["neighbor_id"])).as_py()


def test_pairs_are_those_of_sentence_transformers(tmp_path):
    vectors = clustered(300)
    run_mine(write_vectors(tmp_path / "in", vectors, 2), tmp_path / "out", top_k=100, min_score=0.5, block_rows=64)
    theirs = paraphrase_mining_embeddings(torch.from_numpy(vectors), top_k=100)
    expected = {(f"r{min(i, j):05}", f"r{max(i, j):05}") for score, i, j in theirs if score >= 0.5}
    table = read(tmp_path / "out", "pairs")
    assert set(zip(table["id_a"].to_pylist(), table["id_b"].to_pylist(), strict=True)) == expected
    assert len(table) == len(expected) > 100
    assert (np.diff(table["score"].to_numpy()) <= 0).all()
    row = table.slice(0, 1).to_pylist()[0]
    assert row["text_a"] == f"text {int(row['id_a'][1:])}"
    assert row["text_b"] == f"text {int(row['id_b'][1:])}"
    assert row["cosine"] == row["score"]
    assert row["lexical_overlap"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("shards", "options"),
    [(5, {}), (1, {"block_rows": 33}), (3, {"block_rows": 1000}), (2, {"block_rows": 60})],
)
def test_shards_and_blocks_have_no_effect(tmp_path, shards, options):
    vectors = clustered(300)
    run_mine(write_vectors(tmp_path / "one", vectors), tmp_path / "expected", top_k=5)
    run_mine(write_vectors(tmp_path / "in", vectors, shards), tmp_path / "out", top_k=5, **options)
    for table, expected in zip(results(tmp_path / "out"), results(tmp_path / "expected"), strict=True):
        assert table.equals(expected)


def pair_ids(output: Path) -> list[tuple[str, str]]:
    table = read(output, "pairs")
    return list(zip(table["id_a"].to_pylist(), table["id_b"].to_pylist(), strict=True))


def test_pair_options_have_an_effect(tmp_path):
    pattern = write_vectors(tmp_path / "in", clustered(300), 2)

    def pairs(**options) -> list[tuple[str, str]]:
        run_mine(pattern, tmp_path / "out", **{"top_k": 3, "min_score": 0.5, **options})
        return pair_ids(tmp_path / "out")

    all_pairs = pairs()
    assert pairs(max_pairs=10) == all_pairs[:10]
    mutual = pairs(mutual=True)
    assert set(mutual) < set(all_pairs)
    strict = pairs(strict=True)
    counts = np.unique(np.array(strict), return_counts=True)[1]
    assert counts.max() == 3
    assert set(strict) < set(all_pairs)
    assert np.unique(np.array(all_pairs), return_counts=True)[1].max() > 3
    assert set(pairs(margin=True)) == set(all_pairs)
    assert pair_ids(tmp_path / "out") != all_pairs
    assert pairs(max_lexical_overlap=0.1) == []
    assert len(pairs(min_score=0.9)) < len(all_pairs)


def test_lexical_overlap_drops_near_copies(tmp_path):
    texts = ["the red car", "the red car!", "a crimson automobile"]
    pattern = write_vectors(tmp_path / "in", np.ones((3, 4), np.float32), text=texts)
    run_mine(pattern, tmp_path / "out", max_lexical_overlap=0.9)
    assert pair_ids(tmp_path / "out") == [("r00000", "r00002"), ("r00001", "r00002")]


def test_cross_encoder_scores_pairs(tmp_path):
    judge = make_classifier(tmp_path / "judge")
    texts = [f"a man is playing the flute {'again ' * (row % 5)}" for row in range(12)]
    pattern = write_vectors(tmp_path / "in", clustered(12, 4), text=texts)
    run_mine(pattern, tmp_path / "plain", min_score=0.3)
    run_mine(pattern, tmp_path / "judged", min_score=0.3, cross_encoder=str(judge))
    plain, judged = (read(tmp_path / name, "pairs") for name in ("plain", "judged"))
    pairs = list(zip(judged["text_a"].to_pylist(), judged["text_b"].to_pylist(), strict=True))
    assert np.allclose(judged["score"], CrossEncoder.load(str(judge)).score(pairs), atol=1e-6)
    assert (np.diff(judged["score"].to_numpy()) <= 0).all()
    assert sorted(judged["cosine"].to_pylist()) == sorted(plain["cosine"].to_pylist())


@pytest.mark.parametrize("index", ["exact", "routed"])
def test_groups_restrict_pairs(tmp_path, index):
    groups = [None if row % 5 == 0 else "abc"[row % 3] for row in range(300)]
    pattern = write_vectors(tmp_path / "in", clustered(300), 2, lang=groups)
    by_id = {f"r{row:05}": group for row, group in enumerate(groups)}
    for pairing, wanted in (("within", True), ("across", False)):
        options = {"group_column": "lang", "pairing": pairing, "index": index, "routes": 20, "min_score": 0.5}
        run_mine(pattern, tmp_path / pairing, block_rows=70, **options)
        found = pair_ids(tmp_path / pairing)
        assert found
        assert {by_id[a] == by_id[b] for a, b in found} == {wanted}


def test_across_two_corpora(tmp_path):
    left, right = clustered(120, seed=1), np.concatenate([clustered(120, seed=1)[::2], clustered(30, seed=2)])
    patterns = [write_vectors(tmp_path / "a", left, 2), write_vectors(tmp_path / "b", right, 3)]
    figures = run_mine(patterns[0], tmp_path / "out", other=patterns[1], top_k=4, block_rows=40, min_score=0.99)
    assert "duplicates" not in figures
    scores = left.astype(np.float64) @ right.T.astype(np.float64)
    table = read(tmp_path / "out", "neighbors").sort_by([("id", "ascending"), ("rank", "ascending")])
    assert np.allclose(table["score"].to_numpy().reshape(120, 4), -np.sort(-scores, axis=1)[:, :4], atol=1e-5)
    assert {(f"r{2 * row:05}", f"r{row:05}") for row in range(60)} <= set(pair_ids(tmp_path / "out"))


def test_duplicates_and_which_to_keep(tmp_path):
    vectors = np.eye(6, dtype=np.float32)[[0, 1, 0, 2, 1, 0, 3]]
    columns = {
        "text": ["a", "bb", "aaa", "c", "b", "aa", "d"],
        "day": pa.array([1, 1, None, 1, 5, 2, 9], pa.int64()),
    }
    pattern = write_vectors(tmp_path / "in", vectors, 2, **columns)
    kept = {"first": ["r00000", "r00001"], "longest": ["r00002", "r00001"], "newest": ["r00005", "r00004"]}
    for rule, expected in kept.items():
        run_mine(pattern, tmp_path / rule, keep=rule, newest_column="day" if rule == "newest" else None)
        table = read(tmp_path / rule, "duplicates")
        assert table["id"].to_pylist() == ["r00000", "r00002", "r00005", "r00001", "r00004"]
        assert table["group"].to_pylist() == [0, 0, 0, 1, 1]
        assert table["size"].to_pylist() == [3, 3, 3, 2, 2]
        assert table.filter(table["keep"])["id"].to_pylist() == expected
        assert manifest(tmp_path / rule, "duplicates")["groups"] == 2
        assert manifest(tmp_path / rule, "duplicates")["saturated_rows"] == 0
    run_mine(pattern, tmp_path / "saturated", top_k=1)
    assert manifest(tmp_path / "saturated", "duplicates")["saturated_rows"] == 2  # of the two rows that are kept


def at_angles(*degrees: float) -> np.ndarray:
    """Unit vectors in a plane: the cosine of two is that of the angle between them."""
    angles = np.radians(np.array(degrees))
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


CHAIN = (0, 15, 30, 45, 90)  # cos 15 degrees is 0.966, cos 30 degrees 0.866


def groups_of(output: Path) -> dict[str, list[str]]:
    """The rows of each kept row."""
    found: dict[str, list[str]] = {}
    for row in read(output, "duplicates").to_pylist():
        found.setdefault(row["kept_id"], []).append(row["id"])
    return found


def test_a_duplicate_is_near_the_row_that_is_kept(tmp_path):
    pattern = write_vectors(tmp_path / "in", at_angles(*CHAIN), text=["a", "bb", "ccc", "dd", "e"])
    run_mine(pattern, tmp_path / "first")
    assert groups_of(tmp_path / "first") == {"r00000": ["r00000", "r00001"], "r00002": ["r00002", "r00003"]}
    table = read(tmp_path / "first", "duplicates")
    assert table["keep"].to_pylist() == [True, False, True, False]
    assert np.allclose(table["score"], [1, np.cos(np.radians(15))] * 2)
    run_mine(pattern, tmp_path / "longest", keep="longest")
    assert groups_of(tmp_path / "longest") == {"r00002": ["r00001", "r00002", "r00003"]}


def test_chains_are_groups_on_request(tmp_path):
    pattern = write_vectors(tmp_path / "in", at_angles(*CHAIN))
    flags = ["mine", "--input", pattern, "--output", str(tmp_path / "out"), "--block_rows", "2"]
    assert main([*flags, "--duplicate_chains"]) == 0
    assert groups_of(tmp_path / "out") == {"r00000": ["r00000", "r00001", "r00002", "r00003"]}
    scores = read(tmp_path / "out", "duplicates")["score"].to_numpy()
    assert np.allclose(scores, np.cos(np.radians(CHAIN[:4])), atol=1e-6)  # to the kept row, also where that is low
    assert main(flags) == 0
    assert len(groups_of(tmp_path / "out")) == 2


def test_a_row_between_two_kept_rows_joins_the_nearer(tmp_path):
    run_mine(write_vectors(tmp_path / "in", at_angles(0, 20, 11)), tmp_path / "out", duplicate_score=0.97)
    assert groups_of(tmp_path / "out") == {"r00001": ["r00001", "r00002"]}  # and the other is kept, and alone
    run_mine(write_vectors(tmp_path / "even", at_angles(0, 90, 45)), tmp_path / "tie", duplicate_score=0.7)
    assert groups_of(tmp_path / "tie") == {"r00000": ["r00000", "r00002"]}


@pytest.mark.parametrize("chains", [False, True])
def test_saturated_rows_of_the_two_rules(tmp_path, chains):
    """Of 8 rows in a fan, with 2 neighbours of each: only what may change a group is counted."""
    options = {"duplicate_chains": chains, "duplicate_score": 0.96}
    pattern = write_vectors(tmp_path / "in", at_angles(*range(0, 80, 10)))
    figures = run_mine(pattern, tmp_path / "few", top_k=2, **options)
    saturated = manifest(tmp_path / "few", "duplicates")["saturated_rows"]
    assert saturated == (6 if chains else len(groups_of(tmp_path / "few")) - 1)
    assert f"at most {saturated}" in figures["incomplete groups"]
    figures = run_mine(pattern, tmp_path / "all", top_k=7, **options)
    assert manifest(tmp_path / "all", "duplicates")["saturated_rows"] == 0
    assert "incomplete groups" not in figures


def test_duplicates_do_not_depend_on_shards_and_blocks(tmp_path):
    vectors = clustered(400, 6, seed=3)
    expected = None
    for shards, block_rows in ((1, 8192), (5, 37), (3, 64)):
        output = tmp_path / f"out{shards}"
        run_mine(write_vectors(tmp_path / f"in{shards}", vectors, shards), output, block_rows=block_rows, top_k=400)
        table = read(output, "duplicates")
        assert expected is None or table.equals(expected)
        expected = table
    scores = vectors.astype(np.float64) @ vectors.T.astype(np.float64)
    kept = []
    for row in range(400):
        if not any(scores[row, other] >= 0.95 for other in kept):
            kept.append(row)
    best = [max(kept, key=lambda other: (scores[row, other], -other)) for row in range(400)]
    numbers = [int(each[1:]) for each in expected["id"].to_pylist()]
    assert [int(each[1:]) for each in expected["kept_id"].to_pylist()] == [best[row] for row in numbers]
    assert set(range(400)) - set(numbers) == {row for row in kept if best.count(row) == 1}


def test_numbers_and_negation_are_told_apart(tmp_path):
    texts = [
        "the service listens on port 8080",
        "the service listens on port 8081",
        "the service never listens on port 8080",
        "el servicio no escucha en el puerto 8080",
    ]
    run_mine(write_vectors(tmp_path / "in", np.ones((4, 4), np.float32), text=texts), tmp_path / "out")
    found = {
        (row["id_a"][-1] + row["id_b"][-1]): (row["numbers_differ"], row["negation_differs"])
        for row in read(tmp_path / "out", "pairs").to_pylist()
    }
    assert found == {
        "01": (True, False),
        "02": (False, True),
        "03": (False, None),
        "12": (True, True),
        "13": (True, None),
        "23": (False, None),
    }
    table = read(tmp_path / "out", "duplicates")
    assert table["numbers_differ"].to_pylist() == [False, True, False, False]
    assert table["negation_differs"].to_pylist() == [False, False, True, None]


def test_pairs_across_corpora_compare_numbers(tmp_path):
    left = write_vectors(tmp_path / "a", np.ones((2, 4), np.float32), text=["room 1", "room 2"])
    right = write_vectors(tmp_path / "b", np.ones((1, 4), np.float32), text=["room 2"])
    run_mine(left, tmp_path / "out", other=right)
    table = read(tmp_path / "out", "pairs").sort_by("id_a")
    assert table["numbers_differ"].to_pylist() == [True, False]


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_smaller_types(tmp_path, dtype):
    vectors = clustered(100, 32)
    stored = (vectors * 127).round().astype(np.int8) if dtype == "int8" else vectors.astype(np.float16)
    run_mine(write_vectors(tmp_path / "in", stored), tmp_path / "out", top_k=3)
    _, scores = brute_force(stored.astype(np.float32), 3)
    table = read(tmp_path / "out", "neighbors").sort_by([("id", "ascending"), ("rank", "ascending")])
    assert np.allclose(table["score"].to_numpy().reshape(100, 3), scores, atol=1e-5)


@pytest.mark.parametrize("index", ["exact", "routed"])
def test_zero_vectors_have_no_neighbors(tmp_path, index):
    vectors = clustered(40)
    vectors[[3, 17]] = 0
    run_mine(
        write_vectors(tmp_path / "in", vectors, 2), tmp_path / "out", top_k=50, block_rows=15, index=index, cells=1
    )
    table = read(tmp_path / "out", "neighbors")
    assert {"r00003", "r00017"}.isdisjoint(table["id"].to_pylist() + table["neighbor_id"].to_pylist())
    assert len(table) == 38 * 37


@pytest.mark.parametrize("index", ["exact", "routed"])
@pytest.mark.parametrize("rows", [0, 1, 2])
def test_tiny_corpora(tmp_path, rows, index):
    figures = run_mine(write_vectors(tmp_path / "in", np.ones((rows, 4), np.float32)), tmp_path / "out", index=index)
    expected = {0: (0, 0, 0), 1: (0, 0, 0), 2: (2, 1, 2)}[rows]
    assert (figures["neighbors"], figures["pairs"], figures["duplicates"]) == expected


def test_integer_ids_are_ordered_as_numbers(tmp_path):
    pattern = write_vectors(tmp_path / "in", np.ones((12, 4), np.float32), id=list(range(12, 0, -1)))
    run_mine(pattern, tmp_path / "out", top_k=3)
    table = read(tmp_path / "out", "neighbors").sort_by([("id", "ascending"), ("rank", "ascending")])
    assert table["neighbor_id"].to_pylist()[-3:] == [1, 2, 3]
    assert table.schema.field("id").type == pa.int64()


def test_bad_corpora_are_refused(tmp_path):
    vectors = clustered(20)

    def message(*patterns: str, **options) -> str:
        with pytest.raises((DataError, JobError)) as caught:
            run_mine(patterns[0], tmp_path / "out", other=patterns[1] if len(patterns) > 1 else None, **options)
        assert not (tmp_path / "out/pairs/_manifest.json").exists()
        return str(caught.value)

    good = write_vectors(tmp_path / "good", vectors)
    spoiled = vectors.copy()
    spoiled[11, 2] = np.nan
    assert "part-001.parquet row 1 has a vector that is not finite" in message(
        write_vectors(tmp_path / "nan", spoiled, 2)
    )
    assert "two rows with the id 'x'" in message(write_vectors(tmp_path / "ids", vectors, id=["x"] * 20))
    assert "without an id" in message(write_vectors(tmp_path / "null", vectors, id=pa.nulls(20, pa.string())))
    other = write_vectors(tmp_path / "dim", clustered(20, 8))
    assert "16 dimensions" in message(good, other)
    assert "has 8" in message(good, other)
    other = write_vectors(tmp_path / "model", vectors, fingerprint="other")
    assert "different models" in message(good, other)
    write_vectors(tmp_path / "mixed", vectors)
    Path(tmp_path / "model/part-000.parquet").rename(tmp_path / "mixed/part-001.parquet")
    assert "vectors of different models" in message(f"{tmp_path}/mixed/*.parquet")
    assert "no column 'lang'" in message(good, group_column="lang", pairing="within")
    assert "no column 'when'" in message(good, keep="newest", newest_column="when")
    assert "has no column 'embedding'" in message(f"{DEMO}/sentences/*.parquet")
    assert "has not finished" in message(str(tmp_path / "good"))
    assert "within one corpus" in message(good, good, index="routed")


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--top_k", "0"], "--top_k must be at least 1"),
        (["--min_score", "2"], "--min_score is a cosine"),
        (["--index", "hnsw"], "--index is exact or routed"),
        (["--pairing", "within"], "belong together"),
        (["--keep", "newest"], "belong together"),
        (["--keep", "shortest"], "first, longest, newest"),
        (["--min_neighbor_score", "0.9"], "above --min_score"),
        (["--min_neighbor_score", "0.96", "--min_score", "0.97"], "above --duplicate_score"),
        (["--keep", "newest", "--newest_column", "when"], "has no column 'when'"),
        (["--max_lexical_overlap", "2"], "between 0 and 1"),
        (["--topk", "3"], "did you mean --top_k?"),
    ],
)
def test_wrong_flags_are_told_in_one_line(tmp_path, capsys, flags, text):
    pattern = write_vectors(tmp_path / "in", clustered(5))
    try:
        code = main(["mine", "--input", pattern, "--output", str(tmp_path / "out"), *flags])
    except SystemExit as caught:
        code = caught.code
    errors = capsys.readouterr().err
    assert code == 2
    assert text in errors
    assert len(errors.splitlines()) == 1


def contents(output: Path) -> dict[str, bytes]:
    files = [path for path in output.rglob("*") if path.is_file() and path.name != "_run.json"]
    return {str(path.relative_to(output)): path.read_bytes() for path in files}


def test_second_run_keeps_everything_and_a_change_is_noticed(tmp_path):
    pattern = write_vectors(tmp_path / "in", clustered(100), 2)
    assert run_mine(pattern, tmp_path / "out")["kept from before"] == "no"
    before = contents(tmp_path / "out")
    assert run_mine(pattern, tmp_path / "out")["kept from before"] == "yes"
    assert contents(tmp_path / "out") == before
    assert run_mine(pattern, tmp_path / "out", min_score=0.9)["kept from before"] == "no"
    assert run_mine(pattern, tmp_path / "out")["kept from before"] == "no"
    assert contents(tmp_path / "out") == before
    write_vectors(tmp_path / "in", clustered(100, seed=5), 2)
    assert run_mine(pattern, tmp_path / "out")["kept from before"] == "no"
    assert contents(tmp_path / "out") != before
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"neighbors", "pairs", "duplicates"}


def test_submit_hands_over_and_does_no_more(tmp_path):
    pattern = write_vectors(tmp_path / "in", clustered(100), 2)
    run_mine(pattern, tmp_path / "run")
    run_mine(pattern, tmp_path / "out", min_score=0.9)
    mine.submit(MineOptions(input=pattern, output=str(tmp_path / "out"))).wait_until_finish()
    for name in ("neighbors", "pairs", "duplicates"):
        assert manifest(tmp_path / "out", name) == manifest(tmp_path / "run", name)
    assert (tmp_path / "out/_mine").is_dir()
    assert run_mine(pattern, tmp_path / "out")["kept from before"] == "yes"
    for table, expected in zip(results(tmp_path / "out"), results(tmp_path / "run"), strict=True):
        assert table.equals(expected)


def test_submit_checks_before_it_takes_back(tmp_path):
    pattern = write_vectors(tmp_path / "in", clustered(50))
    other = write_vectors(tmp_path / "other", clustered(50), fingerprint="another")
    run_mine(pattern, tmp_path / "out")
    before = contents(tmp_path / "out")
    for options, message in (({"other": other}, "different models"), ({"keep": "newest"}, "belong together")):
        with pytest.raises(DataError, match=message):
            mine.submit(MineOptions(input=pattern, output=str(tmp_path / "out"), **options))
    with pytest.raises(DataError, match="writes nothing"):
        mine.submit(MineOptions(input=pattern, output=str(tmp_path / "out")), ["--runner=DaskRunner"])
    assert contents(tmp_path / "out") == before


def test_another_embedding_column(tmp_path):
    vectors = clustered(40)
    path = write_vectors(tmp_path / "in", vectors)
    (file,) = (tmp_path / "in").glob("*.parquet")
    table = pq.read_table(file)
    pq.write_table(table.rename_columns(["id", "text", "vector"]), file)
    run_mine(write_vectors(tmp_path / "usual", vectors), tmp_path / "expected")
    run_mine(path, tmp_path / "out", embedding_column="vector")
    for found, expected in zip(results(tmp_path / "out"), results(tmp_path / "expected"), strict=True):
        assert found.equals(expected)


@pytest.mark.parametrize("index", ["exact", "routed"])
def test_resumes_after_a_crash(tmp_path, monkeypatch, index):
    pattern = write_vectors(tmp_path / "in", clustered(300), 3)
    options = {"block_rows": 50, "index": index, "cells": 80}
    run_mine(pattern, tmp_path / "undisturbed", **options)
    calls = []
    module = transforms.neighbors.exact if index == "exact" else transforms.neighbors.routed
    original = module.compare

    def crashing(*arguments, **keywords):
        calls.append(1)
        if len(calls) == (18 if index == "exact" else 60):
            raise RuntimeError("the machine is gone")
        return original(*arguments, **keywords)

    monkeypatch.setattr(module, "compare", crashing)
    with pytest.raises(JobError, match="the same command goes on"):
        run_mine(pattern, tmp_path / "out", **options)
    assert not (tmp_path / "out/pairs").exists()
    monkeypatch.setattr(module, "compare", original)
    run_mine(pattern, tmp_path / "out", **options)
    counters = json.loads((tmp_path / "out/neighbors/_run.json").read_text())["counters"]
    assert counters["mine/turns_kept"] >= (10 if index == "exact" else 1)
    assert contents(tmp_path / "out") == contents(tmp_path / "undisturbed")


def test_resumes_after_a_kill(tmp_path):
    pattern = write_vectors(tmp_path / "in", clustered(12_000, 64), 3)
    options = {"block_rows": 400, "top_k": 4}
    flags = [flag for name, value in options.items() for flag in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "pipelines", "mine", "--input", pattern, "--output", str(tmp_path / "out"), *flags]
    process = subprocess.Popen(command, cwd=DEMO.parent, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(list((tmp_path / "out").glob("_mine/*/turn-*"))) < 5:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.kill()
    process.wait()
    assert not (tmp_path / "out/pairs/_manifest.json").exists()
    run_mine(pattern, tmp_path / "out", **options)
    counters = json.loads((tmp_path / "out/neighbors/_run.json").read_text())["counters"]
    assert counters["mine/turns_kept"] >= 5
    run_mine(pattern, tmp_path / "undisturbed", **options)
    assert contents(tmp_path / "out") == contents(tmp_path / "undisturbed")


def test_routed_audits_itself(tmp_path):
    vectors = clustered(2000, 24)
    pattern = write_vectors(tmp_path / "in", vectors, 2)
    run_mine(pattern, tmp_path / "exact", min_score=0.8, top_k=8)
    run_mine(pattern, tmp_path / "few", min_score=0.8, top_k=8, index="routed", routes=1, cells=60, audit_rows=500)
    run_mine(pattern, tmp_path / "all", min_score=0.8, top_k=8, index="routed", routes=60, cells=60, audit_rows=500)
    true, few = set(pair_ids(tmp_path / "exact")), set(pair_ids(tmp_path / "few"))
    audit = manifest(tmp_path / "few", "neighbors")["audit"]
    assert 400 < audit["rows"] < 600
    assert few != true
    low, high = audit["interval_95"]
    assert low < audit["recall"] < high < 1
    assert audit["recall"] == pytest.approx(len(few & true) / len(true), abs=0.1)
    assert manifest(tmp_path / "all", "neighbors")["audit"]["recall"] == 1
    assert manifest(tmp_path / "exact", "neighbors")["audit"] == "exact"
    for table, expected in zip(results(tmp_path / "all"), results(tmp_path / "exact"), strict=True):
        assert table.equals(expected)


def test_routed_result_does_not_depend_on_blocks(tmp_path):
    vectors = clustered(600)
    run_mine(write_vectors(tmp_path / "one", vectors), tmp_path / "a", index="routed", cells=20, routes=2)
    other = write_vectors(tmp_path / "in", vectors, 3)
    run_mine(other, tmp_path / "b", index="routed", cells=20, routes=2, block_rows=90)
    for table, expected in zip(results(tmp_path / "b"), results(tmp_path / "a"), strict=True):
        assert table.equals(expected)


def test_corpus_reads_what_it_is_asked_for(tmp_path):
    vectors = clustered(100)
    ids = [f"r{row:05}" for row in np.random.default_rng(0).permutation(100)]
    corpus = rank_rows(open_corpus(write_vectors(tmp_path / "in", vectors, 3, id=ids), 30), str(tmp_path / "work"))
    assert corpus.rows == sum(block.rows for block in corpus.blocks) == 100
    assert max(block.rows for block in corpus.blocks) <= 30
    found, some = read_vectors(corpus, corpus.blocks[0])
    assert np.allclose(found, vectors[: len(found)], atol=1e-6)
    assert some.all()
    ranks = np.array([3, 50, 99], np.uint32)
    assert take_rows(corpus, ranks, ["id"])["id"].to_pylist() == ["r00003", "r00050", "r00099"]
    assert len(take_rows(corpus, ranks[:0], ["id"])) == 0


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> Path:
    """The shipped corpus, the gold pairs and a fifth of the rest, embedded with the default model."""
    output = tmp_path_factory.mktemp("demo")
    corpus = pa.concat_tables([pq.read_table(path) for path in sorted((DEMO / "sentences").glob("*.parquet"))])
    gold = pq.read_table(DEMO / "gold_pairs.parquet")
    paired = pc.is_in(corpus["id"], pa.concat_arrays([*gold["id_a"].chunks, *gold["id_b"].chunks]))
    chosen = pc.or_(paired, pa.array(np.arange(len(corpus)) % 5 == 0))
    pq.write_table(corpus.filter(chosen), output / "sentences.parquet")
    embed.run(EmbedOptions(input=[str(output / "sentences.parquet")], output=str(output)))
    run_mine(str(output / "embeddings"), output, top_k=100, min_score=0.75)
    return output


def test_shipped_corpus_equals_sentence_transformers(demo):
    table = pa.concat_tables([pq.read_table(path) for path in sorted((demo / "embeddings").glob("*.parquet"))])
    vectors = table["embedding"].combine_chunks().flatten().to_numpy().reshape(len(table), -1)
    ids = table["id"].to_pylist()
    theirs = paraphrase_mining_embeddings(torch.from_numpy(vectors.copy()), top_k=100)
    expected = {tuple(sorted((ids[i], ids[j]))) for score, i, j in theirs if score >= 0.75}
    assert set(pair_ids(demo)) == expected
    _, scores = brute_force(vectors, 100)
    found = read(demo, "neighbors").sort_by([("id", "ascending"), ("rank", "ascending")])
    order = np.argsort(ids)
    assert np.allclose(found["score"].to_numpy().reshape(len(ids), 100), scores[order], atol=1e-5)


def test_shipped_gold_pairs_are_found(demo, capsys):
    gold = {tuple(sorted(pair.values())) for pair in pq.read_table(DEMO / "gold_pairs.parquet").to_pylist()}
    topics = dict(
        pair
        for path in (DEMO / "sentences").glob("*.parquet")
        for pair in zip(*(pq.read_table(path)[name].to_pylist() for name in ("id", "topic")), strict=True)
    )
    found = pair_ids(demo)
    recall = len(gold & set(found)) / len(gold)
    precision = np.mean([topics[a] == topics[b] for a, b in found])
    with capsys.disabled():
        print(f"\ngold pairs over 0.75: recall {recall:.3f}; pairs within one topic: {precision:.3f}")
    assert recall > 0.6
    assert precision > 0.8
    assert ("t000035", "t000377") in gold & set(found)


def test_several_inputs_are_one_corpus(tmp_path):
    vectors = clustered(60)
    run_mine(write_vectors(tmp_path / "all", vectors, 3), tmp_path / "one")
    shards = [str(path) for path in sorted((tmp_path / "all").iterdir())]
    flags = ["--output", str(tmp_path / "several")]
    assert main(["mine", "--input", *shards, *flags]) == 0
    assert contents(tmp_path / "several") == contents(tmp_path / "one")
    assert main(["mine", "--input", shards[0], f"{tmp_path}/all/*.parquet", *flags]) == 0  # a file counts once
    assert contents(tmp_path / "several") == contents(tmp_path / "one")


def test_several_inputs_must_be_alike(tmp_path):
    vectors = clustered(20)
    text = write_vectors(tmp_path / "text", vectors[:10])
    number = write_vectors(tmp_path / "number", vectors[10:], id=list(range(10)))
    with pytest.raises(DataError, match="column 'id' is string, and int64 in"):
        open_corpus([number, text])
    with pytest.raises(DataError, match="has not finished"):
        open_corpus([text, str(tmp_path / "number")])


@pytest.mark.parametrize("index", ["exact", "routed"])
def test_more_neighbors_than_rows_are_all_the_others(tmp_path, index):
    pattern = write_vectors(tmp_path / "in", clustered(30), 2)
    options = {"index": index, "routes": 50, "cells": 2, "block_rows": 8}
    run_mine(pattern, tmp_path / "all", top_k=30, **options)
    run_mine(pattern, tmp_path / "more", top_k=2_000_000_000, **options)
    for one, other in zip(results(tmp_path / "all"), results(tmp_path / "more"), strict=True):
        assert one.equals(other)
    assert len(read(tmp_path / "more", "neighbors")) == 30 * 29
    assert manifest(tmp_path / "more", "duplicates")["saturated_rows"] == 0
