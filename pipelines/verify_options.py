"""The options of the verify job; fast to import, for `--help`."""

import dataclasses

from pipelines.flags import JobOptions, flag

EXAMPLE = "sbert-beam verify out"


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifyOptions(JobOptions):
    """The options of the verify job."""

    output: str = flag("the folder that holds the results of the other jobs", positional=True)
