"""The cluster job: embeddings and neighbours to named groups."""

import dataclasses
import hashlib
import json
import time
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import apache_beam as beam
from apache_beam.runners.runner import PipelineResult

from pipelines.cluster_options import ClusterOptions
from pipelines.execute import execute, new_pipeline
from sbert_core.errors import DataError
from transforms.clusters import ClusterCorpus
from transforms.corpus import Corpus, open_corpus
from transforms.files import delete_folder, delete_leftovers, read_manifest, source_of, withdraw
from transforms.label import GRAPH_ALGORITHMS, Clustering

_DECIDED = ("resolution", "k", "neighbors", "tree_change")  # on the way, and told at the end


def make_cluster(options: ClusterOptions, facts: dict[str, Any] | None = None) -> ClusterCorpus:
    """The step these options ask for."""
    root = options.input.rstrip("/")
    return ClusterCorpus(
        embeddings=f"{root}/embeddings",
        neighbors=f"{root}/neighbors",
        folder=options.folder,
        work=f"{options.output.rstrip('/')}/_cluster",
        how=Clustering(
            algorithm=options.algorithm,
            resolution=options.resolution or None,
            min_score=options.min_score,
            min_size=options.min_size,
            min_samples=options.min_samples,
            reduction=options.reduction,
            k=None if options.k == "auto" else int(options.k),
        ),
        existing=options.clusters,
        labels_column=options.labels_column,
        time_column=options.time_column,
        period=options.period,
        block_rows=options.block_rows,
        facts=facts or {},
    )


def build(root: beam.Pipeline, options: ClusterOptions, facts: dict[str, Any] | None = None) -> None:
    """Wires the job into a pipeline, for any runner."""
    _ = root | "ClusterCorpus" >> make_cluster(options, facts)


def submit(options: ClusterOptions, beam_flags: Sequence[str] = ()) -> PipelineResult:
    """Checks the input and hands the job to its runner, and that is all: nobody waits or cleans up.

    The launcher of a template may do no more, and must leave a job behind even if the result is there already.
    """
    return _begin(options, beam_flags, _facts(options, _check_input(options))).run()


def run(options: ClusterOptions, beam_flags: Sequence[str] = ()) -> dict[str, Any]:
    """Checks the input, runs the job and returns its figures; what is there already is not done again."""
    start = time.perf_counter()
    corpus = _check_input(options)
    facts = _facts(options, corpus)
    folders = _result_folders(options)
    kept = all(source_of(folder) == facts["source"] for folder in folders)
    if not kept:
        execute(_begin(options, beam_flags, facts), lambda: ". The same command starts again")
        delete_folder(make_cluster(options).work)
    manifests = {folder: read_manifest(folder) for folder in folders}
    for folder, manifest in manifests.items():
        delete_leftovers(folder, keep=[part["name"] for part in manifest["parts"]])
    summary = manifests[f"{options.folder}/summary"]
    quality = {name: round(value, 3) for name, value in summary["quality"].items() if value is not None}
    return {
        "rows": corpus.rows,
        "clusters": summary["clusters"],
        **{name: summary[name] for name in _DECIDED if name in summary},
        **_advice(summary),
        **quality,
        "kept from before": "yes" if kept else "no",
        "seconds": round(time.perf_counter() - start, 1),
        "clusters/": options.folder,
    }


def _advice(summary: dict[str, Any]) -> dict[str, str]:
    """What to do about a tree that more neighbours might change."""
    if summary.get("tree_exact", True):
        return {}
    return {"tree": f"may not be exact with {summary['neighbors']} neighbours of each row: mine with a larger --top_k"}


def _result_folders(options: ClusterOptions) -> list[str]:
    return [f"{options.folder}/{name}" for name in options.results]


def _check_input(options: ClusterOptions) -> Corpus:
    corpus = open_corpus(make_cluster(options).embeddings, options.block_rows)
    for flag, column in (("labels_column", options.labels_column), ("time_column", options.time_column)):
        if column and corpus.rows and column not in corpus.columns:
            raise DataError(
                f"{corpus.name} has no column {column!r}; it has: {', '.join(corpus.columns)}. See --{flag}"
            )
    return corpus


def _begin(options: ClusterOptions, beam_flags: Sequence[str], facts: dict[str, Any]) -> beam.Pipeline:
    """The pipeline of the job, ready to run; results of an earlier run are taken back."""
    root = new_pipeline(beam_flags, options.workers)
    build(root, options, facts)
    for folder in _result_folders(options):
        withdraw(folder)
    return root


def _facts(options: ClusterOptions, corpus: Corpus) -> dict[str, Any]:
    """What the manifests say of the results; nothing that depends on when or where they were made."""
    sources = [corpus.digest]
    if options.clusters is None and options.algorithm in GRAPH_ALGORITHMS:
        sources.append(read_manifest(make_cluster(options).neighbors)["source"])
    if options.clusters is not None:
        sources.append(read_manifest(f"{options.clusters}/summary")["source"])
    how = ("input", "output", "workers", "block_rows", "clusters")
    settings = {name: value for name, value in dataclasses.asdict(options).items() if name not in how}
    source = hashlib.sha256(json.dumps([sources, settings], sort_keys=True).encode()).hexdigest()
    versions = {package: version(package) for package in ("sbert-beam", "hdbscan", "scikit-learn", "scikit-network")}
    return {"settings": settings, "source": source, "versions": versions}
