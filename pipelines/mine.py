"""The mine job: vectors to neighbours, paraphrases and duplicates."""

import contextlib
import dataclasses
import json
import math
import time
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import apache_beam as beam
from apache_beam.runners.runner import PipelineResult

from pipelines.checks import check_column, check_cross_encoder, check_newest_column, first_task
from pipelines.execute import execute, new_pipeline
from pipelines.folder_progress import Progress
from pipelines.mine_options import MineOptions
from sbert_core.data.manifest import Manifest, digest_of
from transforms.dataset.corpus import Corpus, corpus_states
from transforms.dataset.files import check_target, commit, delete_work
from transforms.dataset.lock import lock_output
from transforms.dataset.published import PublishDatasets, is_current, read_manifest
from transforms.neighbors.duplicates import GroupDuplicates
from transforms.neighbors.exact import FindNeighbors, Plan
from transforms.neighbors.paraphrases import MineParaphrases
from transforms.neighbors.routed import FindRoutedNeighbors
from transforms.neighbors.write_neighbors import WriteNeighbors

RUN_FIGURES = "_run.json"
BYTES_PER_NEIGHBOR = 16
WATCHED_TURNS = 1_000_000  # pairs of blocks; of more the driver keeps no list, and the runner's counters tell


def make_find(options: MineOptions) -> FindNeighbors | FindRoutedNeighbors:
    """The step that compares, as these options ask for it."""
    find = FindNeighbors(
        corpus=options.input,
        other=options.other,
        work=options.folder("_mine"),
        k=options.top_k,
        min_score=options.neighbor_floor,
        group_column=options.group_column,
        pairing=options.pairing,
        block_rows=options.block_rows,
        embedding_column=options.embedding_column,
        workers=options.workers,
    )
    if options.index == "exact":
        return find
    return FindRoutedNeighbors(
        find=find,
        cells=options.cells,
        routes=options.routes,
        audit_rows=options.audit_rows,
        audit_score=options.min_score,
    )


def build(root: beam.Pipeline, options: MineOptions, manifest: Manifest | None = None) -> None:
    """Wires the job into a pipeline, for any runner."""
    manifest = manifest or Manifest()
    mined = root | "FindNeighbors" >> make_find(options)
    neighbors = mined | "WriteNeighbors" >> WriteNeighbors(folder=options.folder("neighbors"), manifest=manifest)
    pairs = mined | "MineParaphrases" >> MineParaphrases(
        folder=options.folder("pairs"),
        min_score=options.min_score,
        max_pairs=options.max_pairs,
        mutual=options.mutual,
        strict=options.strict,
        margin=options.margin,
        max_lexical_overlap=options.max_lexical_overlap,
        cross_encoder=options.cross_encoder,
        manifest=manifest,
    )
    drafts = [neighbors, pairs]
    if "duplicates" in options.results:
        duplicates = mined | "GroupDuplicates" >> GroupDuplicates(
            folder=options.folder("duplicates"),
            min_score=options.duplicate_score,
            keep=options.keep,
            newest_column=options.newest_column,
            chains=options.duplicate_chains,
            manifest=manifest,
        )
        drafts.append(duplicates)
    _ = tuple(drafts) | "Publish" >> PublishDatasets(expected=len(options.results))


def submit(options: MineOptions, beam_flags: Sequence[str] = ()) -> PipelineResult:
    """Checks the input and hands the job to its runner, and that is all: nobody waits, counts or cleans up.

    The launcher of a template may do no more, and must leave a job behind even if the result is there already.
    """
    plan = make_find(options).make_plan()
    _check(options, plan)
    return _wire(options, beam_flags, _manifest(options, plan.corpora)).run()


def run(options: MineOptions, beam_flags: Sequence[str] = ()) -> dict[str, Any]:
    """Checks the input, runs the job and returns its figures; what is there already is not done again."""
    start = time.perf_counter()
    with lock_output(options.output, "mine"):
        plan = make_find(options).make_plan()
        manifest = _manifest(options, plan.corpora)
        kept = all(is_current(options.folder(name), str(manifest.source)) for name in options.results)
        if not kept:
            _check(options, plan)
            work = options.folder("_mine")
            root = _wire(options, beam_flags, manifest)
            with _progress(options, plan):
                advice = f". What was compared is safe in {work}: the same command goes on from it"
                counters = execute(root, lambda: advice)
            figures_path = f"{options.folder('neighbors')}/{RUN_FIGURES}"
            commit(figures_path, json.dumps({"counters": counters}, indent=2).encode())
            delete_work(work)
    manifests = {name: read_manifest(options.folder(name)) for name in options.results}
    figures: dict[str, Any] = {
        "rows": sum(corpus.rows for corpus in plan.corpora),
        "neighbors": manifests["neighbors"].rows,
        "pairs": manifests["pairs"].rows,
    }
    if "duplicates" in manifests:
        figures["duplicates"] = manifests["duplicates"].rows
        figures["groups"] = manifests["duplicates"].groups
        if saturated := manifests["duplicates"].saturated_rows:
            figures["incomplete groups"] = f"at most {saturated}: mine with a larger --top_k"
    if isinstance(audit := manifests["neighbors"].audit, dict) and audit["recall"] is not None:
        low, high = audit["interval_95"]
        figures["recall"] = f"{audit['recall']:.3f} ({low:.3f} to {high:.3f}) of neighbours over {audit['min_score']}"
    figures["kept from before"] = "yes" if kept else "no"
    figures["seconds"] = round(time.perf_counter() - start, 1)
    return figures | {f"{name}/": options.folder(name) for name in options.results}


def _check(options: MineOptions, plan: Plan) -> None:
    """Finds what would otherwise fail when much is done already."""
    corpus = plan.corpora[0]
    if corpus.rows:
        check_column("newest_column", options.newest_column, corpus.columns, corpus.name)
        check_newest_column(options.newest_column, first_task(corpus))
    check_cross_encoder(options.cross_encoder)
    # A score and a place of each neighbour, stored once for workers and once as the result.
    places = corpus.rows * plan.k if options.neighbor_floor == -math.inf else 0
    check_target(options.output, places * BYTES_PER_NEIGHBOR)


def _wire(options: MineOptions, beam_flags: Sequence[str], manifest: Manifest) -> beam.Pipeline:
    """The pipeline of the job, ready to run."""
    root = new_pipeline(beam_flags, options.workers)
    build(root, options, manifest)
    return root


def _manifest(options: MineOptions, corpora: Sequence[Corpus]) -> Manifest:
    """What the manifests of the results have in common; nothing that depends on when or where they were made."""
    how = ("input", "output", "other", "workers", "block_rows")
    settings = {name: value for name, value in dataclasses.asdict(options).items() if name not in how}
    digests = [corpus.digest for corpus in corpora]
    versions = {package: version(package) for package in ("sbert-beam", "torch", "pyarrow")}
    return Manifest(
        settings=settings, source=digest_of(digests, settings), corpora=corpus_states(corpora), versions=versions
    )


def _progress(options: MineOptions, plan: Plan) -> contextlib.AbstractContextManager[Any]:
    """Watches the turns of exact mining; how many there are in routed mining shows only while it runs."""
    left, right = plan.corpora[0].blocks, plan.corpora[-1].blocks
    if options.index != "exact" or len(left) * len(right) > WATCHED_TURNS:
        return contextlib.nullcontext()
    cosines = {f"turn-{i:06d}-{j:06d}.npz": left[i].rows * right[j].rows for i, j in plan.turns}
    return Progress("mine", plan.work, cosines, unit="cosines")
