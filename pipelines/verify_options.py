"""What the verify job can be told; light to import, so that `--help` answers at once."""

import dataclasses

from pipelines.flags import JobOptions, flag

EXAMPLE = "sbert-beam verify out"


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifyOptions(JobOptions):
    """What the verify job can be told."""

    output: str = flag("the folder that holds the results of the other jobs", positional=True)
