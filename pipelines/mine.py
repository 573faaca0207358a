"""The mine job: vectors to neighbours, paraphrases and duplicates."""

import contextlib
import dataclasses
import hashlib
import json
import time
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import apache_beam as beam
from apache_beam.runners.runner import PipelineResult

from pipelines.execute import execute, new_pipeline
from pipelines.mine_options import MineOptions
from pipelines.progress import Progress
from transforms.corpus import Corpus
from transforms.duplicates import GroupDuplicates
from transforms.files import commit, delete_folder, delete_leftovers, read_manifest, source_of, withdraw
from transforms.mined import WriteNeighbors
from transforms.neighbors import FindNeighbors, Plan
from transforms.paraphrases import MineParaphrases
from transforms.routed import FindRoutedNeighbors

RUN_FIGURES = "_run.json"
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


def build(root: beam.Pipeline, options: MineOptions, facts: dict[str, Any] | None = None) -> None:
    """Wires the job into a pipeline, for any runner."""
    facts = facts or {}
    mined = root | "FindNeighbors" >> make_find(options)
    _ = mined | "WriteNeighbors" >> WriteNeighbors(folder=options.folder("neighbors"), facts=facts)
    _ = mined | "MineParaphrases" >> MineParaphrases(
        folder=options.folder("pairs"),
        min_score=options.min_score,
        max_pairs=options.max_pairs,
        mutual=options.mutual,
        strict=options.strict,
        margin=options.margin,
        max_lexical_overlap=options.max_lexical_overlap,
        cross_encoder=options.cross_encoder,
        facts=facts,
    )
    if "duplicates" in options.results:
        _ = mined | "GroupDuplicates" >> GroupDuplicates(
            folder=options.folder("duplicates"),
            min_score=options.duplicate_score,
            keep=options.keep,
            newest_column=options.newest_column,
            facts=facts,
        )


def submit(options: MineOptions, beam_flags: Sequence[str] = ()) -> PipelineResult:
    """Checks the input and hands the job to its runner, and that is all: nobody waits, counts or cleans up.

    The launcher of a template may do no more, and must leave a job behind even if the result is there already.
    """
    plan = make_find(options).make_plan()
    return _begin(options, beam_flags, _facts(options, plan.corpora)).run()


def run(options: MineOptions, beam_flags: Sequence[str] = ()) -> dict[str, Any]:
    """Checks the input, runs the job and returns its figures; what is there already is not done again."""
    start = time.perf_counter()
    plan = make_find(options).make_plan()
    facts = _facts(options, plan.corpora)
    kept = all(source_of(options.folder(name)) == facts["source"] for name in options.results)
    if not kept:
        work = options.folder("_mine")
        root = _begin(options, beam_flags, facts)
        with _progress(options, plan):
            counters = execute(root, lambda: f". What was compared is safe in {work}: the same command goes on from it")
        commit(f"{options.folder('neighbors')}/{RUN_FIGURES}", json.dumps({"counters": counters}, indent=2).encode())
        delete_folder(work)
    manifests = {name: read_manifest(options.folder(name)) for name in options.results}
    for name, manifest in manifests.items():
        delete_leftovers(options.folder(name), keep=[part["name"] for part in manifest["parts"]])
    figures: dict[str, Any] = {
        "rows": sum(corpus.rows for corpus in plan.corpora),
        "neighbors": manifests["neighbors"]["rows"],
        "pairs": manifests["pairs"]["rows"],
    }
    if "duplicates" in manifests:
        figures["duplicates"] = manifests["duplicates"]["rows"]
        figures["groups"] = manifests["duplicates"]["groups"]
    if isinstance(audit := manifests["neighbors"]["audit"], dict) and audit["recall"] is not None:
        low, high = audit["interval_95"]
        figures["recall"] = f"{audit['recall']:.3f} ({low:.3f} to {high:.3f}) of neighbours over {audit['min_score']}"
    figures["kept from before"] = "yes" if kept else "no"
    figures["seconds"] = round(time.perf_counter() - start, 1)
    return figures | {f"{name}/": options.folder(name) for name in options.results}


def _begin(options: MineOptions, beam_flags: Sequence[str], facts: dict[str, Any]) -> beam.Pipeline:
    """The pipeline of the job, ready to run; results of an earlier run are taken back."""
    root = new_pipeline(beam_flags, options.workers)
    build(root, options, facts)
    for name in options.results:
        withdraw(options.folder(name))
    return root


def _facts(options: MineOptions, corpora: Sequence[Corpus]) -> dict[str, Any]:
    """What the manifests say of the results; nothing that depends on when or where they were made."""
    how = ("input", "output", "other", "workers", "block_rows")
    settings = {name: value for name, value in dataclasses.asdict(options).items() if name not in how}
    digests = [corpus.digest for corpus in corpora]
    source = hashlib.sha256(json.dumps([digests, settings], sort_keys=True).encode()).hexdigest()
    versions = {package: version(package) for package in ("sbert-beam", "torch", "pyarrow")}
    return {"settings": settings, "source": source, "versions": versions}


def _progress(options: MineOptions, plan: Plan) -> contextlib.AbstractContextManager[Any]:
    """Watches the turns of exact mining; how many there are in routed mining shows only while it runs."""
    left, right = plan.corpora[0].blocks, plan.corpora[-1].blocks
    if options.index != "exact" or len(left) * len(right) > WATCHED_TURNS:
        return contextlib.nullcontext()
    cosines = {f"turn-{i:06d}-{j:06d}.npz": left[i].rows * right[j].rows for i, j in plan.turns}
    return Progress("mine", plan.work, cosines, pattern="turn-*", unit="cosines")
