"""What the report job can be told; light to import, so that `--help` answers at once."""

import dataclasses

from pipelines.flags import flag

EXAMPLE = "sbert-beam report --input out"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """What the report job can be told."""

    input: str = flag("the folder that holds the results of the other jobs")
    output: str | None = flag("the file to write; without it report.html in that folder", None)
    title: str = flag("the heading of the page", "Corpus report")

    @property
    def path(self) -> str:
        """The file to write."""
        return self.output or f"{self.input.rstrip('/')}/report.html"
