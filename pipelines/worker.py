"""The worker process of a local run: `python -m pipelines.worker`, started by `pipelines.local_runner`.

It lives no longer than the process that started it. Its standard input is a pipe from there that never says anything:
the end of it means that the other side is gone, however it ended. What this process has to say at its own end goes to
standard output, which is a pipe back.
"""

import os
import signal
import sys
import threading
import traceback
from typing import BinaryIO

PARENT_GONE = 3  # exit code


def main() -> None:
    """Runs Beam's worker until the run is over, and exits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that a person started
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    report = _take_output()
    try:
        from apache_beam.runners.worker import sdk_worker_main  # takes seconds

        sdk_worker_main.main(sys.argv)
    except BaseException as error:
        report.write("".join(traceback.format_exception_only(error)).strip().encode())
        report.close()
        os._exit(1)
    # Not sys.exit: a thread that a library left behind would keep the process, and the run, waiting.
    os._exit(0)


def _exit_with_parent() -> None:
    while os.read(0, 1024):
        pass
    os._exit(PARENT_GONE)


def _take_output() -> BinaryIO:
    """The pipe back; from then on nothing else is written there or to standard error.

    Beam prints the traceback of every failure, which the driver gets anyway, and of every lost connection. File
    descriptor 2 stays open for what native code writes when it crashes.
    """
    report = os.fdopen(os.dup(1), "wb")
    quiet = open(os.devnull, "w")  # noqa: PTH123, SIM115
    os.dup2(quiet.fileno(), 1)
    sys.stdout = sys.stderr = quiet
    threading.excepthook = lambda _: None
    return report


if __name__ == "__main__":
    main()
