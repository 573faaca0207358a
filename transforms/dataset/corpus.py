"""A corpus of vectors: blocks of rows that are read when needed, and an ordinal for every row.

The ordinal of a row is its position when all ids are sorted. Steps that compare or count rows identify them by ordinal,
so that no result depends on how the corpus is divided into files and blocks.
"""

import dataclasses
import hashlib
import io
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbert_core.data.columns import check_has_columns, comparable_ids
from sbert_core.data.dataset_reader import folder_of
from sbert_core.data.manifest import CorpusState, Manifest, digest_of
from sbert_core.data.schema import FINGERPRINT_KEY, ID, TEXT
from sbert_core.errors import DataError
from sbert_core.neighbors.cosine import unit_rows
from sbert_core.process_cache import process_cache
from transforms.dataset.files import read_bytes
from transforms.dataset.published import BEAM_DATASETS
from transforms.dataset.slices import InputFile, InputSlice, inspect_file, inspect_files, read_rows, split_file
from transforms.dataset.work_files import need_checked, store_checked

BLOCK_ROWS = 8192
CACHED_CORPORA = 4
"""Corpora whose ordinals and ids stay in the memory of a process: a job compares at most two, and tests run several."""


@dataclasses.dataclass(frozen=True)
class BlockRef:
    """Where the rows of a block are."""

    number: int
    first_row: int  # in the corpus
    slices: tuple[InputSlice, ...]

    @property
    def rows(self) -> int:
        """Rows in the block."""
        return sum(input_slice.rows for input_slice in self.slices)


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
    work: str = ""  # the folder with its ordinals and sorted ids; see assign_ordinals

    @property
    def rows(self) -> int:
        """Rows in the corpus."""
        return sum(block.rows for block in self.blocks)


def corpus_states(corpora: Sequence[Corpus]) -> tuple[CorpusState, ...]:
    """Corpora as manifests record them."""
    return tuple(CorpusState(rows=corpus.rows, digest=corpus.digest) for corpus in corpora)


def open_corpus(
    patterns: str | Sequence[str], block_rows: int = BLOCK_ROWS, embedding_column: str | None = None
) -> Corpus:
    """Inspects datasets of embed jobs, or Parquet files from elsewhere if a pattern is a glob.

    Several patterns are one corpus. Vectors of different models or dimensions are an error, and so is a folder whose
    job has not finished.
    """
    patterns = [patterns] if isinstance(patterns, str) else list(patterns)
    globs = [pattern for pattern in patterns if "*" in pattern or pattern.endswith(".parquet")]
    manifests = {
        pattern: BEAM_DATASETS.read_manifest(folder_of(pattern)) for pattern in patterns if pattern not in globs
    }
    names = _column_names({pattern: manifests.get(pattern, Manifest()) for pattern in patterns}, embedding_column)
    files = inspect_files(globs) if globs else []
    for pattern, manifest in manifests.items():
        files += _inspect_parts(folder_of(pattern), manifest)
    dim, fingerprint = _check_files(files, names)
    for pattern, manifest in manifests.items():
        if manifest.parts and manifest.fingerprint not in (None, fingerprint):
            raise DataError(f"{pattern} holds vectors of another model than its manifest records: embed it again")
    if not files:
        fingerprint = next(iter(manifests.values()), Manifest()).fingerprint
    columns = tuple(files[0].schema.names) if files else ()
    return Corpus(
        name=patterns[0] if len(patterns) == 1 else f"{patterns[0]} and {len(patterns) - 1} more",
        dim=dim,
        fingerprint=fingerprint,
        digest=digest_of([[file.name, file.sha256 or _content_hash(file.path)] for file in files], names),
        columns=tuple(column for column in columns if all(column in file.schema.names for file in files)),
        blocks=_make_blocks(files, block_rows),
        **names,
    )


def _column_names(manifests: dict[str, Manifest], embedding_column: str | None) -> dict[str, str]:
    """The names of the columns of ids, texts and vectors, which must be the same in all datasets of a corpus."""
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
    """Inspects the parts of a dataset; one that is missing, cut, or has other rows is an error that names it."""
    BEAM_DATASETS.check_sizes(folder, manifest.parts)
    files = []
    for part in manifest.parts:
        file = inspect_file(f"{folder}/{part.name}", part.name)
        if file.rows != part.rows:
            raise DataError(
                f"{file.path} has {file.rows} rows, its manifest records {part.rows}: the dataset is damaged. Run the "
                "job that wrote it again"
            )
        files.append(dataclasses.replace(file, sha256=part.sha256 if part.bytes is not None else ""))
    return files


def _check_files(files: Sequence[InputFile], names: dict[str, str]) -> tuple[int, str | None]:
    """The dimension and the fingerprint of the vectors, which must be the same in all files."""
    models = [_check_file(file, names) for file in files]
    for file, (dim, fingerprint) in zip(files, models, strict=True):
        first = files[0]
        if dim != models[0][0]:
            raise DataError(f"{file.path} has vectors of {dim} dimensions, {first.path} of {models[0][0]}")
        if fingerprint != models[0][1]:
            raise DataError(f"{file.path} and {first.path} hold vectors of different models: embed them with one")
        for column in (names["id_column"], names["text_column"]):
            kind, first_kind = (each.schema.field(column).type for each in (file, first))
            if kind != first_kind:
                raise DataError(f"{file.path}: column {column!r} is {kind}, and {first_kind} in {first.path}")
    return models[0] if models else (0, None)


def _check_file(file: InputFile, names: dict[str, str]) -> tuple[int, str | None]:
    check_has_columns(file.path, file.schema.names, list(names.values()))
    kind = file.schema.field(names["embedding_column"]).type
    if not pa.types.is_fixed_size_list(kind):
        raise DataError(f"{file.path}: column {names['embedding_column']!r} is {kind}, expected fixed_size_list")
    fingerprint = (file.schema.metadata or {}).get(FINGERPRINT_KEY)
    return kind.list_size, fingerprint.decode() if fingerprint else None


def _content_hash(path: str) -> str:
    return hashlib.sha256(read_bytes(path) or b"").hexdigest()


def _make_blocks(files: Sequence[InputFile], block_rows: int) -> tuple[BlockRef, ...]:
    """Blocks of at most `block_rows` rows, each of consecutive slices of files."""
    groups: list[list[InputSlice]] = []
    rows = block_rows  # of the last group; as if one before the first were full
    for input_slice in (each for file in files for each in split_file(file, block_rows)):
        if rows + input_slice.rows > block_rows:
            groups.append([])
            rows = 0
        groups[-1].append(input_slice)
        rows += input_slice.rows
    blocks: list[BlockRef] = []
    for group in groups:
        first_row = blocks[-1].first_row + blocks[-1].rows if blocks else 0
        blocks.append(BlockRef(len(blocks), first_row, tuple(group)))
    return tuple(blocks)


def read_columns(block: BlockRef, columns: Sequence[str]) -> pa.Table:
    """Some columns of a block's rows."""
    pieces = [read_rows(input_slice, columns).select(list(columns)) for input_slice in block.slices]
    return pa.Table.from_batches(pieces).combine_chunks()


def read_vectors(corpus: Corpus, block: BlockRef) -> tuple[np.ndarray, np.ndarray]:
    """The unit vectors (n, dim) of a block, and which of its rows have a direction, i.e. are not zero (n,)."""
    column = read_columns(block, [corpus.embedding_column])[corpus.embedding_column].combine_chunks()
    if column.null_count:
        raise DataError(f"{block.slices[0].path} has rows without a vector in {corpus.embedding_column!r}")
    vectors = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, corpus.dim)
    try:
        return unit_rows(vectors)
    except DataError as error:
        row = int(np.argmin(np.isfinite(vectors).all(axis=1)))
        raise DataError(f"{_place(block, row)} has a vector that is not finite: embed it again") from error


def _place(block: BlockRef, row: int) -> str:
    """The file and the row in it of a row of a block."""
    for input_slice in block.slices:
        if row < input_slice.rows:
            return f"{input_slice.path} row {input_slice.first_row + row}"
        row -= input_slice.rows
    raise AssertionError(f"row {row} is in no slice")


def assign_ordinals(corpus: Corpus, work: str) -> Corpus:
    """Sorts all rows by id and stores the sorted ids and the ordinals of rows below `work`; ids must be unique."""
    ids = pa.chunked_array(
        [chunk for block in corpus.blocks for chunk in _ids(corpus, block).chunks] or [pa.array([], pa.string())]
    )
    if ids.null_count:
        raise DataError(f"{corpus.name} has rows without an id in column {corpus.id_column!r}")
    order = pc.sort_indices(comparable_ids(ids))
    ordered = ids.take(order).combine_chunks()
    compared = comparable_ids(ordered)
    repeated = pc.index(pc.equal(compared[1:], compared[:-1]), True).as_py() if len(ordered) > 1 else -1
    if repeated >= 0:
        raise DataError(f"{corpus.name} has two rows with the id {ordered[repeated].as_py()!r}: ids must be unique")
    ordinals = np.empty(len(ids), np.uint32)
    ordinals[order.to_numpy()] = np.arange(len(ids), dtype=np.uint32)
    store_checked(f"{work}/ordinals.npy", _array_bytes(ordinals))
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


@process_cache(max_entries=CACHED_CORPORA)
def _read_ordinals(work: str) -> np.ndarray:
    """The ordinals (n,) of all rows; cached because every block of the corpus needs some."""
    return np.load(io.BytesIO(need_checked(f"{work}/ordinals.npy")))


def ordinals_of_block(corpus: Corpus, block: BlockRef) -> np.ndarray:
    """The ordinals (n,) of a block's rows."""
    return _read_ordinals(corpus.work)[block.first_row : block.first_row + block.rows]


@process_cache(max_entries=CACHED_CORPORA)
def sorted_ids(work: str) -> pa.Array:
    """All ids of a corpus, indexed by ordinal; cached because every part that is written needs some."""
    return pa.ipc.open_file(need_checked(f"{work}/ids.arrow")).read_all()[ID].combine_chunks()


def take_rows(corpus: Corpus, ordinals: np.ndarray, columns: Sequence[str]) -> pa.Table:
    """Columns of the rows with these ordinals, which must be sorted and distinct; only blocks with some are read."""
    pieces: list[pa.Table] = []
    found: list[np.ndarray] = []
    for block in corpus.blocks:
        block_ordinals = ordinals_of_block(corpus, block)
        chosen = np.flatnonzero(np.isin(block_ordinals, ordinals))
        if len(chosen):
            pieces.append(read_columns(block, columns).take(pa.array(chosen)))
            found.append(block_ordinals[chosen])
    if not pieces:
        return pa.table({column: pa.array([]) for column in columns})
    return pa.concat_tables(pieces).take(pa.array(np.argsort(np.concatenate(found))))
