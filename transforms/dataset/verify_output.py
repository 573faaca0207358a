"""Whether a finished output is whole: every dataset against its manifest, and the datasets against each other.

Bytes are checked by hashes, then the content: ids, vectors, and that neighbours, pairs, duplicates and clusters say the
same of the same rows. Only integers and scores of all rows are held in memory, never vectors or texts.
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
from transforms.dataset.published import (
    check_rows,
    check_sizes,
    content_matches,
    find_manifest,
    read_dataset,
    read_part,
)
from transforms.dataset.write_parts import fingerprint_of

DATASETS = (
    *("embeddings", "rejected", "neighbors", "pairs", "duplicates"),
    *("clusters/assignments", "clusters/summary", "clusters/over_time"),
    *("search", "search/queries/embeddings", "search/queries/rejected"),
)

Progress = Callable[[str], None]


@dataclasses.dataclass
class Verification:
    """What was found below an output folder."""

    datasets: dict[str, Manifest] = dataclasses.field(default_factory=dict)
    problems: list[str] = dataclasses.field(default_factory=list)

    @property
    def rows(self) -> int:
        """Rows of all datasets."""
        return sum(manifest.rows for manifest in self.datasets.values())


def verify_output(folder: str, progress: Progress = lambda name: None) -> Verification:
    """Reads all datasets below a folder and lists what is wrong with them; no problem means that they are whole."""
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
    if found.problems:  # content of parts that are damaged says nothing
        return found
    progress("content")
    found.problems += _verify_content(folder, found.datasets)
    return found


def _verify_dataset(folder: str) -> Manifest | None:
    """Checks a dataset alone: its manifest, its parts byte for byte, and what else lies in its folder."""
    names = list_folder(folder)
    manifest = find_manifest(folder)
    parquet = [name for name in names if name.endswith(".parquet")]
    if manifest is None:
        if parquet:
            raise DataError(f"{folder} has {len(parquet)} parts and no {MANIFEST}: its job has not finished")
        return None
    if not is_as_written(read_bytes(f"{folder}/{MANIFEST}") or b""):
        raise DataError(f"{folder}/{MANIFEST} has changed since it was written: it says the same in other bytes")
    check_sizes(folder, manifest.parts)
    for part in manifest.parts:
        if not content_matches(f"{folder}/{part.name}", part):
            raise DataError(f"{folder}/{part.name} has changed since it was written: its hash is another")
    check_rows(folder, manifest.parts)
    stray = sorted(set(parquet) - set(manifest.part_names))
    if stray:
        raise DataError(f"{folder}/{stray[0]} is not a part of the dataset, and a reader of *.parquet would take it")
    _check_schemas(folder, manifest)
    return manifest


def _check_schemas(folder: str, manifest: Manifest) -> None:
    """All parts have the same columns, and vectors of the encoder that the manifest names."""
    first: pa.Schema | None = None
    for part in manifest.parts:
        with open_file(f"{folder}/{part.name}") as file:
            schema = pq.read_schema(file)
        first = first or schema
        if not schema.equals(first):
            raise DataError(f"{folder}/{part.name} and {manifest.parts[0].name} differ in their columns")
        own = fingerprint_of(schema.metadata)
        if manifest.fingerprint and own not in (None, manifest.fingerprint):
            raise DataError(f"{folder}/{part.name} has vectors of another model than its manifest says")


def _verify_content(folder: str, datasets: dict[str, Manifest]) -> Iterator[str]:
    """What is wrong with the content of datasets whose bytes are right."""
    yield from _fingerprint_problems(datasets)
    for name in ("embeddings", "search/queries/embeddings"):
        if name in datasets:
            yield from _account_problems(name, datasets)
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
    rows = _Rows(ids)
    if len(rows) < len(ids):
        yield "embeddings: ids are not unique"
        return
    yield from _derived_problems(folder, datasets, rows)


class _Rows:
    """The rows of a corpus by id."""

    def __init__(self, ids: pa.ChunkedArray) -> None:
        self._ids = comparable_ids(ids).unique()

    def __len__(self) -> int:
        return len(self._ids)

    def places(self, ids: pa.ChunkedArray) -> np.ndarray:
        """The place (n,) of each id in the corpus, -1 of one that is not in it."""
        ids = comparable_ids(ids)
        if ids.type != self._ids.type:
            ids = ids.cast(self._ids.type)
        return pc.fill_null(pc.index_in(ids, value_set=self._ids), -1).to_numpy().astype(np.int64)


def _fingerprint_problems(datasets: dict[str, Manifest]) -> Iterator[str]:
    found = {name: manifest.fingerprint for name, manifest in datasets.items() if manifest.fingerprint}
    if len(set(found.values())) > 1:
        names = sorted(found, key=lambda name: (str(found[name]), name))
        yield f"{names[0]} and {names[-1]} are of different models"


def _account_problems(name: str, datasets: dict[str, Manifest]) -> Iterator[str]:
    manifest = datasets[name]
    other = f"{posixpath.dirname(name)}/rejected".lstrip("/")
    if other not in datasets:
        yield f"{name} has no rejected/ beside it: the job has not finished"
        return
    rejected = datasets[other]
    if manifest.inputs is not None and manifest.rows + rejected.rows != sum(file.rows for file in manifest.inputs):
        yield f"{name} and {other} have {manifest.rows + rejected.rows} rows, their input files have another number"
    counted = sum(part.rejected or 0 for part in manifest.parts)
    if counted != rejected.rows:
        yield f"{other} has {rejected.rows} rows, the parts of {name} count {counted}"


def _embedding_problems(folder: str, manifest: Manifest) -> Iterator[str]:
    id_column, column = str(manifest.id_column), str(manifest.settings.get("embedding", "embedding"))
    for part in manifest.parts:
        table = read_part(folder, part, [id_column, column])
        if table[id_column].null_count:
            yield f"{part.name}: {table[id_column].null_count} rows have no id"
        for problem in vector_problems(table[column], bool(manifest.normalized)):
            yield f"{part.name}: {problem}"


def _derived_problems(folder: str, datasets: dict[str, Manifest], rows: _Rows) -> Iterator[str]:
    within = [name for name in ("neighbors", "pairs", "duplicates") if len(_corpora(datasets, name)) == 1]
    edges = None
    if "neighbors" in within:
        problems, edges = _read_edges(f"{folder}/neighbors", datasets["neighbors"], rows)
        yield from (f"neighbors: {problem}" for problem in problems)
    if "pairs" in within:
        table = read_dataset(f"{folder}/pairs", ["id_a", "id_b", "score", "cosine"])
        settings = datasets["pairs"].settings
        ends = rows.places(table["id_a"]), rows.places(table["id_b"])
        yield from (f"pairs: {each}" for each in pair_problems(table, *ends, edges, settings.get("min_score")))
    if "duplicates" in within:
        table = read_dataset(f"{folder}/duplicates")
        yield from (f"duplicates: {each}" for each in duplicate_problems(table, rows.places, edges))
    if "clusters/assignments" in datasets and "clusters/summary" in datasets:
        table = read_dataset(f"{folder}/clusters/assignments", ["id", "cluster", "strength", "is_noise"])
        labels, problems = assignment_problems(table, rows.places(table["id"]) if len(table) else None, len(rows))
        yield from (f"clusters/assignments: {problem}" for problem in problems)
        if labels is not None:
            summary = read_dataset(f"{folder}/clusters/summary")
            yield from (f"clusters/summary: {each}" for each in summary_problems(summary, labels, rows.places))


def _corpora(datasets: dict[str, Manifest], name: str) -> tuple[Any, ...]:
    return datasets[name].corpora or () if name in datasets else ()


def _read_edges(folder: str, manifest: Manifest, rows: _Rows) -> tuple[list[str], Edges]:
    """Neighbours of all rows, part by part: a row's are in one part."""
    problems: list[str] = []
    pieces = []
    for part in manifest.parts:
        table = read_part(folder, part, ["id", "neighbor_id", "rank", "score"])
        own, other = rows.places(table["id"]), rows.places(table["neighbor_id"])
        scores = table["score"].to_numpy()
        found = neighbor_problems(own, other, table["rank"].to_numpy(), scores, manifest.settings.get("top_k"))
        problems += [f"{part.name}: {problem}" for problem in found]
        pieces.append((own, other, scores))
    return problems, Edges.join(pieces)
