"""What a person sees while a local job runs."""

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from tqdm import tqdm

from transforms.files import list_folder

_POLL_SECONDS = 0.5
_LOG_SECONDS = 15.0


class Progress:
    """Watches a folder fill with files: a bar on a terminal, a line now and then elsewhere.

    `expected` maps the key of each file to how many units of work it stands for; `key` gives the key of a file name.
    """

    def __init__(
        self,
        label: str,
        folder: str,
        expected: dict[Any, int],
        key: Callable[[str], Any] = str,
        unit: str = "rows",
    ) -> None:
        self._folder = folder
        self._key = key
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
            found = {self._key(name) for name in list_folder(self._folder)}
        except Exception:  # progress must never stop a job
            return 0
        return sum(units for key, units in self._expected.items() if key in found)

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
