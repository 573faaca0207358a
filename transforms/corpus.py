"""A corpus of vectors as mining sees it: blocks of rows, read when they are needed, and a rank for every row.

A row's rank is its place when all ids are sorted. Rows are known by rank wherever they are compared or counted, so
that nothing depends on how the corpus is cut into files and blocks.
"""

import dataclasses
import functools
import hashlib
import io
import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbert_core.cosine import unit_rows
from sbert_core.errors import DataError
from sbert_core.schema import FINGERPRINT_KEY, ID, TEXT
from transforms.files import MANIFEST, commit, read_bytes, read_manifest
from transforms.tasks import InputFile, Task, inspect_files, read_rows, split_file

BLOCK_ROWS = 8192


@dataclasses.dataclass(frozen=True)
class BlockRef:
    """Where the rows of a block are."""

    number: int
    first_row: int  # in the corpus
    slices: tuple[Task, ...]

    @property
    def rows(self) -> int:
        """Rows in the block."""
        return sum(task.rows for task in self.slices)


@dataclasses.dataclass(frozen=True)
class Corpus:
    """A dataset with an embedding column."""

    name: str
    id_column: str
    text_column: str
    embedding_column: str
    dim: int
    fingerprint: str | None
    digest: str  # of its rows
    columns: tuple[str, ...]
    blocks: tuple[BlockRef, ...]
    work: str = ""  # folder of its ranks

    @property
    def rows(self) -> int:
        """Rows in the corpus."""
        return sum(block.rows for block in self.blocks)


def open_corpus(pattern: str, block_rows: int = BLOCK_ROWS, embedding_column: str | None = None) -> Corpus:
    """Looks into the dataset of an embed job, or into Parquet files from elsewhere if `pattern` is a glob of them.

    Vectors of several models or dimensions are an error, and so is a folder whose job has not finished.
    """
    known = "*" in pattern or pattern.endswith(".parquet")
    manifest = {} if known else read_manifest(pattern.removesuffix(MANIFEST).rstrip("/"))
    settings = manifest.get("settings", {})
    names = {
        "id_column": manifest.get("id_column", ID),
        "text_column": settings.get("text_column", TEXT),
        "embedding_column": embedding_column or settings.get("embedding", "embedding"),
    }
    files = inspect_files([pattern]) if known or manifest["parts"] else []
    checked = [_check(file, names) for file in files]
    for file, (dim, fingerprint) in zip(files, checked, strict=True):
        if dim != checked[0][0]:
            raise DataError(f"{file.path} has vectors of {dim} dimensions, {files[0].path} of {checked[0][0]}")
        if fingerprint != checked[0][1]:
            raise DataError(f"{file.path} and {files[0].path} hold vectors of different models: embed them with one")
    dim, fingerprint = checked[0] if checked else (0, manifest.get("fingerprint"))
    parts = manifest.get("parts") or [[file.name, _content_hash(file.path)] for file in files]
    digest = hashlib.sha256(json.dumps([parts, names], sort_keys=True).encode()).hexdigest()
    return Corpus(
        name=pattern,
        dim=dim,
        fingerprint=fingerprint,
        digest=digest,
        columns=tuple(files[0].schema.names) if files else (),
        blocks=_cut(files, block_rows),
        **names,
    )


def _check(file: InputFile, names: dict[str, str]) -> tuple[int, str | None]:
    for column in names.values():
        if column not in file.schema.names:
            raise DataError(f"{file.path} has no column {column!r}; it has: {', '.join(file.schema.names)}")
    kind = file.schema.field(names["embedding_column"]).type
    if not pa.types.is_fixed_size_list(kind):
        raise DataError(f"{file.path}: column {names['embedding_column']!r} is {kind}, expected fixed_size_list")
    fingerprint = (file.schema.metadata or {}).get(FINGERPRINT_KEY)
    return kind.list_size, fingerprint.decode() if fingerprint else None


def _content_hash(path: str) -> str:
    return hashlib.sha256(read_bytes(path) or b"").hexdigest()


def _cut(files: Sequence[InputFile], block_rows: int) -> tuple[BlockRef, ...]:
    """Slices of files, as many to a block as fit."""
    blocks: list[BlockRef] = []
    slices: list[Task] = []
    first_row = 0

    def close() -> None:
        nonlocal slices, first_row
        if slices:
            blocks.append(BlockRef(len(blocks), first_row, tuple(slices)))
            first_row += blocks[-1].rows
            slices = []

    for task in (task for file in files for task in split_file(file, block_rows)):
        if sum(each.rows for each in slices) + task.rows > block_rows:
            close()
        slices.append(task)
    close()
    return tuple(blocks)


def read_columns(block: BlockRef, columns: Sequence[str]) -> pa.Table:
    """Some columns of a block's rows."""
    pieces = [read_rows(task, columns).select(list(columns)) for task in block.slices]
    return pa.Table.from_batches(pieces).combine_chunks()


def read_vectors(corpus: Corpus, block: BlockRef) -> tuple[np.ndarray, np.ndarray]:
    """A block's unit vectors (n, dim), and which of its rows have a direction (n,)."""
    column = read_columns(block, [corpus.embedding_column])[corpus.embedding_column].combine_chunks()
    if column.null_count:
        raise DataError(f"{block.slices[0].path} has rows without a vector in {corpus.embedding_column!r}")
    values = column.flatten().to_numpy(zero_copy_only=False)
    try:
        return unit_rows(values.reshape(-1, corpus.dim))
    except DataError as error:
        raise DataError(f"{_place(block, str(error))}: embed it again") from error


def _place(block: BlockRef, message: str) -> str:
    """Says in which file a row of a block is."""
    row = int(message.split()[1])
    for task in block.slices:
        if row < task.rows:
            return f"{task.path} row {task.first_row + row} has a vector that is not finite"
        row -= task.rows
    raise AssertionError(f"row {row} is in no slice")


def rank_rows(corpus: Corpus, work: str) -> Corpus:
    """Ranks all rows by id and stores the sorted ids and the ranks below `work`; ids must be there and differ."""
    ids = pa.chunked_array(
        [chunk for block in corpus.blocks for chunk in _ids(corpus, block).chunks] or [pa.array([], pa.string())]
    )
    if ids.null_count:
        raise DataError(f"{corpus.name} has rows without an id in column {corpus.id_column!r}")
    order = pc.sort_indices(ids)
    ordered = ids.take(order).combine_chunks()
    same = pc.index(pc.equal(ordered[1:], ordered[:-1]), True).as_py() if len(ordered) > 1 else -1
    if same >= 0:
        raise DataError(f"{corpus.name} has two rows with the id {ordered[same].as_py()!r}: ids must differ")
    ranks = np.empty(len(ids), np.uint32)
    ranks[order.to_numpy()] = np.arange(len(ids), dtype=np.uint32)
    commit(f"{work}/ranks.npy", _array_bytes(ranks))
    commit(f"{work}/ids.arrow", _table_bytes(pa.table({ID: ordered})))
    return dataclasses.replace(corpus, work=work)


def _ids(corpus: Corpus, block: BlockRef) -> pa.ChunkedArray:
    column = read_columns(block, [corpus.id_column])[corpus.id_column]
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _array_bytes(array: np.ndarray) -> bytes:
    sink = io.BytesIO()
    np.save(sink, array)
    return sink.getvalue()


def _table_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


@functools.lru_cache(maxsize=4)
def _all_ranks(work: str) -> np.ndarray:
    return np.load(io.BytesIO(read_bytes(f"{work}/ranks.npy") or b""))


def ranks_of_block(corpus: Corpus, block: BlockRef) -> np.ndarray:
    """The ranks (n,) of a block's rows."""
    return _all_ranks(corpus.work)[block.first_row : block.first_row + block.rows]


@functools.lru_cache(maxsize=4)
def sorted_ids(work: str) -> pa.Array:
    """All ids of a ranked corpus: the id of rank r is at place r."""
    return pa.ipc.open_file(read_bytes(f"{work}/ids.arrow")).read_all()[ID].combine_chunks()


def take_rows(corpus: Corpus, ranks: np.ndarray, columns: Sequence[str]) -> pa.Table:
    """Columns of the rows with these ranks, which must be sorted and differ; only blocks that have some are read."""
    pieces: list[pa.Table] = []
    found: list[np.ndarray] = []
    for block in corpus.blocks:
        own = ranks_of_block(corpus, block)
        chosen = np.flatnonzero(np.isin(own, ranks))
        if len(chosen):
            pieces.append(read_columns(block, columns).take(pa.array(chosen)))
            found.append(own[chosen])
    if not pieces:
        return pa.table({column: pa.array([]) for column in columns})
    return pa.concat_tables(pieces).take(pa.array(np.argsort(np.concatenate(found))))
