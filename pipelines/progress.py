"""What a person sees while a local job runs."""

import posixpath
import sys
import threading
import time
from types import TracebackType

from tqdm import tqdm

from transforms.files import match

_POLL_SECONDS = 0.5
_LOG_SECONDS = 15.0


class Progress:
    """Watches a folder fill with files: a bar on a terminal, a line now and then elsewhere.

    `expected` maps the name of each file to how many units of work it stands for.
    """

    def __init__(
        self, label: str, folder: str, expected: dict[str, int], pattern: str = "*.parquet", unit: str = "rows"
    ) -> None:
        self._files = f"{folder}/{pattern}"
        self._unit = unit
        self._expected = expected
        self._total = sum(expected.values())
        self._label = label
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Progress":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def done(self) -> int:
        """Units of the files that are there."""
        try:
            names = {posixpath.basename(path) for path in match(self._files)}
        except Exception:  # the folder may not be there yet; progress must never stop a job
            return 0
        return sum(units for name, units in self._expected.items() if name in names)

    def _watch(self) -> None:
        first, logged, start = self.done(), time.monotonic(), time.monotonic()
        terminal = sys.stderr.isatty()
        looks = {"unit": f" {self._unit}", "unit_scale": True, "desc": self._label, "disable": not terminal}
        with tqdm(total=self._total, initial=first, **looks) as bar:
            running = True
            while running:
                running = not self._stop.wait(_POLL_SECONDS)
                done = self.done()
                bar.update(done - bar.n if terminal else 0)
                if not terminal and time.monotonic() - logged > _LOG_SECONDS:
                    logged = time.monotonic()
                    speed = (done - first) / (logged - start)
                    left = f", {(self._total - done) / speed:.0f} s left" if speed else ""
                    line = f"{self._label}: {done:,} of {self._total:,} {self._unit}, {speed:,.0f} {self._unit}/s{left}"
                    print(line, file=sys.stderr, flush=True)
