"""`sbert-beam verify`: a whole output passes, every damage is found."""

import dataclasses
import random
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from pipelines import cluster, mine
from pipelines.cli import main
from pipelines.cluster_options import ClusterOptions
from pipelines.mine_options import MineOptions
from sbert_core.data.consistency import Edges, neighbor_problems, vector_problems
from tests.corpora import make_table, run_fake, write_shards
from transforms.dataset.published import read_manifest
from transforms.dataset.verify_output import verify_output
from transforms.dataset.write_parts import write_rows

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """The output of all jobs, with a rejected row."""
    folder = tmp_path_factory.mktemp("finished")
    table = make_table(120)
    texts = table["text"].to_pylist()
    texts[7] = None
    pattern = write_shards(folder / "in", table.set_column(1, "text", pa.array(texts)), 2)
    out = str(folder / "out")
    run_fake(pattern, out, slice_rows=40)
    mine.run(MineOptions(input=f"{out}/embeddings", output=out, min_score=0.5))
    cluster.run(ClusterOptions(input=out, output=out, algorithm="kmeans", k="4", time_column="when"))
    return folder / "out"


@pytest.fixture
def out(finished, tmp_path) -> Path:
    return shutil.copytree(finished, tmp_path / "out")


def problem(out: Path) -> str:
    """The one thing that is wrong."""
    (found,) = verify_output(str(out)).problems
    return found


def test_a_whole_output(out, capsys):
    assert main(["verify", str(out)]) == 0
    told = capsys.readouterr().out
    assert "problems  0" in told
    assert "datasets  8" in told


def test_what_is_wrong_is_printed(out, capsys):
    next((out / "pairs").glob("*.parquet")).unlink()
    assert main(["verify", str(out)]) == 1
    told = capsys.readouterr()
    assert "is missing" in told.out
    assert told.err == f"sbert-beam verify: {out} is not intact: 1 problem. Do not publish it\n"


def test_nothing_to_verify(tmp_path, capsys):
    assert main(["verify", str(tmp_path)]) == 2
    assert "holds no dataset" in capsys.readouterr().err
    assert main(["verify", str(tmp_path), "--runner", "FlinkRunner"]) == 2


def test_every_flipped_bit_is_found(out):
    rng = random.Random(0)
    files = [path for path in sorted(out.rglob("*")) if path.is_file() and path.name != "_run.json"]
    files = [path for path in files if "_ordinals" not in path.parts]  # what is damaged there is computed anew
    for _ in range(40):
        path = rng.choice(files)
        whole = path.read_bytes()
        damaged = bytearray(whole)
        damaged[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        assert verify_output(str(out)).problems or damaged.isspace() or _same_json(whole, damaged), path
        path.write_bytes(whole)
    assert not verify_output(str(out)).problems


def _same_json(whole: bytes, damaged: bytes) -> bool:
    """A space that became another space changes nothing."""
    return whole.split() == bytes(damaged).split()


def replace_part(folder: Path, change) -> None:
    """Changes the rows of the first part, and writes it and the manifest as a job would that made this mistake."""
    manifest = read_manifest(str(folder))
    first = manifest.parts[0]
    table = pq.read_table(folder / first.name)
    changed = change(table)
    written = write_rows(changed.combine_chunks(), str(folder), first.name)
    part = dataclasses.replace(first, rows=written.rows, bytes=written.bytes, sha256=written.sha256)
    (folder / "_manifest.json").write_bytes(manifest.with_parts([part, *manifest.parts[1:]]).to_json())


def set_value(column: str, row: int, value):
    def change(table: pa.Table) -> pa.Table:
        values = table[column].to_pylist()
        values[row] = value(values) if callable(value) else value
        place = table.schema.get_field_index(column)
        return table.set_column(place, table.schema.field(column), pa.array(values, table.schema.field(column).type))

    return change


def drop_row(table: pa.Table) -> pa.Table:
    return table.slice(1)


MISTAKES = {
    "neighbors of an unknown row": ("neighbors", set_value("id", 0, "nobody"), "an id is not in embeddings/"),
    "neighbors out of order": ("neighbors", set_value("score", 0, -0.5), "scores do not descend"),
    "ranks with a gap": ("neighbors", drop_row, "ranks do not count"),
    "a row near itself": ("neighbors", set_value("neighbor_id", 0, lambda ids: "r0000"), "its own neighbour"),
    "pairs out of order": ("pairs", set_value("score", 0, -0.5), "scores do not descend"),
    "a pair with another cosine": ("pairs", set_value("cosine", 3, 0.7), "has another cosine"),
    "a pair below the threshold": ("pairs", set_value("cosine", 3, 0.1), "is below 0.5"),
    "two rows to keep": ("duplicates", set_value("keep", 1, True), "does not keep exactly one row"),
    "a row without a cluster": ("clusters/assignments", drop_row, "119 rows"),
    "noise that has a cluster": ("clusters/assignments", set_value("is_noise", 0, True), "is_noise"),
    "a strength past 1": ("clusters/assignments", set_value("strength", 0, 2.0), "a strength"),
    "a wrong size": ("clusters/summary", set_value("size", 0, 1), "sizes are not those"),
    "an exemplar of another cluster": (
        "clusters/summary",
        set_value("exemplar_ids", 0, lambda lists: lists[1]),
        "an exemplar belongs to another cluster",
    ),
    "a vector that is not a number": (
        "embeddings",
        set_value("embedding", 0, [float("nan"), 0, 0, 0]),
        "1 vectors are not finite",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_results_that_contradict_each_other(out, mistake):
    name, change, expected = MISTAKES[mistake]
    if mistake == "a row without a cluster":
        expected = "rows have a cluster, embeddings/ has 119"
    replace_part(out / name, change)
    found = verify_output(str(out)).problems
    if name == "embeddings":  # what was derived from it is of another state
        assert any(expected in each for each in found)
    else:
        assert any(each.startswith(f"{name}: ") and expected in each for each in found), found


def test_results_of_another_state_of_the_corpus(out):
    def rename(table: pa.Table) -> pa.Table:
        return table.set_column(0, table.schema.field(0), pc.binary_join_element_wise(table["id"], "x", ""))

    replace_part(out / "embeddings", rename)
    assert "was made from another state of embeddings/: run its job again" in problem(out)


def test_ids_twice(out):
    replace_part(out / "embeddings", set_value("id", 0, lambda ids: ids[1]))
    for name in ("neighbors", "pairs", "duplicates", "clusters"):
        shutil.rmtree(out / name)
    assert problem(out) == "embeddings: ids are not unique"


def test_a_lost_row(out):
    replace_part(out / "embeddings", drop_row)
    assert any("their input files have 120" in each for each in verify_output(str(out)).problems)


def test_a_part_that_no_manifest_names(out):
    shutil.copy(next((out / "pairs").glob("*.parquet")), out / "pairs/copy.parquet")
    assert "copy.parquet is not a part of the dataset" in problem(out)


def test_a_dataset_that_is_not_finished(out):
    (out / "pairs/_manifest.json").unlink()
    assert "its job has not finished" in problem(out)


def test_vectors_of_two_models(out):
    manifest = read_manifest(str(out / "pairs"))
    content = dataclasses.replace(manifest, fingerprint="other").to_json()
    (out / "pairs/_manifest.json").write_bytes(content)
    assert "are of different models" in problem(out)


def test_unit_length():
    kind = pa.list_(pa.float32(), 2)
    column = pa.chunked_array([pa.array([[1, 0], [0, 0], [3, 4]], kind)])
    assert list(vector_problems(column, normalized=False)) == []
    assert list(vector_problems(column, normalized=True)) == ["1 vectors are not of unit length"]


def test_edges_are_found_from_both_sides():
    edges = Edges.join([(np.array([0, 2]), np.array([1, 0]), np.array([0.5, 0.25], np.float32))])
    found = edges.between(np.array([1, 0, 0, 1]), np.array([0, 2, 1, 2]))
    assert found[:3].tolist() == [0.5, 0.25, 0.5]
    assert np.isnan(found[3])
    assert np.isnan(Edges.join([]).between(np.array([0]), np.array([1]))).all()


def test_empty_neighbors_are_fine():
    nothing = np.empty(0, np.int64)
    assert list(neighbor_problems(nothing, nothing, nothing, np.empty(0, np.float32), 5)) == []


def test_an_empty_corpus(tmp_path):
    out = str(tmp_path / "out")
    run_fake(write_shards(tmp_path / "in", make_table(1)[:0], 1), out)
    mine.run(MineOptions(input=f"{out}/embeddings", output=out))
    assert verify_output(out).problems == []
