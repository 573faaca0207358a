"""What the mine job and its transforms write, for tests."""

import json
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.execute import new_pipeline
from transforms.dataset.published import PublishDatasets
from transforms.neighbors.exact import FindNeighbors
from transforms.neighbors.routed import FindRoutedNeighbors


def run_transforms(find: FindNeighbors | FindRoutedNeighbors, steps: dict[str, beam.PTransform]) -> None:
    """Finds neighbours once and applies several transforms to them, in one pipeline: a job for each takes longer."""
    root = new_pipeline((), workers=1)
    mined = root | find
    drafts = tuple(mined | name >> step for name, step in steps.items())
    _ = drafts | PublishDatasets(expected=len(drafts))
    root.run().wait_until_finish()


def read_manifest(folder: Path) -> dict:
    return json.loads((folder / "_manifest.json").read_text())


def read_dataset(folder: Path) -> pa.Table:
    """The rows of a dataset, by its manifest."""
    return pa.concat_tables([pq.read_table(folder / part["name"]) for part in read_manifest(folder)["parts"]])


def read_neighbors(output: Path) -> pa.Table:
    """Neighbours in an order that does not depend on blocks."""
    return read_dataset(output / "neighbors").sort_by([("id", "ascending"), ("rank", "ascending")])


def assert_same_results(output: Path, expected: Path) -> None:
    """All rows of all datasets are equal, whatever files they are in."""
    assert read_neighbors(output).equals(read_neighbors(expected))
    for name in ("pairs", "duplicates"):
        assert read_dataset(output / name).equals(read_dataset(expected / name))


def pair_ids(folder: Path) -> list[tuple[str, str]]:
    table = read_dataset(folder)
    return list(zip(table["id_a"].to_pylist(), table["id_b"].to_pylist(), strict=True))


def contents(output: Path) -> dict[str, bytes]:
    """All files but the record of the run, which has times."""
    files = [path for path in output.rglob("*") if path.is_file() and path.name != "_run.json"]
    return {str(path.relative_to(output)): path.read_bytes() for path in files}


def nearest_scores(vectors: np.ndarray, k: int) -> np.ndarray:
    """The cosines (n, k) of the k nearest other rows of each row, computed in float64."""
    exact = vectors.astype(np.float64)
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    scores = exact @ exact.T
    np.fill_diagonal(scores, -np.inf)
    return -np.sort(-scores, axis=1)[:, :k]
