"""A corpus of vectors: blocks of rows that are read when needed."""

import dataclasses
import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from sbert_core.data.columns import check_has_columns
from sbert_core.data.dataset_reader import folder_of
from sbert_core.data.manifest import CorpusState, Manifest, digest_of
from sbert_core.data.schema import FINGERPRINT_KEY, ID, TEXT
from sbert_core.errors import DataError
from sbert_core.neighbors.cosine import unit_rows
from transforms.dataset.files import read_bytes
from transforms.dataset.published import BEAM_DATASETS
from transforms.dataset.slices import InputFile, InputSlice, inspect_files, inspect_listed, read_rows, split_file

BLOCK_ROWS = 8192


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
    work: str = ""  # the folder with its ordinals and sorted ids; see transforms.dataset.ordinals

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
    inspected = inspect_listed([(f"{folder}/{part.name}", part.name) for part in manifest.parts])
    files = []
    for part, file in zip(manifest.parts, inspected, strict=True):
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
