"""What the report job can be told; light to import, so that `--help` answers at once."""

import dataclasses

from pipelines.flags import JobOptions, flag

EXAMPLE = "sbert-beam report --input out"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportOptions(JobOptions):
    """What the report job can be told."""

    input: str = flag("the folder that holds the results of the other jobs")
    output: str | None = flag("the file to write; without it report.html in that folder", None)
    title: str = flag("the heading of the page", "Corpus report", may_be_empty=True)

    @property
    def path(self) -> str:
        """The file to write."""
        return self.output or f"{self.input.rstrip('/')}/report.html"
