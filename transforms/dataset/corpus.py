"""A corpus of vectors as mining sees it: blocks of rows, read when they are needed, and a rank for every row.

A row's rank is its place when all ids are sorted. Rows are known by rank wherever they are compared or counted, so
that nothing depends on how the corpus is cut into files and blocks.
"""

import dataclasses
import functools
import hashlib
import io
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbert_core.data.columns import comparable_ids
from sbert_core.data.manifest import CorpusState, Manifest, digest_of
from sbert_core.data.schema import FINGERPRINT_KEY, ID, TEXT
from sbert_core.errors import DataError
from sbert_core.neighbors.cosine import unit_rows
from transforms.dataset.files import read_bytes
from transforms.dataset.published import check_sizes, folder_of, read_manifest
from transforms.dataset.slices import InputFile, Task, inspect_file, inspect_files, read_rows, split_file
from transforms.dataset.work_files import need_checked, store_checked

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


def corpus_states(corpora: Sequence[Corpus]) -> tuple[CorpusState, ...]:
    """Corpora as manifests name them."""
    return tuple(CorpusState(rows=corpus.rows, digest=corpus.digest) for corpus in corpora)


def open_corpus(
    patterns: str | Sequence[str], block_rows: int = BLOCK_ROWS, embedding_column: str | None = None
) -> Corpus:
    """Looks into datasets of embed jobs, or into Parquet files from elsewhere where a pattern is a glob of them.

    Several patterns are one corpus. Vectors of several models or dimensions are an error, and so is a folder whose job
    has not finished.
    """
    patterns = [patterns] if isinstance(patterns, str) else list(patterns)
    globs = [pattern for pattern in patterns if "*" in pattern or pattern.endswith(".parquet")]
    manifests = {pattern: read_manifest(folder_of(pattern)) for pattern in patterns if pattern not in globs}
    names = _column_names({pattern: manifests.get(pattern, Manifest()) for pattern in patterns}, embedding_column)
    files = inspect_files(globs) if globs else []
    for pattern, manifest in manifests.items():
        files += _inspect_parts(folder_of(pattern), manifest)
    checked = [_check(file, names) for file in files]
    for file, (dim, fingerprint) in zip(files, checked, strict=True):
        if dim != checked[0][0]:
            raise DataError(f"{file.path} has vectors of {dim} dimensions, {files[0].path} of {checked[0][0]}")
        if fingerprint != checked[0][1]:
            raise DataError(f"{file.path} and {files[0].path} hold vectors of different models: embed them with one")
        for column in (names["id_column"], names["text_column"]):
            kinds = [each.schema.field(column).type for each in (file, files[0])]
            if kinds[0] != kinds[1]:
                raise DataError(f"{file.path}: column {column!r} is {kinds[0]}, and {kinds[1]} in {files[0].path}")
    dim, fingerprint = checked[0] if checked else (0, next(iter(manifests.values()), Manifest()).fingerprint)
    for pattern, manifest in manifests.items():
        if manifest.parts and manifest.fingerprint not in (None, fingerprint):
            raise DataError(f"{pattern} holds vectors of another model than its manifest says: embed it again")
    columns = tuple(files[0].schema.names) if files else ()
    return Corpus(
        name=patterns[0] if len(patterns) == 1 else f"{patterns[0]} and {len(patterns) - 1} more",
        dim=dim,
        fingerprint=fingerprint,
        digest=digest_of([[file.name, file.sha256 or _content_hash(file.path)] for file in files], names),
        columns=tuple(column for column in columns if all(column in file.schema.names for file in files)),
        blocks=_cut(files, block_rows),
        **names,
    )


def _column_names(manifests: dict[str, Manifest], embedding_column: str | None) -> dict[str, str]:
    """What the columns of ids, texts and vectors are called, which must be the same in all datasets of a corpus."""
    first = ""
    names: dict[str, str] = {}
    for pattern, manifest in manifests.items():
        own = {
            "id_column": manifest.id_column or ID,
            "text_column": manifest.settings.get("text_column", TEXT),
            "embedding_column": embedding_column or manifest.settings.get("embedding", "embedding"),
        }
        first, names = first or pattern, names or own
        if own != names:
            name = next(name for name in own if own[name] != names[name])
            raise DataError(f"the {name} of {pattern} is {own[name]!r}, that of {first} {names[name]!r}: rename one")
    return names


def _inspect_parts(folder: str, manifest: Manifest) -> list[InputFile]:
    """Looks into the parts of a dataset; one that is missing, cut or of other rows is an error that names it."""
    check_sizes(folder, manifest.parts)
    files = []
    for part in manifest.parts:
        file = inspect_file(f"{folder}/{part.name}", part.name)
        if file.rows != part.rows:
            raise DataError(
                f"{file.path} has {file.rows} rows, its manifest says {part.rows}: the dataset is damaged. Run the job "
                "that wrote it again"
            )
        files.append(dataclasses.replace(file, sha256=part.sha256 if part.bytes is not None else ""))
    return files


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
    order = pc.sort_indices(comparable_ids(ids))
    ordered = ids.take(order).combine_chunks()
    compared = comparable_ids(ordered)
    same = pc.index(pc.equal(compared[1:], compared[:-1]), True).as_py() if len(ordered) > 1 else -1
    if same >= 0:
        raise DataError(f"{corpus.name} has two rows with the id {ordered[same].as_py()!r}: ids must differ")
    ranks = np.empty(len(ids), np.uint32)
    ranks[order.to_numpy()] = np.arange(len(ids), dtype=np.uint32)
    store_checked(f"{work}/ranks.npy", _array_bytes(ranks))
    store_checked(f"{work}/ids.arrow", _table_bytes(pa.table({ID: ordered})))
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
    return np.load(io.BytesIO(need_checked(f"{work}/ranks.npy")))


def ranks_of_block(corpus: Corpus, block: BlockRef) -> np.ndarray:
    """The ranks (n,) of a block's rows."""
    return _all_ranks(corpus.work)[block.first_row : block.first_row + block.rows]


@functools.lru_cache(maxsize=4)
def sorted_ids(work: str) -> pa.Array:
    """All ids of a ranked corpus: the id of rank r is at place r."""
    return pa.ipc.open_file(need_checked(f"{work}/ids.arrow")).read_all()[ID].combine_chunks()


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
