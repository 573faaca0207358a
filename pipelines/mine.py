"""The mine job: vectors to neighbours, paraphrases and duplicates."""

import contextlib
import dataclasses
import math
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import apache_beam as beam
from apache_beam.runners.runner import PipelineResult

from pipelines.checks import check_column, check_cross_encoder, check_newest_column, first_slice
from pipelines.folder_progress import Progress
from pipelines.job import Figures, PipelineJob
from pipelines.mine_options import MineOptions
from sbert_core.data.manifest import Manifest, digest_of
from transforms.dataset.corpus import Corpus, corpus_states
from transforms.dataset.ordinal_files import ORDINALS_FOLDER, ordinals_beside
from transforms.dataset.published import PublishDatasets, is_current, read_manifest
from transforms.neighbors.duplicates import GroupDuplicates
from transforms.neighbors.exact import FindNeighbors
from transforms.neighbors.paraphrases import MineParaphrases
from transforms.neighbors.route_rows import RoutingSettings
from transforms.neighbors.routed import FindRoutedNeighbors
from transforms.neighbors.routed_files import expected_files
from transforms.neighbors.tile_tasks import count_tile_tasks, plan_tile_tasks
from transforms.neighbors.write_neighbors import WriteNeighbors

BYTES_PER_NEIGHBOR = 16
MAX_WATCHED_TASKS = 100_000  # for more the driver keeps no list; the counters of the runner show progress


def make_find(options: MineOptions) -> FindNeighbors | FindRoutedNeighbors:
    """The step that compares rows, for these options."""
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
        ordinals=[options.folder(ORDINALS_FOLDER), ordinals_beside(options.input)],
    )
    if options.index == "exact":
        return find
    return FindRoutedNeighbors(
        find=find,
        routing=RoutingSettings(recall=options.recall, cells=options.cells, probes=options.probes),
        audit_rows=options.audit_rows,
        audit_score=options.min_score,
    )


def build(root: beam.Pipeline, options: MineOptions, manifest: Manifest | None = None) -> None:
    """Adds the steps of the job to a pipeline, for any runner."""
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
        workers=options.workers,
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


class MineJob(PipelineJob[MineOptions]):
    """Embeddings to neighbors/, pairs/ and duplicates/. Results that are current are kept."""

    name = "mine"

    def __init__(self, options: MineOptions, beam_flags: Sequence[str] = ()) -> None:
        super().__init__(
            options,
            beam_flags,
            output=options.output,
            workers=options.workers,
            record_folder=options.folder("neighbors"),
            work_folder=options.folder("_mine"),
            ordinals_folder=options.folder(ORDINALS_FOLDER),
        )

    def prepare(self) -> None:
        """Opens the corpora and plans which blocks are compared."""
        self._plan = make_find(self.options).make_plan()
        self._manifest = _manifest(self.options, self._plan.corpora)

    def corpora(self) -> Sequence[Corpus]:
        """All corpora."""
        return self._plan.corpora

    def is_done(self) -> bool:
        """Whether all datasets were made from this input with these options."""
        source = str(self._manifest.source)
        return all(is_current(self.options.folder(name), source) for name in self.options.results)

    def needed_bytes(self) -> int:
        """A score and an ordinal of each neighbour, unless a minimum score leaves out an unknown number of them."""
        if self.options.neighbor_floor > -math.inf:
            return 0
        return self._plan.corpora[0].rows * self._plan.k * BYTES_PER_NEIGHBOR

    def check(self) -> None:
        """Checks the newest column and the cross-encoder, which are used only when rows have been compared."""
        corpus = self._plan.corpora[0]
        if corpus.rows:
            check_column("newest_column", self.options.newest_column, corpus.columns, corpus.name)
            check_newest_column(self.options.newest_column, first_slice(corpus))
        check_cross_encoder(self.options.cross_encoder)

    def build(self, root: beam.Pipeline) -> None:
        """See the function `build`."""
        build(root, self.options, self._manifest)

    def progress(self) -> contextlib.AbstractContextManager[Any]:
        """Shows the tasks of exact mining, or the rows of finished steps of routed mining."""
        plan = self._plan
        if self.options.index == "routed":
            return Progress(self.name, plan.work, expected_files(plan.corpora[0].rows), unit="rows in 4 steps")
        if count_tile_tasks(plan) > MAX_WATCHED_TASKS:
            return contextlib.nullcontext()
        cosines = {task.file_name: task.cosines(plan) for task in plan_tile_tasks(plan)}
        return Progress(self.name, plan.work, cosines, unit="cosines")

    def advice(self) -> str:
        """Where the finished tasks are."""
        return f". What was compared is safe in {self.work_folder}: the same command continues from it"

    def figures(self, counters: dict[str, Any]) -> Figures:
        """Rows of each dataset, and the measured recall of routed mining."""
        manifests = {name: read_manifest(self.options.folder(name)) for name in self.options.results}
        figures: Figures = {
            "rows": sum(corpus.rows for corpus in self._plan.corpora),
            "neighbors": manifests["neighbors"].rows,
            "pairs": manifests["pairs"].rows,
        }
        if "duplicates" in manifests:
            figures["duplicates"] = manifests["duplicates"].rows
            figures["groups"] = manifests["duplicates"].groups
            if saturated := manifests["duplicates"].saturated_rows:
                figures["incomplete groups"] = f"at most {saturated}: mine with a larger --top_k"
        if isinstance(audit := manifests["neighbors"].audit, dict) and audit["recall"] is not None:
            figures["recall"] = f"{_interval(audit)} of all neighbours"
            if audit["near"]["recall"] is not None:
                figures["recall"] += f", {_interval(audit['near'])} of those over {audit['min_score']}"
        return figures | {"kept from before": "yes" if self.is_kept else "no"}

    def results(self) -> dict[str, str]:
        """All datasets."""
        return {f"{name}/": self.options.folder(name) for name in self.options.results}


def _interval(recall: dict[str, Any]) -> str:
    low, high = recall["interval_95"]
    return f"{recall['recall']:.3f} ({low:.3f} to {high:.3f})"


def _manifest(options: MineOptions, corpora: Sequence[Corpus]) -> Manifest:
    """The manifest fields that the datasets share; nothing that depends on time or place."""
    no_effect = ("input", "output", "other", "workers", "block_rows")  # on what the datasets hold, besides the corpora
    settings = {name: value for name, value in dataclasses.asdict(options).items() if name not in no_effect}
    digests = [corpus.digest for corpus in corpora]
    versions = {package: version(package) for package in ("sbert-beam", "torch", "pyarrow")}
    return Manifest(
        settings=settings, source=digest_of(digests, settings), corpora=corpus_states(corpora), versions=versions
    )


def submit(options: MineOptions, beam_flags: Sequence[str] = ()) -> PipelineResult:
    """Gives the job to its runner and does not wait: see `PipelineJob.submit`."""
    return MineJob(options, beam_flags).submit()


def run(options: MineOptions, beam_flags: Sequence[str] = ()) -> Figures:
    """Runs the job and returns its summary."""
    return MineJob(options, beam_flags).run()
