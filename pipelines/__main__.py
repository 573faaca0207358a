"""`python -m pipelines JOB`, and the installed script: the command line as a program of its own."""

import sys

from pipelines import signals


def command() -> int:
    """Runs a command; Ctrl-C and SIGTERM end it from the first import on."""
    signals.install()
    from pipelines.cli import main

    return main()


if __name__ == "__main__":
    sys.exit(command())
