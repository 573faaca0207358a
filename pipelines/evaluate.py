"""The evaluate job: how good encoders are at a task; no pipeline is needed."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from pipelines.evaluate_options import EvaluateOptions
from pipelines.job import Figures, Job
from sbert_core.errors import DataError
from sbert_core.evaluation.evaluation_page import render_page
from sbert_core.evaluation.render import render_json, render_markdown, render_text
from sbert_core.evaluation.request import Task
from sbert_core.evaluation.run_tasks import evaluate
from transforms.dataset.files import check_target, commit

FILE_STEM = "evaluation"


class EvaluateJob(Job[EvaluateOptions]):
    """Prints a table with the models side by side, and writes it to --output."""

    name = "evaluate"

    @property
    def folder(self) -> str | None:
        """The folder for the results, if any."""
        return self.options.output and self.options.output.rstrip("/")

    def check(self) -> None:
        """Checks the output before the models are scored."""
        if self.folder and Path(self.folder).is_file():
            raise DataError(f"--output {self.folder} is a file: give a folder")
        if self.folder:
            check_target(self.folder)

    def work(self) -> Figures:
        """Evaluates, prints and writes."""
        task = cast(Task, self.options.task)  # checked by the options
        evaluations = evaluate(task, self.options.models, self.options.data, **self.options.settings())
        print(render_text(evaluations))
        if self.folder:
            page = render_page(evaluations, f"Evaluation: {self.options.task}")
            commit(f"{self.folder}/{FILE_STEM}.json", render_json(evaluations).encode())
            commit(f"{self.folder}/{FILE_STEM}.md", render_markdown(evaluations).encode("utf-8", "replace"))
            commit(f"{self.folder}/{FILE_STEM}.html", page.encode())
        return {}

    def results(self) -> dict[str, str]:
        """The page, which also shows what the other files hold."""
        page = f"{FILE_STEM}.html"
        return {page: f"{self.folder}/{page}"} if self.folder else {}


def run(options: EvaluateOptions, beam_flags: Sequence[str] = ()) -> Figures:
    """Runs the job and returns its summary."""
    return EvaluateJob(options, beam_flags).run()
