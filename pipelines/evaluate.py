"""The evaluate job: how good encoders are at a task; no pipeline is needed."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from pipelines.evaluate_options import EvaluateOptions
from sbert_core.errors import DataError
from sbert_core.evaluation.evaluation_page import render_page
from sbert_core.evaluation.render import render_json, render_markdown, render_text
from sbert_core.evaluation.request import Task
from sbert_core.evaluation.run_tasks import evaluate
from transforms.dataset.files import check_target, commit

NAME = "evaluation"


def run(options: EvaluateOptions, beam_flags: Sequence[str] = ()) -> dict[str, Any]:
    """Prints a table, models side by side, writes it to --output, and returns what else there is to tell."""
    if beam_flags:
        raise DataError(f"evaluate runs no pipeline: {beam_flags[0]} has no effect here")
    start = time.perf_counter()
    folder = options.output and options.output.rstrip("/")
    if folder and Path(folder).is_file():  # scores are not worth waiting for if they cannot be written
        raise DataError(f"--output {folder} is a file: give a folder")
    if folder:
        check_target(folder)
    task = cast(Task, options.task)  # checked by the options
    evaluations = evaluate(task, options.models, options.data, **options.settings())
    print(render_text(evaluations))
    figures: dict[str, Any] = {"seconds": round(time.perf_counter() - start, 1)}
    if folder:
        commit(f"{folder}/{NAME}.json", render_json(evaluations).encode())
        commit(f"{folder}/{NAME}.md", render_markdown(evaluations).encode("utf-8", "replace"))
        title = f"Evaluation: {options.task}"
        commit(f"{folder}/{NAME}.html", render_page(evaluations, title).encode())
        figures[f"{NAME}.html"] = f"{folder}/{NAME}.html"
    return figures
