"""The options of the report job; fast to import, for `--help`."""

import dataclasses

from pipelines.flags import JobOptions, flag

EXAMPLE = "sbert-beam report --input out"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportOptions(JobOptions):
    """The options of the report job."""

    input: str = flag("the folder that holds the results of the other jobs")
    output: str | None = flag("the file to write (default: report.html in that folder)", None)
    title: str = flag("the title of the page", "Corpus report", may_be_empty=True)

    @property
    def path(self) -> str:
        """The file to write."""
        return self.output or f"{self.input.rstrip('/')}/report.html"
