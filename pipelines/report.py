"""The report job: the results of the other jobs as one page."""

import posixpath
from collections.abc import Sequence

from pipelines.job import Figures, Job
from pipelines.report_options import ReportOptions
from sbert_core.report.report_page import render_report
from transforms.dataset.files import check_target, commit
from transforms.report.collect_report import collect_report

MIN_PAGE_BYTES = 1_000_000  # the page holds its own scripts


class ReportJob(Job[ReportOptions]):
    """Reads the datasets below a folder and writes the page."""

    name = "report"

    def check(self) -> None:
        """Checks the folder of the page."""
        check_target(posixpath.dirname(self.options.path) or ".", MIN_PAGE_BYTES)

    def work(self) -> Figures:
        """Renders and writes the page."""
        data = collect_report(self.options.input.rstrip("/"), self.options.title)
        page = render_report(data).encode()
        commit(self.options.path, page)
        return {
            "clusters": sum(cluster["cluster"] >= 0 for cluster in data.clusters),
            "points": len(data.points["x"]),
            "MB": round(len(page) / 1e6, 2),
        }

    def results(self) -> dict[str, str]:
        """The page."""
        return {"report": self.options.path}


def run(options: ReportOptions, beam_flags: Sequence[str] = ()) -> Figures:
    """Runs the job and returns its summary. No pipeline is needed: Beam's flags have no effect."""
    return ReportJob(options).run()
