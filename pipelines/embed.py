"""The embed job: sentences in shards to the same rows with an embedding column."""

import dataclasses
import functools
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError
from apache_beam.runners.runner import PipelineResult

from pipelines.embed_options import EmbedOptions
from pipelines.execute import is_local_pipeline
from pipelines.flags import SKIPPED_FILES
from pipelines.folder_progress import Progress
from pipelines.job import Figures, PipelineJob
from sbert_core.data.manifest import InputRows, Manifest, SkippedFile, is_part_name, part_key
from sbert_core.data.schema import ID, REJECTED
from sbert_core.errors import DataError
from transforms.dataset.duplicate_ids import FindDuplicateIds
from transforms.dataset.files import list_folder, make_folder
from transforms.dataset.published import Draft, PublishDatasets, find_manifest, read_dataset, read_manifest
from transforms.dataset.read_sentences import ReadSentences
from transforms.dataset.same_corpus import is_same_corpus
from transforms.dataset.skip_finished import SkipFinished
from transforms.dataset.slices import InputFile, check_files, inspect_files, inspect_readable_files, split_file
from transforms.dataset.write_parts import WriteEmbeddings, slice_label
from transforms.encode.encode_sentences import EncodeSentences

# Dataflow starts a process per core, each with its own encoder; a GPU has memory for one of them.
ONE_PROCESS_PER_WORKER = "--experiments=no_use_multiple_sdk_containers"

TASKS_PER_PROCESS = 4
"""Local processes have equal numbers of tasks; with several each, unequal texts even out."""
REMOTE_TASKS = 64
"""For runners whose number of workers is not known here: it may change while a job runs."""


def make_encode(options: EmbedOptions, **seams: Any) -> EncodeSentences:
    """The encoding step for these options; `seams` are more arguments of `EncodeSentences`, for tests."""
    return EncodeSentences(
        model=options.model,
        text_column=options.text_column,
        id_column=options.id_column or ID,
        prompt=options.prompt,
        prompt_name=options.prompt_name,
        columns=options.columns,
        stored=options.stored,
        workers=options.workers,
        resources=options.resources,
        load_options=options.load_options,
        **seams,
    )


def build(
    root: beam.Pipeline,
    options: EmbedOptions,
    encode: EncodeSentences | None = None,
    files: Sequence[InputFile] = (),
    fingerprint: str | None = None,
    normalized: bool | None = None,
    skipped: Sequence[SkippedFile] = (),
    min_tasks: int = REMOTE_TASKS,
) -> None:
    """Adds the steps of the job to a pipeline, for any runner.

    The manifest lists `files`, and whether vectors are `normalized`, where they are given. With the encoder's
    `fingerprint` only the machines that encode load it. About `min_tasks` workers can encode at once, or more if the
    input has more row groups.
    """
    encode = encode or make_encode(options)
    sentences = root | "ReadSentences" >> ReadSentences(
        patterns=options.input,
        slice_rows=options.slice_rows,
        id_column=options.id_column,
        text_format=options.text_format,
        files=files or None,
        min_tasks=min_tasks,
    )
    problems = sentences | "FindDuplicateIds" >> FindDuplicateIds(
        id_column=options.id_column or ID, rows=sum(file.rows for file in files) if files else None
    )
    resumed = sentences | "SkipFinished" >> SkipFinished(
        encode=encode,
        encoded_folder=options.embeddings,
        rejected_folder=options.rejected,
        fingerprint=fingerprint,
    )
    results = resumed["missing"] | "EncodeSentences" >> encode
    manifest = _manifest(options, encode, files, fingerprint, skipped)
    encoded = results["encoded"] | "WriteEmbeddings" >> WriteEmbeddings(
        folder=options.embeddings,
        manifest=dataclasses.replace(manifest, kind="embeddings", normalized=normalized),
        finished=resumed["finished"],
    )
    rejected = results["rejected"] | "WriteRejected" >> WriteEmbeddings(
        folder=options.rejected,
        manifest=dataclasses.replace(manifest, kind="rejected"),
        finished=resumed["finished_rejected"],
    )
    _ = (encoded, rejected) | "Publish" >> PublishDatasets(expected=2, problems=problems, check=check_accounts)


def _manifest(
    options: EmbedOptions,
    encode: EncodeSentences,
    files: Sequence[InputFile],
    fingerprint: str | None,
    skipped: Sequence[SkippedFile],
) -> Manifest:
    """The manifest fields that both datasets share; nothing that depends on time or place."""
    packages = ("sbert-beam", "torch", "transformers", "pyarrow")
    return Manifest(
        fingerprint=fingerprint,
        model=options.model,
        id_column=options.id_column or ID,
        settings=encode.settings,
        inputs=tuple(InputRows(name=file.name, rows=file.rows) for file in files) or None,
        skipped_files=tuple(skipped) or None,
        versions={package: version(package) for package in packages},
    )


def check_accounts(drafts: Sequence[Draft]) -> None:
    """Checks that every input row is in one of the two datasets, by the row counts of their parts."""
    manifests = {draft.manifest.kind: draft.manifest for draft in drafts}
    embeddings, rejected = manifests["embeddings"], manifests["rejected"]
    if embeddings.inputs is None:
        return
    rows = sum(file.rows for file in embeddings.inputs)
    if embeddings.rows + rejected.rows != rows:
        raise DataError(
            f"{rows} rows went in, {embeddings.rows} embedded and {rejected.rows} rejected came out: the input changed "
            "meanwhile, or the engine lost some. Nothing was published: run the same command again"
        )


class EmbedJob(PipelineJob[EmbedOptions]):
    """Sentences to embeddings/ and rejected/. Parts that an earlier run finished are kept."""

    name = "embed"

    def __init__(
        self, options: EmbedOptions, beam_flags: Sequence[str] = (), encode: EncodeSentences | None = None
    ) -> None:
        super().__init__(
            options,
            beam_flags,
            output=options.output,
            workers=options.workers,
            engine_flags=(ONE_PROCESS_PER_WORKER,) if options.accelerator else (),
            record_folder=options.embeddings,
        )
        self._encode = encode

    @functools.cached_property
    def inspected(self) -> tuple[list[InputFile], list[SkippedFile]]:
        """The input files, and those that cannot be read, which are an error unless they are to be skipped."""
        options = self.options
        skipped: list[SkippedFile] = []
        if options.skip_bad_files:
            files, skipped = inspect_readable_files(options.input, options.text_format)
        else:
            files = inspect_files(options.input, options.text_format)
        check_files(files, options.text_column, options.id_column, dataclasses.astuple(options.columns))
        return files, skipped

    def prepare(self) -> None:
        """Inspects the input files and loads the encoder."""
        self._files, self._skipped = self.inspected
        self._step = self._encode or make_encode(self.options)
        self._encoder = self._step.acquire()  # workers in this process share it

    def needed_bytes(self) -> int:
        """The size of the vectors alone; parts that are there already are kept or replaced."""
        bytes_per_row = self._encoder.dim * {"float32": 4, "float16": 2, "int8": 1}[self.options.stored]
        vectors = sum(file.rows for file in self._files) * bytes_per_row
        return max(vectors - sum(list_folder(self.options.embeddings).values()), 0)

    def check(self) -> None:
        """Refuses to replace the result of another model or corpus, or one that cannot be read, without --overwrite."""
        options, fingerprint = self.options, self._encoder.fingerprint
        for folder in (options.embeddings, options.rejected):
            try:
                make_folder(folder)
            except (BeamIOError, OSError) as error:
                raise DataError(f"cannot write to {folder}: {error}. See --output") from error
        if options.overwrite:
            return
        find_manifest(options.rejected)  # one that is damaged is not replaced by mistake
        manifest = find_manifest(options.embeddings)
        if manifest is None:
            return
        if manifest.fingerprint not in (None, fingerprint):
            raise DataError(
                f"{options.embeddings} holds vectors of another model ({manifest.fingerprint[:12]}, this is "
                f"{fingerprint[:12]}): choose another --output, or replace them with --overwrite"
            )
        if not is_same_corpus(options.embeddings, manifest, self._files, options.text_column):
            raise DataError(
                f"{options.embeddings} holds another corpus, which shares no file and no text with this one: choose "
                "another --output, or replace it with --overwrite"
            )

    def build(self, root: beam.Pipeline) -> None:
        """See the function `build`."""
        min_tasks = REMOTE_TASKS
        if is_local_pipeline(root):  # one process needs no division
            min_tasks = 1 if self.workers == 1 else TASKS_PER_PROCESS * self.workers
        build(
            root,
            self.options,
            self._step,
            self._files,
            self._encoder.fingerprint,
            normalized=getattr(self._encoder, "normalizes", None),
            skipped=self._skipped,
            min_tasks=min_tasks,
        )

    def progress(self) -> Progress:
        """Shows the rows of the parts that are written."""
        expected = {
            (slice_label(each), each.first_row): each.rows
            for file in self._files
            for each in split_file(file, self.options.slice_rows)
        }
        return Progress(self.name, self.options.embeddings, expected, part_key)

    def advice(self) -> str:
        """Which parts are safe."""
        folder = self.options.embeddings
        parts = sum(map(is_part_name, list_folder(folder)))
        if not parts:
            return ""
        return f". Parts done so far ({parts}) are safe in {folder}: the same command continues from them"

    def figures(self, counters: dict[str, Any]) -> Figures:
        """Rows in and out, with the first reason for a row that was rejected."""
        embeddings, rejected = read_manifest(self.options.embeddings), read_manifest(self.options.rejected)
        figures: Figures = {
            "rows in": sum(file.rows for file in self._files),
            "embedded": embeddings.rows,
            "rejected": rejected.rows,
            "truncated": embeddings.truncated,
            "tokens": embeddings.n_tokens,
            "parts": len(embeddings.parts),
            "parts kept": int(counters.get("resume/finished", 0)),
        }
        if rejected.rows:
            figures["first reason"] = _first_reason(self.options.rejected)
        if self._skipped:
            figures[SKIPPED_FILES] = len(self._skipped)
            figures["first skipped"] = f"{self._skipped[0].name}: {self._skipped[0].reason}"
        return figures

    def results(self) -> dict[str, str]:
        """Both datasets."""
        return {"embeddings": self.options.embeddings, "rejects": self.options.rejected}


def _first_reason(folder: str) -> str:
    """Why one row was rejected, for the summary; the reasons of the others are in the same dataset."""
    row = read_dataset(folder, REJECTED.names, 1).to_pylist()[0]
    return f"{row['file']} row {row['row']}: {row['reason']}"


def submit(
    options: EmbedOptions, beam_flags: Sequence[str] = (), encode: EncodeSentences | None = None
) -> PipelineResult:
    """Gives the job to its runner and does not wait: see `PipelineJob.submit`."""
    return EmbedJob(options, beam_flags, encode).submit()


def run(options: EmbedOptions, beam_flags: Sequence[str] = (), encode: EncodeSentences | None = None) -> Figures:
    """Runs the job and returns its summary."""
    return EmbedJob(options, beam_flags, encode).run()
