"""The progress display of a local job."""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from sbert_core.progress import ProgressBar
from transforms.dataset.files import list_folder

_POLL_SECONDS = 0.5
_PAUSE_PER_LISTING = 50  # listing a large folder of an object store takes many requests: at most 2% of the time


class Progress:
    """Shows how much of a job is done, by the files in a folder.

    `expected` maps the key of each file to its units of work; `key` returns the key of a file name.
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
        """Units of the files that exist."""
        try:
            found = {self._key(name) for name in list_folder(self._folder)}
        except Exception:  # progress must never stop a job
            return 0
        return sum(units for key, units in self._expected.items() if key in found)

    def _watch(self) -> None:
        with ProgressBar(self._label, self._total, self._unit, done=self.done()) as bar:
            running, pause = True, _POLL_SECONDS
            while running:
                running = not self._stop.wait(pause)
                start = time.monotonic()
                bar.advance_to(self.done())
                pause = max(_POLL_SECONDS, _PAUSE_PER_LISTING * (time.monotonic() - start))
