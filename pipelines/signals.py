"""Ctrl-C and SIGTERM of the command line: one line, exit code 130 or 143, and nothing left running.

The process ends from a thread of its own. An exception raised in the main thread instead would be lost or printed as
a traceback wherever a library catches everything, during imports for example, and would wait for native code to end.
Whatever is on disk was written whole, and worker processes end with this one, so there is little to do before.
"""

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

CLEANUP_SECONDS = 20.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_cleanups: list[Callable[[], str | None]] = []
_lock = threading.Lock()
_line = ["sbert-beam", ""]  # the command's name, and how to go on


def install() -> None:
    """Lets the signals end this process; for the program's entry point only, in the main thread."""
    handled = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)  # gets the number of each signal, at once
    for number in handled:
        signal.signal(number, lambda *_: None)  # without a handler nothing is written
    threading.Thread(target=_watch, args=(read, handled), name="signals", daemon=True).start()


def describe_command(name: str, advice: str) -> None:
    """What the line begins with, and how it ends."""
    _line[:] = [name, advice]


@contextlib.contextmanager
def on_stop(cleanup: Callable[[], str | None]) -> Iterator[None]:
    """Inside the block a signal runs `cleanup` before the process ends; what it returns is told."""
    with _lock:
        _cleanups.append(cleanup)
    try:
        yield
    finally:
        with _lock:
            _cleanups.remove(cleanup)


def run_exit_handlers() -> None:
    """Runs what libraries registered with atexit, which the end of this process would leave out."""
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()


def stop_line(name: str, number: int, advice: str, notes: list[str]) -> str:
    """The line about a command that was stopped."""
    cause = "stopped" if number == signal.SIGINT else f"stopped by {signal.Signals(number).name}"
    return "; ".join(part for part in (f"{name}: {cause}", *notes, advice) if part)


def _watch(pipe: int, handled: list[int]) -> None:
    first = 0
    while True:
        for number in os.read(pipe, 64):
            if number not in handled:
                continue
            if first:  # a person who asks twice does not want to wait
                os._exit(128 + first)
            first = number
            threading.Thread(target=_end, args=(number,), daemon=True).start()


def _end(number: int) -> None:
    notes: list[str] = []
    cleaner = threading.Thread(target=_clean_up, args=(notes,), daemon=True)
    cleaner.start()
    cleaner.join(CLEANUP_SECONDS)
    line = stop_line(_line[0], number, _line[1], notes)
    # A progress bar stays where it is: the line begins below it. Python's own stream may be locked by another thread.
    with contextlib.suppress(OSError):
        os.write(2, f"{_new_line()}{line}\n".encode())
    os._exit(128 + number)


def _new_line() -> str:
    return "\n" if sys.stderr is not None and sys.stderr.isatty() else ""


def _clean_up(notes: list[str]) -> None:
    with _lock:
        cleanups = list(reversed(_cleanups))
    for cleanup in cleanups:
        with contextlib.suppress(Exception):
            if note := cleanup():
                notes.append(note)
