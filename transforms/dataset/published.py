"""The owner of datasets in jobs: reads and checks what was published, and publishes what a job has written.

A dataset is replaced in one step. Its new parts, whose names differ from those of other content, are written beside
the old ones. Then the new manifest is renamed into place, and the parts that it does not list are deleted. Until the
rename, readers see the complete old dataset.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from sbert_core.data.dataset_reader import DatasetReader
from sbert_core.data.manifest import MANIFEST, Manifest, Part, is_part_name
from sbert_core.errors import DataError
from transforms.dataset.files import TEMPORARY_NAME, BeamStorage, commit, list_folder, read_bytes

BEAM_DATASETS = DatasetReader(BeamStorage())
"""Datasets as jobs read them, with every check; the functions below are short for its methods."""


def find_manifest(folder: str) -> Manifest | None:
    """The manifest of a dataset, or None if it has none yet; a damaged manifest is an error."""
    return BEAM_DATASETS.find_manifest(folder)


def read_manifest(folder: str) -> Manifest:
    """The manifest of a dataset, which must be there."""
    return BEAM_DATASETS.read_manifest(folder)


def read_part(folder: str, part: Part, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a part, checked against its manifest."""
    return BEAM_DATASETS.read_part(folder, part, columns)


def read_dataset(folder: str, columns: Sequence[str] | None = None, rows: int | None = None) -> pa.Table:
    """The rows of a dataset in the order of its parts, or only the first ones, checked against its manifest."""
    return BEAM_DATASETS.read_dataset(folder, columns, rows)


def is_current(folder: str, source: str) -> bool:
    """Whether a dataset was made from this source and every part still has the bytes that were written.

    A damaged dataset is not current, so that its job writes it again.
    """
    try:
        manifest = find_manifest(folder)
    except DataError:
        return False
    if manifest is None or manifest.source != source:
        return False
    return all(BEAM_DATASETS.has_content(f"{folder}/{part.name}", part.sha256) for part in manifest.parts)


@dataclasses.dataclass(frozen=True)
class Draft:
    """A dataset whose parts are written and whose manifest is not: no reader sees it yet."""

    folder: str
    manifest: Manifest


def publish(drafts: Sequence[Draft]) -> None:
    """Makes datasets visible: checks their parts on disk, replaces the manifests, deletes parts of earlier runs.

    It can be repeated, and run twice at the same time, as an engine does when a worker is lost or slow.
    """
    for draft in drafts:
        names = draft.manifest.part_names
        if len(set(names)) < len(names):
            repeated = next(name for name in names if names.count(name) > 1)
            raise DataError(f"{draft.folder}: two slices of the input became the part {repeated}: rows would be lost")
        BEAM_DATASETS.check_sizes(draft.folder, draft.manifest.parts)
        BEAM_DATASETS.check_rows(draft.folder, draft.manifest.parts)
    for draft in drafts:
        _commit_manifest(draft)
    for draft in drafts:
        delete_leftovers(draft.folder, keep=draft.manifest.part_names)


def _commit_manifest(draft: Draft) -> None:
    path, content = f"{draft.folder}/{MANIFEST}", draft.manifest.to_json()
    try:
        commit(path, content)
    except (BeamIOError, OSError):
        # An attempt at the same time may have published the same, and deleted our temporary file as a leftover.
        if read_bytes(path) != content:
            raise


def delete_leftovers(folder: str, keep: Iterable[str]) -> None:
    """Deletes temporary files, and parts of earlier runs that are not in `keep`; files of the user stay."""
    kept = set(keep)
    names = [name for name in list_folder(folder) if is_part_name(name) or TEMPORARY_NAME.fullmatch(name)]
    leftovers = [f"{folder}/{name}" for name in names if name not in kept]
    if leftovers:
        try:
            FileSystems.delete(leftovers)
        except BeamIOError:  # perhaps an attempt at the same time has deleted some of them
            if any(map(FileSystems.exists, leftovers)):
                raise


@dataclasses.dataclass(kw_only=True, eq=False)
class PublishDatasets(beam.PTransform):
    """Publishes all datasets of a job together, when all parts of all of them are written.

    Input is a tuple of collections of `Draft`, `expected` in all; output is one list of their manifests. If `problems`
    has an element, or `check` raises a DataError, the job fails and the published datasets stay as they were.
    """

    expected: int
    problems: beam.PCollection[str] | None = None
    check: Callable[[Sequence[Draft]], None] | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, drafts: Any) -> beam.PCollection[list[Manifest]]:
        """Waits for all drafts and all problems."""
        problems = () if self.problems is None else beam.pvalue.AsIter(self.problems)
        return (
            drafts
            | "Drafts" >> beam.Flatten()
            | "AllDrafts" >> beam.combiners.ToList()
            | "Publish" >> beam.Map(publish_all, problems, expected=self.expected, check=self.check)
        )


def publish_all(
    drafts: list[Draft],
    problems: Iterable[str],
    expected: int,
    check: Callable[[Sequence[Draft]], None] | None,
) -> list[Manifest]:
    """Publishes the drafts of a job, unless a problem was found or a draft is missing."""
    for problem in problems:
        raise DataError(problem)
    if len(drafts) != expected:
        raise DataError(f"{len(drafts)} of {expected} datasets were written: nothing is published")
    ordered = sorted(drafts, key=lambda draft: draft.folder)
    if check is not None:
        check(ordered)
    publish(ordered)
    return [draft.manifest for draft in ordered]
