"""The resource hints of the encoding step; fast to import, for `--help`."""

import dataclasses
import re

from sbert_core.errors import DataError

ACCELERATOR_PATTERN = r"type:nvidia-[a-z0-9-]+;count:1(;[a-z0-9_-]+(:[a-z0-9._-]+)?)*"
RAM_PATTERN = r"[1-9][0-9]*(\.[0-9]+)?(MB|GB|TB|MiB|GiB|TiB)"


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncodeResources:
    """Beam's resource hints for encoding, by the names of our flags. The runner decides what is not given.

    One GPU per worker: a worker with a GPU runs one process with one encoder (see docs/operating.md).
    """

    accelerator: str | None = None
    encode_ram: str | None = None
    encode_cpus: int = 0

    def __post_init__(self) -> None:
        if self.accelerator is not None and not re.fullmatch(ACCELERATOR_PATTERN, self.accelerator):
            raise DataError(
                "--accelerator is one GPU per worker, e.g. type:nvidia-tesla-t4;count:1;install-nvidia-driver, "
                f"got {self.accelerator!r}"
            )
        if self.encode_ram is not None and not re.fullmatch(RAM_PATTERN, self.encode_ram):
            raise DataError(f"--encode_ram is a size with a unit, e.g. 16GB, got {self.encode_ram!r}")
        if self.encode_cpus < 0:
            raise DataError(f"--encode_cpus must be at least 1 (0: the runner decides), got {self.encode_cpus}")

    @property
    def hints(self) -> dict[str, str]:
        """The arguments of Beam's `with_resource_hints`."""
        hints = {
            "accelerator": self.accelerator,
            "min_ram": self.encode_ram,
            "cpu_count": str(self.encode_cpus) if self.encode_cpus else None,
        }
        return {name: value for name, value in hints.items() if value is not None}
