"""All jobs one after the other: embed, mine, cluster, report. Results that are current are kept."""

import dataclasses
import sys
import time
from collections.abc import Sequence

from pipelines.checks import check_column, check_cross_encoder, check_newest_column, check_time_column
from pipelines.cluster import ClusterJob
from pipelines.cluster_options import ClusterOptions
from pipelines.embed import EmbedJob
from pipelines.embed_options import EmbedOptions
from pipelines.job import Figures, Job
from pipelines.mine import MineJob
from pipelines.mine_options import MineOptions
from pipelines.report import ReportJob
from pipelines.report_options import ReportOptions
from pipelines.run_options import RunOptions
from transforms.dataset.files import check_target
from transforms.dataset.lock import lock_output
from transforms.dataset.slices import split_file


class RunJob(Job[RunOptions]):
    """Runs the four jobs with the options that they share."""

    name = "run"
    runs_pipeline = True

    def __init__(self, options: RunOptions, beam_flags: Sequence[str] = ()) -> None:
        """Checks the options of all jobs before the first one begins."""
        super().__init__(options, beam_flags)
        out = options.output.rstrip("/")
        self._embed = EmbedJob(_embed_options(options, out), beam_flags)
        self._steps: tuple[Job, ...] = (
            self._embed,
            MineJob(_mine_options(options, out), beam_flags),
            ClusterJob(_cluster_options(options, out), beam_flags),
            ReportJob(ReportOptions(input=out, title=options.title)),
        )

    def check(self) -> None:
        """Fails before the first job for what would make a later one fail."""
        options = self.options
        names = ("labels_column", "time_column", "newest_column")
        if any(getattr(options, name) for name in names):
            files, _ = self._embed.inspected
            columns = [*files[0].schema.names, *dataclasses.astuple(self._embed.options.columns)]
            for name in names:
                check_column(name, getattr(options, name), columns, files[0].path)
            first = next((each for file in files for each in split_file(file)), None)
            check_time_column(options.time_column, first)
            check_newest_column(options.newest_column, first)
        check_cross_encoder(options.cross_encoder)
        check_target(options.output)

    def work(self) -> Figures:
        """Runs the jobs under one lock; a figure that two jobs have gets the name of the second job."""
        figures: Figures = {}
        with lock_output(self.options.output.rstrip("/"), self.name):
            for number, job in enumerate(self._steps, 1):
                print(f"[{number}/{len(self._steps)}] {job.name}", file=sys.stderr, flush=True)
                start = time.perf_counter()
                for key, value in job.run().items():
                    if key != "seconds":
                        figures[key if key not in figures else f"{job.name} {key}"] = value
                figures[f"{job.name} seconds"] = round(time.perf_counter() - start, 1)
        return figures

    def summary(self, figures: Figures, seconds: float) -> Figures:
        """The figures alone: they hold the seconds of each job."""
        return figures


def _embed_options(options: RunOptions, out: str) -> EmbedOptions:
    return EmbedOptions(
        input=options.input,
        output=out,
        model=options.model,
        text_column=options.text_column,
        id_column=options.id_column,
        csv_delimiter=options.csv_delimiter,
        encoding=options.encoding,
        skip_bad_files=options.skip_bad_files,
        device=options.device,
        workers=options.workers,
        accelerator=options.accelerator,
        encode_ram=options.encode_ram,
        encode_cpus=options.encode_cpus,
        overwrite=options.overwrite,
    )


def _mine_options(options: RunOptions, out: str) -> MineOptions:
    return MineOptions(
        input=f"{out}/embeddings",
        output=out,
        top_k=options.top_k,
        min_score=options.min_score,
        index=options.index,
        cross_encoder=options.cross_encoder,
        duplicate_score=options.duplicate_score,
        keep=options.keep,
        newest_column=options.newest_column,
        workers=options.workers,
    )


def _cluster_options(options: RunOptions, out: str) -> ClusterOptions:
    return ClusterOptions(
        input=out,
        output=out,
        algorithm=options.algorithm,
        labels_column=options.labels_column,
        time_column=options.time_column,
        workers=options.workers,
    )


def run(options: RunOptions, beam_flags: Sequence[str] = ()) -> Figures:
    """Runs the jobs and returns the figures of all of them."""
    return RunJob(options, beam_flags).run()
