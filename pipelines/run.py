"""All jobs one after the other: embed, mine, cluster, report. What is done already is not done again."""

import dataclasses
import sys
import time
from collections.abc import Sequence
from typing import Any

from pipelines import cluster, embed, mine, report
from pipelines.checks import check_column, check_cross_encoder, check_newest_column, check_time_column
from pipelines.cluster_options import ClusterOptions
from pipelines.embed_options import EmbedOptions
from pipelines.mine_options import MineOptions
from pipelines.report_options import ReportOptions
from pipelines.run_options import RunOptions
from transforms.dataset.files import check_target
from transforms.dataset.lock import lock_output
from transforms.dataset.slices import split_file


def run(options: RunOptions, beam_flags: Sequence[str] = ()) -> dict[str, Any]:
    """Runs the four jobs and returns the figures of all of them."""
    out, workers = options.output.rstrip("/"), options.workers
    # All options are checked before the first job begins.
    steps: dict[Any, Any] = {
        embed: EmbedOptions(
            input=options.input,
            output=out,
            model=options.model,
            text_column=options.text_column,
            id_column=options.id_column,
            csv_delimiter=options.csv_delimiter,
            encoding=options.encoding,
            skip_bad_files=options.skip_bad_files,
            device=options.device,
            workers=workers,
            accelerator=options.accelerator,
            encode_ram=options.encode_ram,
            encode_cpus=options.encode_cpus,
            overwrite=options.overwrite,
        ),
        mine: MineOptions(
            input=f"{out}/embeddings",
            output=out,
            top_k=options.top_k,
            min_score=options.min_score,
            index=options.index,
            cross_encoder=options.cross_encoder,
            duplicate_score=options.duplicate_score,
            keep=options.keep,
            newest_column=options.newest_column,
            workers=workers,
        ),
        cluster: ClusterOptions(
            input=out,
            output=out,
            algorithm=options.algorithm,
            labels_column=options.labels_column,
            time_column=options.time_column,
            workers=workers,
        ),
        report: ReportOptions(input=out, title=options.title),
    }
    _check(options, steps[embed])
    with lock_output(out, "run"):
        return _run_all(steps, beam_flags)


def _run_all(steps: dict[Any, Any], beam_flags: Sequence[str]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for number, (job, job_options) in enumerate(steps.items(), 1):
        name = job.__name__.rsplit(".", 1)[-1]
        print(f"[{number}/{len(steps)}] {name}", file=sys.stderr, flush=True)
        start = time.perf_counter()
        for key, value in job.run(job_options, beam_flags).items():
            if key != "seconds":
                figures[key if key not in figures else f"{name} {key}"] = value
        figures[f"{name} seconds"] = round(time.perf_counter() - start, 1)
    return figures


def _check(options: RunOptions, embed_options: EmbedOptions) -> None:
    """Finds before the first job what a later one would refuse."""
    names = ("labels_column", "time_column", "newest_column")
    if any(getattr(options, name) for name in names):
        files = embed.inspect_input(embed_options)
        columns = [*files[0].schema.names, *dataclasses.astuple(embed_options.columns)]
        for name in names:
            check_column(name, getattr(options, name), columns, files[0].path)
        first = next((task for file in files for task in split_file(file)), None)
        check_time_column(options.time_column, first)
        check_newest_column(options.newest_column, first)
    check_cross_encoder(options.cross_encoder)
    check_target(options.output)
