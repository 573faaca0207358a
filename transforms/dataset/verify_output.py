"""Verifies a finished output: every dataset against its manifest, and the datasets against each other.

First the bytes are checked by their hashes, then the content: ids, vectors, and that neighbours, pairs, duplicates and
clusters agree about the same rows. Only integers and scores of all rows are held in memory, never vectors or texts.
"""

import dataclasses
import posixpath
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sbert_core.data.columns import comparable_ids
from sbert_core.data.consistency import (
    Edges,
    assignment_problems,
    duplicate_problems,
    neighbor_problems,
    pair_problems,
    summary_problems,
    vector_problems,
)
from sbert_core.data.manifest import MANIFEST, Manifest, is_as_written
from sbert_core.errors import DataError
from transforms.dataset.corpus import open_corpus
from transforms.dataset.files import list_folder, open_file, read_bytes
from transforms.dataset.published import BEAM_DATASETS, find_manifest, read_dataset, read_part
from transforms.dataset.write_parts import fingerprint_of

DATASETS = (
    *("embeddings", "rejected", "neighbors", "pairs", "duplicates"),
    *("clusters/assignments", "clusters/summary", "clusters/over_time"),
    *("search", "search/queries/embeddings", "search/queries/rejected"),
)

Progress = Callable[[str], None]


@dataclasses.dataclass
class Verification:
    """The datasets below an output folder, and the problems of them."""

    datasets: dict[str, Manifest] = dataclasses.field(default_factory=dict)
    problems: list[str] = dataclasses.field(default_factory=list)

    @property
    def rows(self) -> int:
        """Rows of all datasets."""
        return sum(manifest.rows for manifest in self.datasets.values())


def verify_output(folder: str, progress: Progress = lambda name: None) -> Verification:
    """Reads all datasets below a folder and lists their problems; an output without problems is intact."""
    found = Verification()
    for name in DATASETS:
        progress(name)
        try:
            manifest = _verify_dataset(f"{folder}/{name}")
        except DataError as error:
            found.problems.append(str(error))
            continue
        if manifest is not None:
            found.datasets[name] = manifest
    if not found.datasets and not found.problems:
        raise DataError(f"{folder} holds no dataset: expected {', '.join(DATASETS[:5])} or clusters below it")
    if found.problems:  # the content of damaged parts cannot be compared
        return found
    progress("content")
    found.problems += _verify_content(folder, found.datasets)
    return found


def _verify_dataset(folder: str) -> Manifest | None:
    """Checks one dataset: its manifest, the bytes of its parts, and that its folder holds no other Parquet files."""
    names = list_folder(folder)
    manifest = find_manifest(folder)
    parquet = [name for name in names if name.endswith(".parquet")]
    if manifest is None:
        if parquet:
            raise DataError(f"{folder} has {len(parquet)} parts and no {MANIFEST}: its job has not finished")
        return None
    if not is_as_written(read_bytes(f"{folder}/{MANIFEST}") or b""):
        raise DataError(f"{folder}/{MANIFEST} has changed since it was written: same content, other bytes")
    BEAM_DATASETS.check_sizes(folder, manifest.parts)
    for part in manifest.parts:
        if not BEAM_DATASETS.has_content(f"{folder}/{part.name}", part.sha256):
            raise DataError(f"{folder}/{part.name} has changed since it was written: its hash differs")
    BEAM_DATASETS.check_rows(folder, manifest.parts)
    stray = sorted(set(parquet) - set(manifest.part_names))
    if stray:
        raise DataError(f"{folder}/{stray[0]} is not a part of the dataset, but readers of *.parquet would read it")
    _check_schemas(folder, manifest)
    return manifest


def _check_schemas(folder: str, manifest: Manifest) -> None:
    """Checks that all parts have the same columns, and vectors of the encoder that the manifest records."""
    first: pa.Schema | None = None
    for part in manifest.parts:
        with open_file(f"{folder}/{part.name}") as file:
            schema = pq.read_schema(file)
        first = first or schema
        if not schema.equals(first):
            raise DataError(f"{folder}/{part.name} and {manifest.parts[0].name} differ in their columns")
        fingerprint = fingerprint_of(schema.metadata)
        if manifest.fingerprint and fingerprint not in (None, manifest.fingerprint):
            raise DataError(f"{folder}/{part.name} has vectors of another model than its manifest records")


def _verify_content(folder: str, datasets: dict[str, Manifest]) -> Iterator[str]:
    """The problems of the content of datasets whose bytes are intact."""
    yield from _fingerprint_problems(datasets)
    for name in ("embeddings", "search/queries/embeddings"):
        if name in datasets:
            yield from _row_count_problems(name, datasets)
            for problem in _embedding_problems(f"{folder}/{name}", datasets[name]):
                yield f"{name}: {problem}"
    if "embeddings" not in datasets:
        return
    corpus = open_corpus(f"{folder}/embeddings")
    for name, manifest in datasets.items():
        states = [state.digest for state in manifest.corpora or ()]
        if states and name != "search" and states[0] != corpus.digest:
            yield f"{name} was made from another state of embeddings/: run its job again"
            return
    ids = read_dataset(f"{folder}/embeddings", [corpus.id_column])[corpus.id_column] if corpus.rows else None
    if ids is None:
        return
    rows = _RowIndex(ids)
    if len(rows) < len(ids):
        yield "embeddings: ids are not unique"
        return
    yield from _derived_problems(folder, datasets, rows)


class _RowIndex:
    """The rows of a corpus by id: a row is identified by its index among the distinct ids."""

    def __init__(self, ids: pa.ChunkedArray) -> None:
        self._ids = comparable_ids(ids).unique()

    def __len__(self) -> int:
        return len(self._ids)

    def find(self, ids: pa.ChunkedArray) -> np.ndarray:
        """The row (n,) of each id; -1 for an id that the corpus does not have."""
        ids = comparable_ids(ids)
        if ids.type != self._ids.type:
            ids = ids.cast(self._ids.type)
        return pc.fill_null(pc.index_in(ids, value_set=self._ids), -1).to_numpy().astype(np.int64)


def _fingerprint_problems(datasets: dict[str, Manifest]) -> Iterator[str]:
    fingerprints = {name: manifest.fingerprint for name, manifest in datasets.items() if manifest.fingerprint}
    if len(set(fingerprints.values())) > 1:
        names = sorted(fingerprints, key=lambda name: (str(fingerprints[name]), name))
        yield f"{names[0]} and {names[-1]} are of different models"


def _row_count_problems(name: str, datasets: dict[str, Manifest]) -> Iterator[str]:
    """Every input row is either embedded or rejected."""
    manifest = datasets[name]
    rejected_name = f"{posixpath.dirname(name)}/rejected".lstrip("/")
    if rejected_name not in datasets:
        yield f"{name} has no rejected/ beside it: the job has not finished"
        return
    rejected = datasets[rejected_name]
    rows = manifest.rows + rejected.rows
    if manifest.inputs is not None and rows != sum(file.rows for file in manifest.inputs):
        yield (
            f"{name} and {rejected_name} have {rows} rows, their input files have "
            f"{sum(file.rows for file in manifest.inputs)}"
        )
    recorded = sum(part.rejected or 0 for part in manifest.parts)
    if recorded != rejected.rows:
        yield f"{rejected_name} has {rejected.rows} rows, the parts of {name} record {recorded}"


def _embedding_problems(folder: str, manifest: Manifest) -> Iterator[str]:
    id_column, column = str(manifest.id_column), str(manifest.settings.get("embedding", "embedding"))
    for part in manifest.parts:
        table = read_part(folder, part, [id_column, column])
        if table[id_column].null_count:
            yield f"{part.name}: {table[id_column].null_count} rows have no id"
        for problem in vector_problems(table[column], bool(manifest.normalized)):
            yield f"{part.name}: {problem}"


def _derived_problems(folder: str, datasets: dict[str, Manifest], rows: _RowIndex) -> Iterator[str]:
    """The problems of datasets that were computed from the embeddings; results across two corpora are not compared."""
    within = [name for name in ("neighbors", "pairs", "duplicates") if len(_corpora(datasets, name)) == 1]
    edges = None
    if "neighbors" in within:
        problems, edges = _read_edges(f"{folder}/neighbors", datasets["neighbors"], rows)
        yield from (f"neighbors: {problem}" for problem in problems)
    if "pairs" in within:
        table = read_dataset(f"{folder}/pairs", ["id_a", "id_b", "score", "cosine"])
        first, second = rows.find(table["id_a"]), rows.find(table["id_b"])
        min_score = datasets["pairs"].settings.get("min_score")
        yield from (f"pairs: {problem}" for problem in pair_problems(table, first, second, edges, min_score))
    if "duplicates" in within:
        table = read_dataset(f"{folder}/duplicates")
        yield from (f"duplicates: {problem}" for problem in duplicate_problems(table, rows.find, edges))
    if "clusters/assignments" in datasets and "clusters/summary" in datasets:
        table = read_dataset(f"{folder}/clusters/assignments", ["id", "cluster", "strength", "is_noise"])
        labels, problems = assignment_problems(table, rows.find(table["id"]) if len(table) else None, len(rows))
        yield from (f"clusters/assignments: {problem}" for problem in problems)
        if labels is not None:
            summary = read_dataset(f"{folder}/clusters/summary")
            yield from (f"clusters/summary: {problem}" for problem in summary_problems(summary, labels, rows.find))


def _corpora(datasets: dict[str, Manifest], name: str) -> tuple[Any, ...]:
    return datasets[name].corpora or () if name in datasets else ()


def _read_edges(folder: str, manifest: Manifest, rows: _RowIndex) -> tuple[list[str], Edges]:
    """The problems of the neighbours, and the neighbours themselves; all neighbours of a row are in one part."""
    problems: list[str] = []
    pieces = []
    for part in manifest.parts:
        table = read_part(folder, part, ["id", "neighbor_id", "rank", "score"])
        own, neighbors = rows.find(table["id"]), rows.find(table["neighbor_id"])
        ranks, scores = table["rank"].to_numpy(), table["score"].to_numpy()
        found = neighbor_problems(own, neighbors, ranks, scores, manifest.settings.get("top_k"))
        problems += [f"{part.name}: {problem}" for problem in found]
        pieces.append((own, neighbors, scores))
    return problems, Edges.join(pieces)
