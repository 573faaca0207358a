"""`python -m pipelines JOB`: the command line as a program. `sbert_beam.command` is the installed one."""

import sys

from pipelines import signals


def command() -> int:
    """Runs a command; Ctrl-C and SIGTERM end it in one line, also during imports."""
    signals.install()
    from pipelines.cli import main

    code = main()
    signals.ignore()
    return code


if __name__ == "__main__":
    sys.exit(command())
