"""The embed job: sentences in shards to the same rows with an embedding column."""

import dataclasses
import json
import time
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError
from apache_beam.runners.runner import PipelineResult

from pipelines.embed_options import EmbedOptions
from pipelines.execute import execute, new_pipeline
from pipelines.flags import SKIPPED_FILES
from pipelines.folder_progress import Progress
from sbert_core.data.manifest import InputRows, Manifest, SkippedFile, is_part_name, part_key
from sbert_core.data.schema import ID, REJECTED
from sbert_core.errors import DataError
from transforms.dataset.duplicate_ids import FindDuplicateIds
from transforms.dataset.files import check_target, commit, list_folder, make_folder
from transforms.dataset.lock import lock_output
from transforms.dataset.published import Draft, PublishDatasets, find_manifest, read_dataset, read_manifest
from transforms.dataset.read_sentences import ReadSentences
from transforms.dataset.same_corpus import is_same_corpus
from transforms.dataset.skip_finished import SkipFinished
from transforms.dataset.slices import InputFile, check_files, inspect_files, inspect_readable_files, split_file
from transforms.dataset.write_parts import WriteEmbeddings, task_label
from transforms.encode.encode_sentences import Encoder, EncodeSentences

RUN_FIGURES = "_run.json"
# Dataflow starts a process per core, each with an encoder of its own; a GPU is for one of them.
ONE_PROCESS_PER_WORKER = "--experiments=no_use_multiple_sdk_containers"


def make_encode(options: EmbedOptions, **seams: Any) -> EncodeSentences:
    """The encoding step these options ask for; `seams` are for tests."""
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
) -> None:
    """Wires the job into a pipeline, for any runner.

    `files`, if they are known, are told in the manifest, and so is whether vectors are `normalized`; with the encoder's
    `fingerprint` only the machines that encode need to load it. Files that were `skipped` are left out on the workers
    too.
    """
    encode = encode or make_encode(options)
    sentences = root | "ReadSentences" >> ReadSentences(
        patterns=options.input,
        slice_rows=options.slice_rows,
        id_column=options.id_column,
        text_format=options.text_format,
        skip=[file.name for file in skipped],
    )
    problems = sentences | "FindDuplicateIds" >> FindDuplicateIds(id_column=options.id_column or ID)
    known = sentences | "SkipFinished" >> SkipFinished(
        encode=encode,
        encoded_folder=options.embeddings,
        rejected_folder=options.rejected,
        fingerprint=fingerprint,
    )
    results = known["missing"] | "EncodeSentences" >> encode
    manifest = _manifest(options, encode, files, fingerprint, skipped)
    encoded = results["encoded"] | "WriteEmbeddings" >> WriteEmbeddings(
        folder=options.embeddings,
        manifest=dataclasses.replace(manifest, kind="embeddings", normalized=normalized),
        finished=known["finished"],
    )
    rejected = results["rejected"] | "WriteRejected" >> WriteEmbeddings(
        folder=options.rejected,
        manifest=dataclasses.replace(manifest, kind="rejected"),
        finished=known["finished_rejected"],
    )
    _ = (encoded, rejected) | "Publish" >> PublishDatasets(expected=2, problems=problems, check=check_accounts)


def _manifest(
    options: EmbedOptions,
    encode: EncodeSentences,
    files: Sequence[InputFile],
    fingerprint: str | None,
    skipped: Sequence[SkippedFile],
) -> Manifest:
    """What the manifests say of both datasets besides their parts; nothing that depends on when or where."""
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
    """Checks that every input row is in one of the two datasets, by what their parts hold."""
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


def submit(
    options: EmbedOptions, beam_flags: Sequence[str] = (), encode: EncodeSentences | None = None
) -> PipelineResult:
    """Checks the input and hands the job to its runner, and that is all: nobody waits, counts or cleans up.

    The launcher of a template may do no more. The manifests, written last, still say that the result is whole.
    """
    files, skipped = _check_input(options)
    encode = encode or make_encode(options)
    encoder = encode.acquire()
    check_target(options.output)
    root = _wire(options, beam_flags, encode, files, encoder, skipped)
    _check_output(options, files, encoder.fingerprint)
    return root.run()


def run(options: EmbedOptions, beam_flags: Sequence[str] = (), encode: EncodeSentences | None = None) -> dict[str, Any]:
    """Checks the input, runs the job and returns its figures; rows that got lost are an error."""
    start = time.perf_counter()
    files, skipped = _check_input(options)
    encode = encode or make_encode(options)
    encoder = encode.acquire()  # a model that cannot be loaded is told here; workers in this process share it
    check_target(options.output, _needed_bytes(options, files, encoder.dim))
    root = _wire(options, beam_flags, encode, files, encoder, skipped)
    with lock_output(options.output, "embed"):
        _check_output(options, files, encoder.fingerprint)
        expected = {
            (task_label(task), task.first_row): task.rows
            for file in files
            for task in split_file(file, options.slice_rows)
        }
        with Progress("embed", options.embeddings, expected, part_key):
            counters = execute(root, lambda: _advice(options))
        figures = _figures(options, files, skipped, counters)
        figures["seconds"] = round(time.perf_counter() - start, 1)
        commit(f"{options.embeddings}/{RUN_FIGURES}", json.dumps({**figures, "counters": counters}, indent=2).encode())
    return {**figures, "embeddings": options.embeddings, "rejects": options.rejected}


def _figures(
    options: EmbedOptions, files: Sequence[InputFile], skipped: Sequence[SkippedFile], counters: dict[str, Any]
) -> dict[str, Any]:
    """What a person wants to know of a run."""
    embeddings, rejected = read_manifest(options.embeddings), read_manifest(options.rejected)
    figures: dict[str, Any] = {
        "rows in": sum(file.rows for file in files),
        "embedded": embeddings.rows,
        "rejected": rejected.rows,
        "truncated": embeddings.truncated,
        "tokens": embeddings.n_tokens,
        "parts": len(embeddings.parts),
        "parts kept": int(counters.get("resume/finished", 0)),
    }
    if rejected.rows:
        figures["first reason"] = _first_reason(options.rejected)
    if skipped:
        figures[SKIPPED_FILES] = len(skipped)
        figures["first skipped"] = f"{skipped[0].name}: {skipped[0].reason}"
    return figures


def _check_input(options: EmbedOptions) -> tuple[list[InputFile], list[SkippedFile]]:
    """The input files, and those that cannot be read, which are an error unless they are to be skipped."""
    skipped: list[SkippedFile] = []
    if options.skip_bad_files:
        files, skipped = inspect_readable_files(options.input, options.text_format)
    else:
        files = inspect_files(options.input, options.text_format)
    check_files(files, options.text_column, options.id_column, dataclasses.astuple(options.columns))
    return files, skipped


def inspect_input(options: EmbedOptions) -> list[InputFile]:
    """The input files, checked: for a command that wants to know them before the job begins."""
    return _check_input(options)[0]


def _needed_bytes(options: EmbedOptions, files: Sequence[InputFile], dim: int) -> int:
    """What the vectors alone will add to the output; parts that are there already are kept or replaced."""
    vectors = sum(file.rows for file in files) * dim * {"float32": 4, "float16": 2, "int8": 1}[options.stored]
    return max(vectors - sum(list_folder(options.embeddings).values()), 0)


def _check_output(options: EmbedOptions, files: Sequence[InputFile], fingerprint: str) -> None:
    """Refuses to replace the result of another model or another corpus, or one that cannot be read, unless told to."""
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
    if not is_same_corpus(options.embeddings, manifest, files, options.text_column):
        raise DataError(
            f"{options.embeddings} holds another corpus, which shares no file and no text with this one: choose "
            "another --output, or replace it with --overwrite"
        )


def _wire(
    options: EmbedOptions,
    beam_flags: Sequence[str],
    encode: EncodeSentences,
    files: Sequence[InputFile],
    encoder: Encoder,
    skipped: Sequence[SkippedFile],
) -> beam.Pipeline:
    """The pipeline of the job, ready to run."""
    more = [ONE_PROCESS_PER_WORKER] if options.accelerator else []
    root = new_pipeline([*beam_flags, *more], options.workers)
    normalized = getattr(encoder, "normalizes", None)
    build(root, options, encode, files, encoder.fingerprint, normalized, skipped)
    return root


def _advice(options: EmbedOptions) -> str:
    """How to go on after a failure."""
    parts = sum(map(is_part_name, list_folder(options.embeddings)))
    if not parts:
        return ""
    return f". Parts done so far ({parts}) are safe in {options.embeddings}: the same command goes on from them"


def _first_reason(folder: str) -> str:
    """Why a row was rejected, for the summary; the others are in the same place."""
    row = read_dataset(folder, REJECTED.names, 1).to_pylist()[0]
    return f"{row['file']} row {row['row']}: {row['reason']}"
