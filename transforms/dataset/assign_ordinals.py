"""Sorts the ids of a corpus on many workers and stores the ordinals of its rows: see `transforms.dataset.ordinals`."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

import apache_beam as beam
from apache_beam.metrics import Metrics

from sbert_core.data.sorted_ids import RANGE_BYTES
from sbert_core.errors import JobError
from transforms.dataset.corpus import Corpus
from transforms.dataset.ordinal_files import OrdinalIndex, find_ordinals, folder_of_ordinals, is_intact, load_index
from transforms.dataset.sort_steps import (
    CHUNK_ROWS,
    Chunk,
    ChunkKey,
    Piece,
    RangeKey,
    Ranks,
    Sample,
    boundaries_of,
    complete,
    divide_into_chunks,
    make_index,
    sample_chunk,
    sort_range,
    split_chunk,
    store_ordinals,
)


class HasCorpora(Protocol):
    """A plan of a job: what `AssignOrdinals` needs of it."""

    @property
    def corpora(self) -> tuple[Corpus, ...]:
        """The corpora of the job."""

    def with_corpora(self, corpora: tuple[Corpus, ...]) -> Self:
        """The plan with the same corpora, which have ordinals now."""


# The type hint of a plan in steps: Beam cannot check protocols.
if TYPE_CHECKING:
    PlanHint = HasCorpora
else:
    PlanHint = Any

Stored = dict[str, str | None]
"""For the digest of each corpus of a job, the folder where an earlier job stored its ordinals."""


@dataclasses.dataclass(kw_only=True, eq=False)
class AssignOrdinals(beam.PTransform):
    """Gives the rows of the corpora of a plan their ordinals, unless an earlier job did.

    Input is one plan; output is the same plan, whose corpora have ordinals, when these are stored. So a step that takes
    the plan from here can read them. Ordinals are looked for below each of `folders`, and new ones go below the first.
    Stored ordinals are used if every file of them is intact. Two rows with one id are an error, and so is a row without
    an id. Counters: `ordinals/rows_sorted`, `ordinals/rows_reused`.
    """

    folders: Sequence[str]
    range_bytes: int = RANGE_BYTES
    chunk_rows: int = CHUNK_ROWS

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, plans: beam.PCollection[PlanHint]) -> beam.PCollection[PlanHint]:
        """Checks what is stored, and sorts the ids of the other corpora by ranges."""
        stored = self._find(plans)
        chunks = (
            plans
            | "Chunks" >> beam.FlatMap(_chunks_to_sort, stored, self.folders[0], self.chunk_rows)
            | "SpreadChunks" >> beam.Reshuffle()
        )
        boundaries = (
            chunks
            | "Sample" >> beam.Map(_keyed_sample, self.range_bytes)
            | "GroupSamples" >> beam.GroupByKey()
            | "Boundaries" >> beam.MapTuple(lambda folder, samples: (folder, boundaries_of(samples, self.range_bytes)))
        )
        by_folder = beam.pvalue.AsDict(boundaries)
        ranges = (
            chunks
            | "Split" >> beam.FlatMap(_keyed_pieces, by_folder)
            | "GroupByRange" >> beam.GroupByKey()
            | "Sort" >> beam.ParDo(_SortRangeFn(self.chunk_rows)).with_outputs("counts", main="ranks")
        )
        indexes = beam.pvalue.AsDict(
            ranges["counts"]
            | "GroupCounts" >> beam.GroupByKey()
            | "Index" >> beam.Map(_keyed_index, by_folder, self.chunk_rows)
        )
        completed = (
            ranges["ranks"]
            | "GroupByChunk" >> beam.GroupByKey()
            | "Store" >> beam.Map(_store_keyed, indexes)
            | "CountRows" >> beam.CombinePerKey(sum)
            | "Complete" >> beam.Map(_complete_keyed, indexes)
        )
        return plans | "Plan" >> beam.Map(_with_ordinals, stored, beam.pvalue.AsIter(completed), self.folders[0])

    def _find(self, plans: beam.PCollection[PlanHint]) -> beam.pvalue.AsSingleton:
        """The folders of ordinals that are stored and intact."""
        found = plans | "Find" >> beam.Map(_find_stored, self.folders)
        damaged = (
            found
            | "Files" >> beam.FlatMap(_stored_files)
            | "SpreadFiles" >> beam.Reshuffle()
            | "Damaged" >> beam.FlatMap(_damaged_folder)
        )
        return beam.pvalue.AsSingleton(found | "Intact" >> beam.Map(_without_damaged, beam.pvalue.AsIter(damaged)))


def _find_stored(plan: PlanHint, folders: Sequence[str]) -> Stored:
    return {corpus.digest: find_ordinals(corpus, folders) for corpus in plan.corpora}


def _stored_files(found: Stored) -> Iterator[tuple[str, str]]:
    """The folder and the name of each file that has to be checked."""
    for folder in found.values():
        index = load_index(folder) if folder else None
        if folder and index:
            yield from ((folder, name) for name in index.file_names)


def _damaged_folder(file: tuple[str, str]) -> Iterator[str]:
    folder, name = file
    if not is_intact(f"{folder}/{name}"):
        yield folder


def _without_damaged(found: Stored, damaged: Iterable[str]) -> Stored:
    folders = set(damaged)
    return {digest: None if folder in folders else folder for digest, folder in found.items()}


def _chunks_to_sort(plan: PlanHint, stored: Stored, parent: str, chunk_rows: int) -> Iterator[Chunk]:
    """The chunks of the corpora without stored ordinals; of two that are the same, once."""
    for digest, corpus in {corpus.digest: corpus for corpus in plan.corpora}.items():
        if stored[digest] is not None:
            Metrics.counter("ordinals", "rows_reused").inc(corpus.rows)
        else:
            Metrics.counter("ordinals", "rows_sorted").inc(corpus.rows)
            yield from divide_into_chunks(corpus, folder_of_ordinals(parent, corpus), chunk_rows)


def _keyed_sample(chunk: Chunk, range_bytes: int) -> tuple[str, Sample]:
    return chunk.folder, sample_chunk(chunk, range_bytes)


def _keyed_pieces(chunk: Chunk, boundaries: Mapping[str, bytes]) -> Iterator[tuple[RangeKey, Piece]]:
    for number, piece in split_chunk(chunk, boundaries[chunk.folder]):
        yield (chunk.folder, number), piece


class _SortRangeFn(beam.DoFn):
    """Sorts a range. Output is the ranks of rows by chunk; `counts` has the number of ids of the range by folder."""

    def __init__(self, chunk_rows: int) -> None:
        self._chunk_rows = chunk_rows

    def process(self, element: tuple[RangeKey, Iterable[Piece]]) -> Iterator[Any]:
        key, pieces = element
        folder, number = key
        count, ranks = sort_range(key, pieces, self._chunk_rows)
        yield beam.pvalue.TaggedOutput("counts", (folder, (number, count)))
        for chunk, each in ranks:
            yield (folder, chunk), each


def _keyed_index(
    element: tuple[str, Iterable[tuple[int, int]]], boundaries: Mapping[str, bytes], chunk_rows: int
) -> tuple[str, OrdinalIndex]:
    folder, counts = element
    return folder, make_index(dict(counts), boundaries[folder], chunk_rows)


def _store_keyed(element: tuple[ChunkKey, Iterable[Ranks]], indexes: Mapping[str, OrdinalIndex]) -> tuple[str, int]:
    key, ranks = element
    return key[0], store_ordinals(key, ranks, indexes[key[0]])


def _complete_keyed(element: tuple[str, int], indexes: Mapping[str, OrdinalIndex]) -> str:
    folder, stored = element
    complete(folder, stored, indexes[folder])
    return folder


def _with_ordinals(plan: PlanHint, stored: Stored, completed: Iterable[str], parent: str) -> PlanHint:
    """The plan with the folders of ordinals; a corpus without rows needs no files."""
    folders = set(completed)
    corpora = []
    for corpus in plan.corpora:
        folder = stored[corpus.digest] or folder_of_ordinals(parent, corpus)
        if corpus.rows and folder not in folders and not stored[corpus.digest]:
            raise JobError(f"the ids of {corpus.name} were not sorted: run the same command again")
        corpora.append(dataclasses.replace(corpus, work=folder))
    return plan.with_corpora(tuple(corpora))
