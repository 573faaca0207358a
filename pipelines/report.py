"""The report job: what the other jobs have written, as one page."""

import posixpath
import time
from collections.abc import Sequence
from typing import Any

from pipelines.report_options import ReportOptions
from sbert_core.report.report_page import render_report
from transforms.dataset.files import check_target, commit
from transforms.report.collect_report import collect_report

PAGE_BYTES = 1_000_000  # at least: the page holds its own scripts


def run(options: ReportOptions, beam_flags: Sequence[str] = ()) -> dict[str, Any]:
    """Writes the page and returns the figures; no pipeline is needed, so Beam's flags have no effect."""
    start = time.perf_counter()
    check_target(posixpath.dirname(options.path) or ".", PAGE_BYTES)
    data = collect_report(options.input.rstrip("/"), options.title)
    page = render_report(data).encode()
    commit(options.path, page)
    return {
        "clusters": sum(cluster["cluster"] >= 0 for cluster in data.clusters),
        "points": len(data.points["x"]),
        "MB": round(len(page) / 1e6, 2),
        "seconds": round(time.perf_counter() - start, 1),
        "report": options.path,
    }
