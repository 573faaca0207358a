"""The files that hold the ordinals of a corpus, in a folder that is named by the digest of the corpus.

    ids-000000.arrow      the ids of a range, sorted
    rows-000000.npy       the row in the corpus of each of them
    ordinals-000000.npy   the ordinals of consecutive rows of the corpus: a chunk
    index.json            written last: the numbers of ids in the ranges, the rows of a chunk, the type of ids

Chunks do not depend on files and blocks, so jobs with other blocks use the same files. All files are work files: what
is damaged counts as missing, and the next job writes it again.
"""

import base64
import dataclasses
import functools
import io
import json
import posixpath
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from sbert_core.data.dataset_reader import folder_of
from sbert_core.data.schema import ID
from sbert_core.process_cache import ByteCache, process_cache
from transforms.dataset.corpus import Corpus
from transforms.dataset.work_files import load_checked, need_checked, store_checked

ORDINALS_FOLDER = "_ordinals"
"""The folder below the output of a job that keeps ordinals for the next job."""

CACHED_ID_BYTES = 256 * 2**20
CACHED_NUMBER_BYTES = 128 * 2**20  # of rows and ordinals, 4 bytes each

_ids = ByteCache(CACHED_ID_BYTES)
_numbers = ByteCache(CACHED_NUMBER_BYTES)


@dataclasses.dataclass(frozen=True)
class OrdinalIndex:
    """What is in the folder of a corpus."""

    counts: tuple[int, ...]  # ids in each range
    chunk_rows: int
    id_type: pa.DataType

    @property
    def rows(self) -> int:
        """Rows of the corpus."""
        return sum(self.counts)

    @functools.cached_property
    def first_ordinals(self) -> np.ndarray:
        """The ordinal of the first id of each range."""
        return np.cumsum([0, *self.counts[:-1]])

    @property
    def file_names(self) -> Iterator[str]:
        """The names of all files but the index."""
        for number, count in enumerate(self.counts):
            if count:
                yield ids_name(number)
                yield rows_name(number)
        for number in range(-(-self.rows // self.chunk_rows)):
            yield ordinals_name(number)


def ids_name(number: int) -> str:
    """The file of the sorted ids of a range."""
    return f"ids-{number:06d}.arrow"


def rows_name(number: int) -> str:
    """The file of the rows of the sorted ids of a range."""
    return f"rows-{number:06d}.npy"


def ordinals_name(number: int) -> str:
    """The file of the ordinals of a chunk."""
    return f"ordinals-{number:06d}.npy"


def folder_name(corpus: Corpus) -> str:
    """The name of the folder of a corpus; it depends on all its rows."""
    return corpus.digest[:16]


def folder_of_ordinals(parent: str, corpus: Corpus) -> str:
    """The folder of a corpus below the folder that keeps ordinals."""
    return f"{parent}/{folder_name(corpus)}"


def ordinals_beside(embeddings: str | Sequence[str]) -> str:
    """The folder that keeps the ordinals of a dataset, if jobs that used it wrote beside it; of several, the first."""
    first = embeddings if isinstance(embeddings, str) else embeddings[0]
    return posixpath.join(posixpath.dirname(folder_of(first)), ORDINALS_FOLDER)


def store_index(folder: str, index: OrdinalIndex) -> None:
    """Makes the files of a folder complete."""
    schema = base64.b64encode(pa.schema([pa.field(ID, index.id_type)]).serialize()).decode()
    content = {"counts": index.counts, "chunk_rows": index.chunk_rows, "schema": schema}
    store_checked(f"{folder}/index.json", json.dumps(content).encode())


def load_index(folder: str) -> OrdinalIndex | None:
    """The index of a folder; None if it is not complete."""
    content = load_checked(f"{folder}/index.json")
    return None if content is None else _parse_index(content)


def _parse_index(content: bytes) -> OrdinalIndex:
    fields = json.loads(content)
    schema = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(fields["schema"])))
    return OrdinalIndex(tuple(fields["counts"]), fields["chunk_rows"], schema.field(ID).type)


def find_ordinals(corpus: Corpus, parents: Sequence[str]) -> str | None:
    """The folder with the ordinals of a corpus, below the first parent that has a complete one.

    Only its index was checked; see `is_intact`.
    """
    for parent in parents:
        folder = folder_of_ordinals(parent, corpus)
        index = load_index(folder)
        if index is not None and index.rows == corpus.rows:
            return folder
    return None


def is_intact(path: str) -> bool:
    """Whether a file is there and has the content that was stored."""
    return load_checked(path) is not None


def find_intact_ordinals(corpus: Corpus, parents: Sequence[str]) -> str | None:
    """The same, with every file checked in this process."""
    folder = find_ordinals(corpus, parents)
    index = load_index(folder) if folder else None
    return folder if index and all(is_intact(f"{folder}/{name}") for name in index.file_names) else None


def store_array(path: str, array: np.ndarray) -> None:
    """Stores rows or ordinals."""
    sink = io.BytesIO()
    np.save(sink, array)
    store_checked(path, sink.getbuffer())


def store_ids(path: str, ids: pa.Array) -> None:
    """Stores the sorted ids of a range."""
    store_checked(path, _to_buffer(pa.record_batch([ids], [ID])))


def to_ipc(batch: pa.RecordBatch) -> bytes:
    """A batch as compressed bytes, for a shuffle; of a slice only its own rows."""
    return _to_buffer(batch, pa.ipc.IpcWriteOptions(compression="zstd")).to_pybytes()


def _to_buffer(batch: pa.RecordBatch, options: pa.ipc.IpcWriteOptions | None = None) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def from_ipc(content: bytes) -> pa.RecordBatch:
    """The batch that `to_ipc` made into bytes."""
    with pa.ipc.open_stream(content) as reader:
        return reader.read_next_batch()


@process_cache(max_entries=8)
def read_index(folder: str) -> OrdinalIndex:
    """The index of a folder that an earlier step completed."""
    return _parse_index(need_checked(f"{folder}/index.json"))


def read_array(folder: str, name: str) -> np.ndarray:
    """The rows or ordinals in a file; those used last stay in memory."""
    path = f"{folder}/{name}"
    return _numbers.get(path, lambda: np.load(io.BytesIO(need_checked(path))))


def read_ids(folder: str, number: int) -> pa.Array:
    """The sorted ids of a range; those used last stay in memory."""
    path = f"{folder}/{ids_name(number)}"
    return _ids.get(path, lambda: from_ipc(need_checked(path)).column(ID))


def cached_first(folder: str, numbers: Sequence[int]) -> list[int]:
    """Numbers of ranges, those whose ids are in memory first: reading the others would drop them."""
    return sorted(numbers, key=lambda number: (f"{folder}/{ids_name(number)}" not in _ids, number))
