"""The embed job: sentences in shards to the same rows with an embedding column."""

import dataclasses
import json
import time
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import apache_beam as beam
import pyarrow.parquet as pq
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.runners.runner import PipelineResult

from pipelines.embed_options import EmbedOptions
from pipelines.execute import execute, new_pipeline
from pipelines.progress import Progress
from sbert_core.errors import DataError, JobError
from sbert_core.schema import ID, REJECTED
from transforms.encode import EncodeSentences
from transforms.files import MANIFEST, commit, delete_leftovers, make_folder, match, open_file, read_manifest
from transforms.ids import FindDuplicateIds
from transforms.read import ReadSentences
from transforms.resume import SkipFinished
from transforms.tasks import InputFile, check_files, inspect_files, split_file
from transforms.write import WriteEmbeddings

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
) -> None:
    """Wires the job into a pipeline, for any runner.

    `files`, if they are known, are told in the manifest; with the encoder's `fingerprint` only the machines that
    encode need to load it.
    """
    encode = encode or make_encode(options)
    sentences = root | "ReadSentences" >> ReadSentences(
        patterns=options.input, slice_rows=options.slice_rows, id_column=options.id_column
    )
    problems = sentences | "FindDuplicateIds" >> FindDuplicateIds(id_column=options.id_column or ID)
    known = sentences | "SkipFinished" >> SkipFinished(
        encode=encode,
        encoded_folder=options.embeddings,
        rejected_folder=options.rejected,
        fingerprint=fingerprint,
    )
    results = known["missing"] | "EncodeSentences" >> encode
    facts = _facts(options, encode, files)
    _ = results["encoded"] | "WriteEmbeddings" >> WriteEmbeddings(
        folder=options.embeddings, facts=facts, finished=known["finished"], problems=problems
    )
    _ = results["rejected"] | "WriteRejected" >> WriteEmbeddings(
        folder=options.rejected, facts=facts, finished=known["finished_rejected"], problems=problems
    )


def _facts(options: EmbedOptions, encode: EncodeSentences, files: Sequence[InputFile]) -> dict[str, Any]:
    """What the manifest says of a dataset besides its parts; nothing that depends on when or where it was made."""
    packages = ("sbert-beam", "torch", "transformers", "pyarrow")
    return {
        "model": options.model,
        "id_column": options.id_column or ID,
        "settings": encode.settings,
        "inputs": [{"name": file.name, "rows": file.rows} for file in files],
        "versions": {package: version(package) for package in packages},
    }


def submit(
    options: EmbedOptions, beam_flags: Sequence[str] = (), encode: EncodeSentences | None = None
) -> PipelineResult:
    """Checks the input and hands the job to its runner, and that is all: nobody waits, counts or cleans up.

    The launcher of a template may do no more. The manifests, written last, still say that the result is whole.
    """
    files = _check_input(options)
    encode = encode or make_encode(options)
    fingerprint = encode.acquire().fingerprint
    root = _wire(options, beam_flags, encode, files, fingerprint)
    _prepare_output(options, fingerprint)
    return root.run()


def run(options: EmbedOptions, beam_flags: Sequence[str] = (), encode: EncodeSentences | None = None) -> dict[str, Any]:
    """Checks the input, runs the job and returns its figures; rows that got lost are an error."""
    start = time.perf_counter()
    files = _check_input(options)
    encode = encode or make_encode(options)
    encoder = encode.acquire()  # a model that cannot be loaded is told here; workers in this process share it
    root = _wire(options, beam_flags, encode, files, encoder.fingerprint)
    _prepare_output(options, encoder.fingerprint)
    expected = {task.part_name: task.rows for file in files for task in split_file(file, options.slice_rows)}
    with Progress("embed", options.embeddings, expected):
        counters = execute(root, lambda: _advice(options))
    embeddings, rejected = read_manifest(options.embeddings), read_manifest(options.rejected)
    rows = sum(file.rows for file in files)
    if embeddings["rows"] + rejected["rows"] != rows:
        raise JobError(f"{rows} rows went in, {embeddings['rows']} embedded and {rejected['rows']} rejected came out")
    for folder, manifest in ((options.embeddings, embeddings), (options.rejected, rejected)):
        delete_leftovers(folder, keep=[part["name"] for part in manifest["parts"]])
    figures = {
        "rows in": rows,
        "embedded": embeddings["rows"],
        "rejected": rejected["rows"],
        "truncated": embeddings["truncated"],
        "tokens": embeddings["n_tokens"],
        "parts": len(embeddings["parts"]),
        "parts kept": int(counters.get("resume/finished", 0)),
        "seconds": round(time.perf_counter() - start, 1),
    }
    if rejected["parts"]:
        figures["first reason"] = _first_reason(f"{options.rejected}/{rejected['parts'][0]['name']}")
    commit(f"{options.embeddings}/{RUN_FIGURES}", json.dumps({**figures, "counters": counters}, indent=2).encode())
    return {**figures, "embeddings": options.embeddings, "rejects": options.rejected}


def _check_input(options: EmbedOptions) -> list[InputFile]:
    files = inspect_files(options.input)
    check_files(files, options.text_column, options.id_column, dataclasses.astuple(options.columns))
    return files


def _prepare_output(options: EmbedOptions, fingerprint: str) -> None:
    _clear_manifests(options, fingerprint)
    for folder in (options.embeddings, options.rejected):
        try:
            make_folder(folder)
        except (BeamIOError, OSError) as error:
            raise DataError(f"cannot write to {folder}: {error}. See --output") from error


def _wire(
    options: EmbedOptions,
    beam_flags: Sequence[str],
    encode: EncodeSentences,
    files: Sequence[InputFile],
    fingerprint: str,
) -> beam.Pipeline:
    """The pipeline of the job, ready to run."""
    more = [ONE_PROCESS_PER_WORKER] if options.accelerator else []
    root = new_pipeline([*beam_flags, *more], options.workers)
    build(root, options, encode, files, fingerprint)
    return root


def _advice(options: EmbedOptions) -> str:
    """How to go on after a failure."""
    parts = match(f"{options.embeddings}/*.parquet")
    if not parts:
        return ""
    return f". Parts done so far ({len(parts)}) are safe in {options.embeddings}: the same command goes on from them"


def _first_reason(path: str) -> str:
    """Why a row was rejected, for the summary; the others are in the same place."""
    with open_file(path) as file:
        row = pq.read_table(file, columns=REJECTED.names).slice(0, 1).to_pylist()[0]
    return f"{row['file']} row {row['row']}: {row['reason']}"


def _clear_manifests(options: EmbedOptions, fingerprint: str) -> None:
    """Takes back an earlier result before it is changed; that of another model only if told to."""
    for folder in (options.embeddings, options.rejected):
        path = f"{folder}/{MANIFEST}"
        if not FileSystems.exists(path):
            continue
        other = read_manifest(folder)["fingerprint"]
        if other not in (None, fingerprint) and not options.overwrite:
            raise DataError(
                f"{folder} holds vectors of another model ({other[:12]}, this is {fingerprint[:12]}): "
                "choose another --output, or replace them with --overwrite"
            )
        FileSystems.delete([path])
