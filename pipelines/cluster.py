"""The cluster job: embeddings and neighbours to named groups."""

import dataclasses
import posixpath
import time
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import apache_beam as beam
from apache_beam.runners.runner import PipelineResult

from pipelines.checks import check_column, check_time_column, first_task
from pipelines.cluster_options import ClusterOptions
from pipelines.execute import execute, new_pipeline
from sbert_core.data.manifest import Manifest, digest_of
from sbert_core.errors import DataError
from transforms.clusters.cluster_corpus import ClusterCorpus
from transforms.clusters.existing_clusters import read_existing
from transforms.clusters.labels import GRAPH_ALGORITHMS, Clustering
from transforms.dataset.corpus import Corpus, corpus_states, open_corpus
from transforms.dataset.files import check_target, delete_work
from transforms.dataset.lock import lock_output
from transforms.dataset.published import PublishDatasets, is_current, read_manifest

BYTES_PER_ROW = 16  # of the assignments: a cluster, a strength and some of an id
_DECIDED = ("resolution", "k", "neighbors", "tree_change")  # on the way, and told at the end


def make_cluster(options: ClusterOptions, manifest: Manifest | None = None) -> ClusterCorpus:
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
        manifest=manifest or Manifest(),
    )


def build(root: beam.Pipeline, options: ClusterOptions, manifest: Manifest | None = None) -> None:
    """Wires the job into a pipeline, for any runner."""
    drafts = root | "ClusterCorpus" >> make_cluster(options, manifest)
    _ = (drafts,) | "Publish" >> PublishDatasets(expected=len(options.results))


def submit(options: ClusterOptions, beam_flags: Sequence[str] = ()) -> PipelineResult:
    """Checks the input and hands the job to its runner, and that is all: nobody waits or cleans up.

    The launcher of a template may do no more, and must leave a job behind even if the result is there already.
    """
    corpus = _check_input(options)
    check_target(options.output, corpus.rows * BYTES_PER_ROW)
    return _wire(options, beam_flags, _manifest(options, corpus)).run()


def run(options: ClusterOptions, beam_flags: Sequence[str] = ()) -> dict[str, Any]:
    """Checks the input, runs the job and returns its figures; what is there already is not done again."""
    start = time.perf_counter()
    with lock_output(options.output, "cluster"):
        corpus = _check_input(options)
        manifest = _manifest(options, corpus)
        kept = all(is_current(f"{options.folder}/{name}", str(manifest.source)) for name in options.results)
        if not kept:
            check_target(options.output, corpus.rows * BYTES_PER_ROW)
            execute(_wire(options, beam_flags, manifest), lambda: ". The same command starts again")
            delete_work(make_cluster(options).work)
    summary = read_manifest(f"{options.folder}/summary")
    quality = {name: round(value, 3) for name, value in (summary.quality or {}).items() if value is not None}
    decided = {name: getattr(summary, name) for name in _DECIDED}
    return {
        "rows": corpus.rows,
        "clusters": summary.clusters,
        **{name: value for name, value in decided.items() if value is not None},
        **_advice(summary),
        **quality,
        "kept from before": "yes" if kept else "no",
        "seconds": round(time.perf_counter() - start, 1),
        "clusters/": options.folder,
    }


def _advice(summary: Manifest) -> dict[str, str]:
    """What to do about a tree that more neighbours might change."""
    if summary.tree_exact is not False:
        return {}
    return {"tree": f"may not be exact with {summary.neighbors} neighbours of each row: mine with a larger --top_k"}


def _check_input(options: ClusterOptions) -> Corpus:
    corpus = open_corpus(make_cluster(options).embeddings, options.block_rows)
    if corpus.rows:
        check_column("labels_column", options.labels_column, corpus.columns, corpus.name)
        check_column("time_column", options.time_column, corpus.columns, corpus.name)
        check_time_column(options.time_column, first_task(corpus))
        if options.k != "auto" and options.algorithm in ("kmeans", "agglomerative") and int(options.k) > corpus.rows:
            raise DataError(f"--k is {options.k}, but there are only {corpus.rows} rows: ask for fewer clusters")
    if options.clusters is not None:
        if posixpath.abspath(options.clusters) == posixpath.abspath(options.folder):
            raise DataError(f"--clusters {options.clusters} is where the result goes: give another --output")
        read_existing(options.clusters).check(corpus, options.clusters)
    return corpus


def _wire(options: ClusterOptions, beam_flags: Sequence[str], manifest: Manifest) -> beam.Pipeline:
    """The pipeline of the job, ready to run."""
    root = new_pipeline(beam_flags, options.workers)
    build(root, options, manifest)
    return root


def _manifest(options: ClusterOptions, corpus: Corpus) -> Manifest:
    """What the manifests of the results have in common; nothing that depends on when or where they were made."""
    sources: list[str | None] = [corpus.digest]
    if options.clusters is None and options.algorithm in GRAPH_ALGORITHMS:
        sources.append(read_manifest(make_cluster(options).neighbors).source)
    if options.clusters is not None:
        sources.append(read_manifest(f"{options.clusters}/summary").source)
    how = ("input", "output", "workers", "block_rows", "clusters")
    settings = {name: value for name, value in dataclasses.asdict(options).items() if name not in how}
    versions = {package: version(package) for package in ("sbert-beam", "hdbscan", "scikit-learn", "scikit-network")}
    return Manifest(
        settings=settings, source=digest_of(sources, settings), corpora=corpus_states([corpus]), versions=versions
    )
