"""The cluster job: embeddings and neighbours to named groups."""

import dataclasses
import posixpath
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import apache_beam as beam
from apache_beam.runners.runner import PipelineResult

from pipelines.checks import check_column, check_time_column, first_slice
from pipelines.cluster_options import ClusterOptions
from pipelines.job import Figures, PipelineJob
from sbert_core.clusters.algorithm import ClusteringSettings
from sbert_core.clusters.algorithms import ALGORITHMS
from sbert_core.data.manifest import Manifest, digest_of
from sbert_core.errors import DataError
from transforms.clusters.cluster_corpus import ClusterCorpus, levels_of
from transforms.clusters.existing_clusters import read_existing
from transforms.dataset.corpus import Corpus, corpus_states, open_corpus
from transforms.dataset.ordinal_files import ORDINALS_FOLDER
from transforms.dataset.published import PublishDatasets, is_current, read_manifest

BYTES_PER_ROW = 16  # of the assignments: a cluster, a strength and some of an id
CHOSEN = ("resolution", "levels", "k", "neighbors", "tree_change")  # manifest fields that a run chooses or measures


def make_cluster(options: ClusterOptions, manifest: Manifest | None = None, levels: int | None = None) -> ClusterCorpus:
    """The clustering step for these options."""
    root = options.input.rstrip("/")
    return ClusterCorpus(
        embeddings=f"{root}/embeddings",
        neighbors=f"{root}/neighbors",
        folder=options.folder,
        work=f"{options.output.rstrip('/')}/_cluster",
        settings=ClusteringSettings(
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
        ordinals=[f"{options.output.rstrip('/')}/{ORDINALS_FOLDER}", f"{root}/{ORDINALS_FOLDER}"],
        manifest=manifest or Manifest(),
        levels=levels,
    )


def build(
    root: beam.Pipeline, options: ClusterOptions, manifest: Manifest | None = None, levels: int | None = None
) -> None:
    """Adds the steps of the job to a pipeline, for any runner."""
    drafts = root | "ClusterCorpus" >> make_cluster(options, manifest, levels)
    _ = (drafts,) | "Publish" >> PublishDatasets(expected=len(options.results))


class ClusterJob(PipelineJob[ClusterOptions]):
    """Embeddings and neighbors/ to clusters/. Results that are current are kept."""

    name = "cluster"

    def __init__(self, options: ClusterOptions, beam_flags: Sequence[str] = ()) -> None:
        super().__init__(
            options,
            beam_flags,
            output=options.output,
            workers=options.workers,
            work_folder=make_cluster(options).work,
            ordinals_folder=make_cluster(options).ordinals[0],
        )

    def prepare(self) -> None:
        """Opens the corpus and checks that it has the columns and rows that the options need."""
        options = self.options
        corpus = self._corpus = open_corpus(make_cluster(options).embeddings, options.block_rows)
        if corpus.rows:
            check_column("labels_column", options.labels_column, corpus.columns, corpus.name)
            check_column("time_column", options.time_column, corpus.columns, corpus.name)
            check_time_column(options.time_column, first_slice(corpus))
            has_k = options.k != "auto" and "k" in ALGORITHMS[options.algorithm].uses
            if has_k and int(options.k) > corpus.rows:
                raise DataError(f"--k is {options.k}, but there are only {corpus.rows} rows: ask for fewer clusters")
        if options.clusters is not None:
            if posixpath.abspath(options.clusters) == posixpath.abspath(options.folder):
                raise DataError(f"--clusters {options.clusters} is where the result goes: give another --output")
            read_existing(options.clusters).check(corpus, options.clusters)
        else:
            ALGORITHMS[options.algorithm].check_rows(corpus.name, corpus.rows)
        is_default = options.clusters is None and options.algorithm == "leiden"
        self._levels = levels_of(corpus, make_cluster(options).neighbors) if is_default else None
        self._manifest = _manifest(options, corpus)

    def corpora(self) -> Sequence[Corpus]:
        """The corpus."""
        return (self._corpus,)

    def is_done(self) -> bool:
        """Whether all datasets were made from this input with these options."""
        source = str(self._manifest.source)
        return all(is_current(f"{self.options.folder}/{name}", source) for name in self.options.results)

    def needed_bytes(self) -> int:
        """The assignments."""
        return self._corpus.rows * BYTES_PER_ROW

    def build(self, root: beam.Pipeline) -> None:
        """See the function `build`."""
        build(root, self.options, self._manifest, self._levels)

    def advice(self) -> str:
        """Nothing is kept of a run that failed."""
        return ". The same command starts again"

    def figures(self, counters: dict[str, Any]) -> Figures:
        """How many clusters, what was chosen, and how good they are."""
        summary = read_manifest(f"{self.options.folder}/summary")
        chosen = {name: getattr(summary, name) for name in CHOSEN}
        figures: Figures = {"rows": self._corpus.rows, "clusters": summary.clusters}
        figures |= {name: value for name, value in chosen.items() if value is not None}
        if summary.tree_exact is False:
            used = f"{summary.neighbors} neighbours of each row"
            figures["tree"] = f"may not be exact with {used}: mine with a larger --top_k"
        figures |= {name: round(value, 3) for name, value in (summary.quality or {}).items() if value is not None}
        return figures | {"kept from before": "yes" if self.is_kept else "no"}

    def results(self) -> dict[str, str]:
        """The folder of the datasets."""
        return {"clusters/": self.options.folder}


def _manifest(options: ClusterOptions, corpus: Corpus) -> Manifest:
    """The manifest fields that the datasets share; nothing that depends on time or place."""
    sources: list[str | None] = [corpus.digest]
    if options.clusters is None and ALGORITHMS[options.algorithm].needs_graph:
        sources.append(read_manifest(make_cluster(options).neighbors).source)
    if options.clusters is not None:
        sources.append(read_manifest(f"{options.clusters}/summary").source)
    no_effect = ("input", "output", "workers", "block_rows", "clusters")  # on the datasets, besides the sources
    settings = {name: value for name, value in dataclasses.asdict(options).items() if name not in no_effect}
    versions = {package: version(package) for package in ("sbert-beam", "hdbscan", "scikit-learn", "scikit-network")}
    return Manifest(
        settings=settings, source=digest_of(sources, settings), corpora=corpus_states([corpus]), versions=versions
    )


def submit(options: ClusterOptions, beam_flags: Sequence[str] = ()) -> PipelineResult:
    """Gives the job to its runner and does not wait: see `PipelineJob.submit`."""
    return ClusterJob(options, beam_flags).submit()


def run(options: ClusterOptions, beam_flags: Sequence[str] = ()) -> Figures:
    """Runs the job and returns its summary."""
    return ClusterJob(options, beam_flags).run()
