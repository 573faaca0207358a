"""Progress of a long computation: a bar on a terminal or in a notebook, a line at intervals elsewhere."""

import sys
import time
from types import TracebackType

from tqdm.auto import tqdm

LINE_INTERVAL_SECONDS = 10.0
"""Minimum time between two lines in a log."""


class ProgressBar:
    """Counts completed units of work and shows them with the speed and the time left."""

    def __init__(self, label: str, total: int, unit: str, *, done: int = 0, disable: bool = False) -> None:
        self._label, self._unit, self._total = label, unit, total
        self._first = self._done = done
        self._status = ""
        self._start = self._shown = time.monotonic()
        shows_bar = sys.stderr.isatty() or "ipykernel" in sys.modules
        self._writes_lines = not (disable or shows_bar)
        self._bar = tqdm(
            total=total,
            initial=done,
            desc=label,
            unit=f" {unit}",
            unit_scale=True,
            disable=disable or not shows_bar,
        )

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()

    def advance_to(self, done: int, status: str = "") -> None:
        """Sets the number of completed units, with an optional status such as `loss 0.31`."""
        if status:
            self._status = status
            self._bar.set_postfix_str(status, refresh=False)
        self._bar.update(done - self._done)
        self._done = done
        if self._writes_lines and time.monotonic() - self._shown >= LINE_INTERVAL_SECONDS:
            self._shown = time.monotonic()
            print(self._line(), file=sys.stderr, flush=True)

    def advance(self, units: int = 1, status: str = "") -> None:
        """Adds to the number of completed units."""
        self.advance_to(self._done + units, status)

    def _line(self) -> str:
        speed = (self._done - self._first) / (self._shown - self._start)
        parts = [f"{self._label}: {self._done:,} of {self._total:,} {self._unit}"]
        if speed:
            shown = f"{speed:,.0f}" if speed >= 10 else f"{speed:.2g}"
            parts += [f"{shown} {self._unit}/s", f"{(self._total - self._done) / speed:,.0f} s left"]
        return ", ".join([*parts, *([self._status] if self._status else [])])
