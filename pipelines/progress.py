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
    """Watches a folder fill with parts: a bar on a terminal, a line now and then elsewhere.

    `expected` maps the name of each part to its rows.
    """

    def __init__(self, label: str, folder: str, expected: dict[str, int]) -> None:
        self._folder = folder
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

    def rows_done(self) -> int:
        """Rows in the parts that are there."""
        try:
            names = {posixpath.basename(path) for path in match(f"{self._folder}/*.parquet")}
        except Exception:  # the folder may not be there yet; progress must never stop a job
            return 0
        return sum(rows for name, rows in self._expected.items() if name in names)

    def _watch(self) -> None:
        first, logged, start = self.rows_done(), time.monotonic(), time.monotonic()
        terminal = sys.stderr.isatty()
        with tqdm(total=self._total, initial=first, unit="row", desc=self._label, disable=not terminal) as bar:
            running = True
            while running:
                running = not self._stop.wait(_POLL_SECONDS)
                done = self.rows_done()
                bar.update(done - bar.n if terminal else 0)
                if not terminal and time.monotonic() - logged > _LOG_SECONDS:
                    logged = time.monotonic()
                    speed = (done - first) / (logged - start)
                    left = f", {(self._total - done) / speed:.0f} s left" if speed else ""
                    line = f"{self._label}: {done:,} of {self._total:,} rows, {speed:,.0f} rows/s{left}"
                    print(line, file=sys.stderr, flush=True)
