"""The verify job: whether the results below a folder are whole. It is what to run before they are published."""

import sys
import time
from collections.abc import Sequence
from typing import Any

from pipelines.verify_options import VerifyOptions
from sbert_core.errors import DataError, JobError
from transforms.dataset.verify_output import verify_output

SHOWN_PROBLEMS = 20


def run(options: VerifyOptions, beam_flags: Sequence[str] = ()) -> dict[str, Any]:
    """Reads all datasets, prints what is wrong with them, and returns the figures; any problem is a JobError."""
    if beam_flags:
        raise DataError(f"verify runs no pipeline: {beam_flags[0]} has no effect here")
    start = time.perf_counter()
    folder = options.output.rstrip("/") or "/"
    found = verify_output(folder, _show if sys.stderr.isatty() else lambda name: None)
    for problem in found.problems[:SHOWN_PROBLEMS]:
        print(problem)
    if len(found.problems) > SHOWN_PROBLEMS:
        print(f"... and {len(found.problems) - SHOWN_PROBLEMS} more")
    if found.problems:
        count = "1 problem" if len(found.problems) == 1 else f"{len(found.problems)} problems"
        raise JobError(f"{folder} is not whole: {count}. Do not publish it")
    return {
        "datasets": len(found.datasets),
        "parts": sum(len(manifest.parts) for manifest in found.datasets.values()),
        "rows": found.rows,
        "problems": 0,
        "seconds": round(time.perf_counter() - start, 1),
    }


def _show(name: str) -> None:
    print(f"verify: {name}", file=sys.stderr, flush=True)
