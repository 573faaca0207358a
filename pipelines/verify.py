"""The verify job: checks whether the results below a folder are intact, before they are published."""

import sys
from collections.abc import Sequence

from pipelines.job import Figures, Job
from pipelines.verify_options import VerifyOptions
from sbert_core.errors import JobError
from transforms.dataset.verify_output import verify_output

MAX_SHOWN_PROBLEMS = 20


class VerifyJob(Job[VerifyOptions]):
    """Reads all datasets and prints what is wrong with them; any problem is a JobError."""

    name = "verify"

    def work(self) -> Figures:
        """Verifies all datasets."""
        folder = self.options.output.rstrip("/") or "/"
        found = verify_output(folder, _show_progress if sys.stderr.isatty() else lambda name: None)
        for problem in found.problems[:MAX_SHOWN_PROBLEMS]:
            print(problem)
        if len(found.problems) > MAX_SHOWN_PROBLEMS:
            print(f"... and {len(found.problems) - MAX_SHOWN_PROBLEMS} more")
        if found.problems:
            count = "1 problem" if len(found.problems) == 1 else f"{len(found.problems)} problems"
            raise JobError(f"{folder} is not intact: {count}. Do not publish it")
        return {
            "datasets": len(found.datasets),
            "parts": sum(len(manifest.parts) for manifest in found.datasets.values()),
            "rows": found.rows,
            "problems": 0,
        }


def _show_progress(name: str) -> None:
    print(f"verify: {name}", file=sys.stderr, flush=True)


def run(options: VerifyOptions, beam_flags: Sequence[str] = ()) -> Figures:
    """Runs the job and returns its summary."""
    return VerifyJob(options, beam_flags).run()
