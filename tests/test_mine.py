"""The mine job on real datasets: what it writes, what it refuses, and that it can be interrupted."""

import functools
import json
import shutil
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

from pipelines import embed, mine
from pipelines.cli import main
from pipelines.embed_options import EmbedOptions
from pipelines.mine_options import MineOptions
from sbert_core.errors import DataError, JobError
from tests.corpora import clustered, run_mine, write_vectors
from tests.mined_outputs import (
    assert_same_results,
    contents,
    nearest_scores,
    pair_ids,
    read_dataset,
    read_manifest,
    read_neighbors,
)
from transforms.dataset.corpus import open_corpus, read_vectors
from transforms.dataset.ordinals import take_rows
from transforms.dataset.sort_steps import assign_ordinals
from transforms.neighbors import exact, group_steps

pytestmark = pytest.mark.slow

DEMO = Path(__file__).parents[1] / "demo"
VECTORS = clustered(300)
OPTIONS = {"top_k": 7, "block_rows": 50}
ROUTED = {"index": "routed", "cells": 40, "probes": 2, "audit_rows": 50}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> str:
    """300 rows in three files; read only."""
    return write_vectors(tmp_path_factory.mktemp("corpus"), VECTORS, 3)


@pytest.fixture(scope="module")
def mined(tmp_path_factory, corpus) -> Path:
    """What exact mining of the corpus wrote; read only."""
    output = tmp_path_factory.mktemp("mined")
    figures = run_mine(corpus, output, **OPTIONS)
    assert (figures["rows"], figures["neighbors"]) == (300, 2100)
    return output


@pytest.fixture(scope="module")
def routed_output(tmp_path_factory, corpus) -> Path:
    """What routed mining of the corpus wrote; read only."""
    output = tmp_path_factory.mktemp("routed")
    run_mine(corpus, output, **OPTIONS, **ROUTED)
    return output


def counters_of(output: Path) -> dict[str, int]:
    return json.loads((output / "neighbors/_run.json").read_text())["counters"]


def test_neighbors_are_those_of_brute_force(mined):
    table = read_neighbors(mined)
    assert np.allclose(table["score"].to_numpy().reshape(300, 7), nearest_scores(VECTORS, 7), atol=1e-5)
    assert table["rank"].to_numpy().reshape(300, 7).tolist() == [[1, 2, 3, 4, 5, 6, 7]] * 300
    assert not pc.any(pc.equal(table["id"], table["neighbor_id"])).as_py()


@pytest.mark.parametrize(("shards", "block_rows"), [(5, 8192), (1, 33)])
def test_shards_and_blocks_have_no_effect(tmp_path, mined, shards, block_rows):
    run_mine(write_vectors(tmp_path / "in", VECTORS, shards), tmp_path / "out", top_k=7, block_rows=block_rows)
    assert_same_results(tmp_path / "out", mined)


def test_routed_result_does_not_depend_on_blocks(tmp_path, routed_output):
    run_mine(write_vectors(tmp_path / "in", VECTORS), tmp_path / "out", top_k=7, **ROUTED)
    assert_same_results(tmp_path / "out", routed_output)


@pytest.mark.parametrize(("index", "pairing"), [("exact", "within"), ("exact", "across"), ("routed", "within")])
def test_groups_restrict_pairs(tmp_path, index, pairing):
    groups = [None if row % 5 == 0 else "abc"[row % 3] for row in range(150)]
    pattern = write_vectors(tmp_path / "in", clustered(150), 2, lang=groups)
    by_id = {f"r{row:05}": group for row, group in enumerate(groups)}
    options = {"group_column": "lang", "pairing": pairing, "index": index, "probes": 20, "min_score": 0.5}
    run_mine(pattern, tmp_path / "out", block_rows=70, **options)
    found = pair_ids(tmp_path / "out/pairs")
    assert found
    assert {by_id[a] == by_id[b] for a, b in found} == {pairing == "within"}


def test_across_two_corpora(tmp_path):
    left, right = clustered(120, seed=1), np.concatenate([clustered(120, seed=1)[::2], clustered(30, seed=2)])
    patterns = [write_vectors(tmp_path / "a", left, 2), write_vectors(tmp_path / "b", right, 3)]
    figures = run_mine(patterns[0], tmp_path / "out", other=patterns[1], top_k=4, block_rows=40, min_score=0.99)
    assert "duplicates" not in figures
    scores = left.astype(np.float64) @ right.T.astype(np.float64)
    found = read_neighbors(tmp_path / "out")["score"].to_numpy().reshape(120, 4)
    assert np.allclose(found, -np.sort(-scores, axis=1)[:, :4], atol=1e-5)
    assert {(f"r{2 * row:05}", f"r{row:05}") for row in range(60)} <= set(pair_ids(tmp_path / "out/pairs"))


def test_incomplete_groups_are_reported_and_chains_are_groups_on_request(tmp_path, capsys):
    angles = np.radians(np.arange(0, 60, 10))
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    pattern = write_vectors(tmp_path / "in", vectors)
    flags = ["mine", "--input", pattern, "--output", str(tmp_path / "out"), "--top_k", "2", "--duplicate_chains"]
    assert main(flags) == 0
    assert read_dataset(tmp_path / "out/duplicates")["size"].to_pylist() == [6] * 6
    assert "at most 4: mine with a larger --top_k" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_smaller_types(tmp_path, dtype):
    vectors = clustered(60, 32)
    stored = (vectors * 127).round().astype(np.int8) if dtype == "int8" else vectors.astype(np.float16)
    run_mine(write_vectors(tmp_path / "in", stored), tmp_path / "out", top_k=3)
    found = read_neighbors(tmp_path / "out")["score"].to_numpy().reshape(60, 3)
    assert np.allclose(found, nearest_scores(stored.astype(np.float32), 3), atol=1e-5)


@pytest.mark.parametrize("index", ["exact", "routed"])
def test_zero_vectors_have_no_neighbors(tmp_path, index):
    vectors = clustered(40)
    vectors[[3, 17]] = 0
    options = {"top_k": 50, "block_rows": 15, "index": index, "cells": 1}
    run_mine(write_vectors(tmp_path / "in", vectors, 2), tmp_path / "out", **options)
    table = read_neighbors(tmp_path / "out")
    assert {"r00003", "r00017"}.isdisjoint(table["id"].to_pylist() + table["neighbor_id"].to_pylist())
    assert len(table) == 38 * 37
    assert counters_of(tmp_path / "out")["mine/zero_vectors"] >= 2


@pytest.mark.parametrize(("rows", "index"), [(0, "exact"), (1, "exact"), (2, "exact"), (0, "routed"), (1, "routed")])
def test_tiny_corpora(tmp_path, rows, index):
    figures = run_mine(write_vectors(tmp_path / "in", np.ones((rows, 4), np.float32)), tmp_path / "out", index=index)
    expected = {0: (0, 0, 0), 1: (0, 0, 0), 2: (2, 1, 2)}[rows]
    assert (figures["neighbors"], figures["pairs"], figures["duplicates"]) == expected


def test_integer_ids_are_ordered_as_numbers(tmp_path):
    pattern = write_vectors(tmp_path / "in", np.ones((12, 4), np.float32), id=list(range(12, 0, -1)))
    run_mine(pattern, tmp_path / "out", top_k=3)
    table = read_neighbors(tmp_path / "out")
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
def test_a_wrong_flag_is_one_line(tmp_path, capsys, flags, text):
    pattern = write_vectors(tmp_path / "in", clustered(5))
    try:
        code = main(["mine", "--input", pattern, "--output", str(tmp_path / "out"), *flags])
    except SystemExit as caught:
        code = caught.code
    errors = capsys.readouterr().err
    assert code == 2
    assert text in errors
    assert len(errors.splitlines()) == 1


def test_second_run_keeps_everything_and_a_change_is_noticed(tmp_path):
    pattern = write_vectors(tmp_path / "in", clustered(100), 2)
    assert run_mine(pattern, tmp_path / "out")["kept from before"] == "no"
    before = contents(tmp_path / "out")
    assert run_mine(pattern, tmp_path / "out")["kept from before"] == "yes"
    assert contents(tmp_path / "out") == before
    assert run_mine(pattern, tmp_path / "out", min_score=0.9)["kept from before"] == "no"
    write_vectors(tmp_path / "in", clustered(100, seed=5), 2)
    assert run_mine(pattern, tmp_path / "out", min_score=0.9)["kept from before"] == "no"
    assert contents(tmp_path / "out") != before
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"neighbors", "pairs", "duplicates"}


def test_submit_starts_the_job_and_does_no_more(tmp_path, corpus, mined):
    shutil.copytree(mined, tmp_path / "out")
    options = MineOptions(input=corpus, output=str(tmp_path / "out"), **OPTIONS, min_score=0.8)
    mine.submit(options).wait_until_finish()
    assert (tmp_path / "out/_mine").is_dir()
    assert read_neighbors(tmp_path / "out").equals(read_neighbors(mined))
    assert 0 < read_manifest(tmp_path / "out/pairs")["rows"] < read_manifest(mined / "pairs")["rows"]
    assert mine.run(options)["kept from before"] == "yes"


def test_submit_checks_its_input_first(tmp_path, corpus, mined):
    other = write_vectors(tmp_path / "other", clustered(50), fingerprint="another")
    shutil.copytree(mined, tmp_path / "out")
    before = contents(tmp_path / "out")
    for options, message in (({"other": other}, "different models"), ({"keep": "newest"}, "belong together")):
        with pytest.raises(DataError, match=message):
            mine.submit(MineOptions(input=corpus, output=str(tmp_path / "out"), **options))
    with pytest.raises(DataError, match="writes nothing"):
        mine.submit(MineOptions(input=corpus, output=str(tmp_path / "out")), ["--runner=DaskRunner"])
    assert contents(tmp_path / "out") == before


def test_another_embedding_column(tmp_path, mined):
    pattern = write_vectors(tmp_path / "in", VECTORS)
    (file,) = (tmp_path / "in").glob("*.parquet")
    pq.write_table(pq.read_table(file).rename_columns(["id", "text", "vector"]), file)
    run_mine(pattern, tmp_path / "out", embedding_column="vector", top_k=7)
    assert_same_results(tmp_path / "out", mined)


@pytest.mark.parametrize("index", ["exact", "routed"])
def test_resumes_after_a_crash(tmp_path, monkeypatch, corpus, mined, routed_output, index):
    options = OPTIONS if index == "exact" else {**OPTIONS, **ROUTED}
    module, name, n_calls = (exact, "compare", 18) if index == "exact" else (group_steps, "join_across", 6)
    compare, calls = getattr(module, name), []
    monkeypatch.setattr(mine, "FindRoutedNeighbors", functools.partial(mine.FindRoutedNeighbors, group_rows=30))

    def crashing(*arguments, **keywords):
        calls.append(1)
        if len(calls) == n_calls:
            raise RuntimeError("the machine is gone")
        return compare(*arguments, **keywords)

    monkeypatch.setattr(module, name, crashing)
    with pytest.raises(JobError, match="the same command continues"):
        run_mine(corpus, tmp_path / "out", **options)
    assert not (tmp_path / "out/pairs").exists()
    monkeypatch.setattr(module, name, compare)
    run_mine(corpus, tmp_path / "out", **options)
    counters = counters_of(tmp_path / "out")
    assert counters["mine/tile_tasks_reused" if index == "exact" else "mine/group_tasks_reused"] >= 10
    assert contents(tmp_path / "out") == contents(mined if index == "exact" else routed_output)


def test_resumes_after_a_kill(tmp_path):
    pattern = write_vectors(tmp_path / "in", clustered(1500, 64), 3)
    options = {"block_rows": 100, "top_k": 4}
    flags = [flag for name, value in options.items() for flag in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "pipelines", "mine", "--input", pattern, "--output", str(tmp_path / "out"), *flags]
    process = subprocess.Popen(command, cwd=DEMO.parent, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(list((tmp_path / "out").glob("_mine/*/tile-*"))) < 5:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.kill()
    process.wait()
    assert not (tmp_path / "out/pairs/_manifest.json").exists()
    run_mine(pattern, tmp_path / "out", **options)
    assert counters_of(tmp_path / "out")["mine/tile_tasks_reused"] >= 5
    run_mine(pattern, tmp_path / "undisturbed", **options)
    assert contents(tmp_path / "out") == contents(tmp_path / "undisturbed")


def test_routed_audits_itself(tmp_path):
    pattern = write_vectors(tmp_path / "in", clustered(800, 24), 2)
    options = {"min_score": 0.8, "top_k": 8}
    run_mine(pattern, tmp_path / "exact", **options)
    for name, probes in (("few", 1), ("all", 30)):
        run_mine(pattern, tmp_path / name, **options, index="routed", probes=probes, cells=30, audit_rows=300)
    true, few = (set(pair_ids(tmp_path / name / "pairs")) for name in ("exact", "few"))
    audit = read_manifest(tmp_path / "few/neighbors")["audit"]
    assert 240 < audit["rows"] < 360
    assert few != true
    low, high = audit["interval_95"]
    assert low < audit["recall"] < high < 1
    assert audit["recall"] == pytest.approx(len(few & true) / len(true), abs=0.1)
    assert read_manifest(tmp_path / "all/neighbors")["audit"]["recall"] == 1
    assert read_manifest(tmp_path / "exact/neighbors")["audit"] == "exact"
    assert_same_results(tmp_path / "all", tmp_path / "exact")


def test_corpus_reads_blocks_and_rows(tmp_path):
    vectors = clustered(100)
    ids = [f"r{row:05}" for row in np.random.default_rng(0).permutation(100)]
    opened = open_corpus(write_vectors(tmp_path / "in", vectors, 3, id=ids), 30)
    corpus = assign_ordinals(opened, str(tmp_path / "work"))
    assert corpus.rows == sum(block.rows for block in corpus.blocks) == 100
    assert max(block.rows for block in corpus.blocks) <= 30
    found, has_direction = read_vectors(corpus, corpus.blocks[0])
    assert np.allclose(found, vectors[: len(found)], atol=1e-6)
    assert has_direction.all()
    ordinals = np.array([3, 50, 99], np.uint32)
    assert take_rows(corpus, ordinals, ["id"])["id"].to_pylist() == ["r00003", "r00050", "r00099"]
    assert len(take_rows(corpus, ordinals[:0], ["id"])) == 0


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> Path:
    """The shipped corpus, all gold pairs and a part of the rest, embedded with the default model."""
    output = tmp_path_factory.mktemp("demo")
    corpus = pa.concat_tables([pq.read_table(path) for path in sorted((DEMO / "sentences").glob("*.parquet"))])
    gold = pq.read_table(DEMO / "gold_pairs.parquet")
    paired = pc.is_in(corpus["id"], pa.concat_arrays([*gold["id_a"].chunks, *gold["id_b"].chunks]))
    chosen = pc.or_(paired, pa.array(np.arange(len(corpus)) % 20 == 0))
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
    assert set(pair_ids(demo / "pairs")) == expected
    found = read_neighbors(demo)["score"].to_numpy().reshape(len(ids), 100)
    assert np.allclose(found, nearest_scores(vectors, 100)[np.argsort(ids)], atol=1e-5)


def test_shipped_gold_pairs_are_found(demo, capsys):
    gold = {tuple(sorted(pair.values())) for pair in pq.read_table(DEMO / "gold_pairs.parquet").to_pylist()}
    topics = dict(
        pair
        for path in (DEMO / "sentences").glob("*.parquet")
        for pair in zip(*(pq.read_table(path)[name].to_pylist() for name in ("id", "topic")), strict=True)
    )
    found = pair_ids(demo / "pairs")
    recall = len(gold & set(found)) / len(gold)
    precision = np.mean([topics[a] == topics[b] for a, b in found])
    with capsys.disabled():
        print(f"\ngold pairs over 0.75: recall {recall:.3f}; pairs within one topic: {precision:.3f}")
    assert recall > 0.6
    assert precision > 0.8
    assert ("t000035", "t000377") in gold & set(found)


def test_several_inputs_are_one_corpus(tmp_path, corpus, mined):
    shards = sorted(str(path) for path in Path(corpus).parent.glob("*.parquet"))
    flags = ["--output", str(tmp_path / "out"), "--top_k", "7", "--block_rows", "50"]
    assert main(["mine", "--input", *shards, corpus, *flags]) == 0  # a file counts once
    assert contents(tmp_path / "out") == contents(mined)


def test_several_inputs_must_be_alike(tmp_path):
    vectors = clustered(20)
    text = write_vectors(tmp_path / "text", vectors[:10])
    number = write_vectors(tmp_path / "number", vectors[10:], id=list(range(10)))
    with pytest.raises(DataError, match="column 'id' is string, and int64 in"):
        open_corpus([number, text])
    with pytest.raises(DataError, match="has not finished"):
        open_corpus([text, str(tmp_path / "number")])


def test_more_neighbors_than_rows_are_all_the_others(tmp_path):
    pattern = write_vectors(tmp_path / "in", clustered(30), 2)
    for index in ("exact", "routed"):
        options = {"index": index, "probes": 50, "cells": 2, "block_rows": 8}
        run_mine(pattern, tmp_path / index, top_k=2_000_000_000, **options)
        assert read_manifest(tmp_path / index / "neighbors")["rows"] == 30 * 29
        assert read_manifest(tmp_path / index / "duplicates")["saturated_rows"] == 0
    assert_same_results(tmp_path / "routed", tmp_path / "exact")
