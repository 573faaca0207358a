"""Ctrl-C and SIGTERM of the command line: one line, exit code 130 or 143, and nothing left running.

A separate thread ends the process. An exception raised in the main thread would be lost or printed as a traceback
wherever a library catches everything, for example during imports, and would wait for native code to return. Files on
disk are always complete and worker processes end with this one, so little is left to clean up.
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
_command = ["sbert-beam", ""]  # its name, and how to continue: the first and the last part of the line


def install() -> None:
    """Makes the signals end this process. Only for the entry point of a program, in the main thread."""
    handled = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)  # Python writes the number of each signal to it at once
    for number in handled:
        signal.signal(number, lambda *_: None)  # without a handler nothing is written
    threading.Thread(target=_watch, args=(read, handled), name="signals", daemon=True).start()


def ignore() -> None:
    """Ignores the signals from now on: the work is done, and the exit of the interpreter must not change the exit code.

    Python restores the default handlers when it exits; without this a late SIGTERM would end it without a line.
    """
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def describe_command(name: str, advice: str) -> None:
    """Sets the name of the command and the advice on how to continue, for the line that is printed."""
    _command[:] = [name, advice]


@contextlib.contextmanager
def on_stop(cleanup: Callable[[], str | None]) -> Iterator[None]:
    """Within the block a signal runs `cleanup` before the process ends; the note that it returns is printed."""
    with _lock:
        _cleanups.append(cleanup)
    try:
        yield
    finally:
        with _lock:
            _cleanups.remove(cleanup)


def run_exit_handlers() -> None:
    """Runs what libraries registered with atexit: `os._exit` would skip it."""
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()


def stop_line(name: str, number: int, advice: str, notes: list[str]) -> str:
    """The line that is printed when a command is stopped."""
    cause = "stopped" if number == signal.SIGINT else f"stopped by {signal.Signals(number).name}"
    return "; ".join(part for part in (f"{name}: {cause}", *notes, advice) if part)


def _watch(pipe: int, handled: list[int]) -> None:
    first = 0
    while True:
        for number in os.read(pipe, 64):
            if number not in handled:
                continue
            if first:  # a second signal ends the process without waiting for the clean-up
                os._exit(128 + first)
            first = number
            threading.Thread(target=_end, args=(number,), daemon=True).start()


def _end(number: int) -> None:
    notes: list[str] = []
    cleaner = threading.Thread(target=_clean_up, args=(notes,), daemon=True)
    cleaner.start()
    cleaner.join(CLEANUP_SECONDS)
    line = stop_line(_command[0], number, _command[1], notes)
    # On a terminal the line begins below the progress bar. Another thread may hold the lock of sys.stderr.
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
