"""The worker process of a local run: `python -m sbert_beam.worker`, started by `pipelines.local_runner`.

It ends with the process that started it. Its standard input is a pipe from that process to which nothing is written:
end of file means that the other process is gone, however it ended. The reason of a failure goes to standard output,
which is a pipe back.
"""

import os
import signal
import sys
import threading
import traceback
from typing import BinaryIO

EXIT_PARENT_GONE = 3


def main() -> None:
    """Runs Beam's worker until the run is over, and exits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the process that started this one
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    report = _take_output()
    try:
        from apache_beam.runners.worker import sdk_worker_main  # takes seconds

        sdk_worker_main.main(sys.argv)
    except BaseException as error:
        report.write("".join(traceback.format_exception_only(error)).strip().encode())
        report.close()
        os._exit(1)
    # Not sys.exit, which waits for threads that a library left behind.
    os._exit(0)


def _exit_with_parent() -> None:
    while os.read(0, 1024):
        pass
    os._exit(EXIT_PARENT_GONE)


def _take_output() -> BinaryIO:
    """Returns the pipe back, and keeps Python code from writing to it or to standard error.

    Beam prints a traceback for every failure, which the driver gets anyway, and for every lost connection. File
    descriptor 2 stays open for what native code writes when it crashes.
    """
    report = os.fdopen(os.dup(1), "wb")
    quiet = open(os.devnull, "w")  # noqa: PTH123, SIM115
    os.dup2(quiet.fileno(), 1)
    sys.stdout = sys.stderr = quiet
    threading.excepthook = lambda _: None
    return report
