"""All jobs one after the other: embed, mine, cluster, report. What is done already is not done again."""

import sys
import time
from collections.abc import Sequence
from typing import Any

from pipelines import cluster, embed, mine, report
from pipelines.cluster_options import ClusterOptions
from pipelines.embed_options import EmbedOptions
from pipelines.mine_options import MineOptions
from pipelines.report_options import ReportOptions
from pipelines.run_options import RunOptions


def run(options: RunOptions, beam_flags: Sequence[str] = ()) -> dict[str, Any]:
    """Runs the four jobs and returns the figures of all of them."""
    out, workers = options.output.rstrip("/"), options.workers
    # All options are checked before the first job begins.
    steps = {
        embed: EmbedOptions(
            input=options.input,
            output=out,
            model=options.model,
            text_column=options.text_column,
            id_column=options.id_column,
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
