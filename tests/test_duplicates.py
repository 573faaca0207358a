"""The groups that GroupDuplicates writes, and which row of each is kept."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sbert_core.errors import DataError
from tests.corpora import clustered, write_vectors
from tests.mined_outputs import read_dataset, read_manifest, run_transforms
from transforms.neighbors.duplicates import GroupDuplicates
from transforms.neighbors.exact import FindNeighbors

slow = pytest.mark.slow


def group(folder: Path, pattern: str, rules: dict[str, dict], **find) -> None:
    """Groups duplicates into a folder for each rule."""
    run_transforms(
        FindNeighbors(corpus=pattern, work=str(folder / "_work"), **find),
        {name: GroupDuplicates(folder=str(folder / name), **rule) for name, rule in rules.items()},
    )


def at_angles(*degrees: float) -> np.ndarray:
    """Unit vectors in a plane: the cosine of two is that of the angle between them."""
    angles = np.radians(np.array(degrees))
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def groups_of(folder: Path) -> dict[str, list[str]]:
    """The rows of each kept row."""
    found: dict[str, list[str]] = {}
    for row in read_dataset(folder).to_pylist():
        found.setdefault(row["kept_id"], []).append(row["id"])
    return found


@slow
def test_which_row_is_kept(tmp_path):
    vectors = np.eye(6, dtype=np.float32)[[0, 1, 0, 2, 1, 0, 3]]
    columns = {"text": ["a", "bb", "aaa", "c", "b", "aa", "d"], "day": pa.array([1, 1, None, 1, 5, 2, 9], pa.int64())}
    pattern = write_vectors(tmp_path / "in", vectors, 2, **columns)
    kept = {"first": ["r00000", "r00001"], "longest": ["r00002", "r00001"], "newest": ["r00005", "r00004"]}
    rules = {"first": {}, "longest": {"keep": "longest"}, "newest": {"keep": "newest", "newest_column": "day"}}
    group(tmp_path, pattern, rules)
    for name, expected in kept.items():
        table = read_dataset(tmp_path / name)
        assert table["id"].to_pylist() == ["r00000", "r00002", "r00005", "r00001", "r00004"]
        assert table["group"].to_pylist() == [0, 0, 0, 1, 1]
        assert table["size"].to_pylist() == [3, 3, 3, 2, 2]
        assert table.filter(table["keep"])["id"].to_pylist() == expected
        assert read_manifest(tmp_path / name)["groups"] == 2
        assert read_manifest(tmp_path / name)["saturated_rows"] == 0


@slow
def test_a_duplicate_is_near_the_row_that_is_kept_unless_chains_are_groups(tmp_path):
    chain = (0, 15, 30, 45, 90)  # cos 15 degrees is 0.966, cos 30 degrees 0.866
    pattern = write_vectors(tmp_path / "in", at_angles(*chain), text=["a", "bb", "ccc", "dd", "e"])
    group(tmp_path, pattern, {"first": {}, "longest": {"keep": "longest"}, "chains": {"chains": True}}, block_rows=2)
    assert groups_of(tmp_path / "first") == {"r00000": ["r00000", "r00001"], "r00002": ["r00002", "r00003"]}
    table = read_dataset(tmp_path / "first")
    assert table["keep"].to_pylist() == [True, False, True, False]
    assert np.allclose(table["score"], [1, np.cos(np.radians(15))] * 2)
    assert groups_of(tmp_path / "longest") == {"r00002": ["r00001", "r00002", "r00003"]}
    assert groups_of(tmp_path / "chains") == {"r00000": ["r00000", "r00001", "r00002", "r00003"]}
    scores = read_dataset(tmp_path / "chains")["score"].to_numpy()
    assert np.allclose(scores, np.cos(np.radians(chain[:4])), atol=1e-6)  # to the kept row, even if below the minimum


@slow
def test_a_row_between_two_kept_rows_joins_the_nearer(tmp_path):
    pattern = write_vectors(tmp_path / "in", at_angles(0, 20, 11))
    group(tmp_path, pattern, {"near": {"min_score": 0.97}})
    assert groups_of(tmp_path / "near") == {"r00001": ["r00001", "r00002"]}  # row 0 is kept, and alone
    pattern = write_vectors(tmp_path / "even", at_angles(0, 90, 45))  # as near to both: the lower id decides
    group(tmp_path, pattern, {"tie": {"min_score": 0.7}})
    assert groups_of(tmp_path / "tie") == {"r00000": ["r00000", "r00002"]}


@slow
def test_saturated_rows_are_those_that_can_change_a_group(tmp_path):
    """Of 8 rows in a fan, with 2 or with all neighbours of each."""
    pattern = write_vectors(tmp_path / "in", at_angles(*range(0, 80, 10)))
    for name, k in (("few", 2), ("all", 7)):
        rules = {f"{name}-kept": {}, f"{name}-chains": {"chains": True}}
        group(tmp_path, pattern, {rule: {"min_score": 0.96, **options} for rule, options in rules.items()}, k=k)
    assert read_manifest(tmp_path / "few-kept")["saturated_rows"] == len(groups_of(tmp_path / "few-kept")) - 1
    assert read_manifest(tmp_path / "few-chains")["saturated_rows"] == 6
    assert read_manifest(tmp_path / "all-kept")["saturated_rows"] == 0
    assert read_manifest(tmp_path / "all-chains")["saturated_rows"] == 0


@slow
def test_groups_do_not_depend_on_shards_and_blocks(tmp_path):
    vectors = clustered(200, 6, seed=3)
    tables = []
    for shards, block_rows in ((1, 8192), (5, 37)):
        pattern = write_vectors(tmp_path / f"in{shards}", vectors, shards)
        group(tmp_path, pattern, {f"out{shards}": {}}, block_rows=block_rows, k=200)
        tables.append(read_dataset(tmp_path / f"out{shards}"))
    assert tables[0].equals(tables[1])
    scores = vectors.astype(np.float64) @ vectors.T.astype(np.float64)
    kept: list[int] = []
    for row in range(200):
        if not any(scores[row, other] >= 0.95 for other in kept):
            kept.append(row)
    best = [max(kept, key=lambda other: (scores[row, other], -other)) for row in range(200)]
    numbers = [int(each[1:]) for each in tables[0]["id"].to_pylist()]
    assert [int(each[1:]) for each in tables[0]["kept_id"].to_pylist()] == [best[row] for row in numbers]
    assert set(range(200)) - set(numbers) == {row for row in kept if best.count(row) == 1}


@slow
def test_numbers_and_negation_are_compared_with_the_kept_row(tmp_path):
    texts = ["listens on port 8080", "listens on port 8081", "it never listens on port 8080", "no escucha en el 8080"]
    texts[0] = "it " + texts[0]
    pattern = write_vectors(tmp_path / "in", np.ones((4, 4), np.float32), text=texts)
    group(tmp_path, pattern, {"groups": {}})
    table = read_dataset(tmp_path / "groups")
    assert table["numbers_differ"].to_pylist() == [False, True, False, False]
    assert table["negation_differs"].to_pylist()[2:] == [True, None]


@pytest.mark.parametrize("rule", [{"keep": "newest"}, {"newest_column": "day"}, {"keep": "shortest"}])
def test_impossible_rules(rule):
    with pytest.raises(DataError, match="keep"):
        GroupDuplicates(folder="unused", **rule)
