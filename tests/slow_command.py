"""The command line with an encoder that takes its time: a process for a test to stop or to kill."""

import functools
import sys

from pipelines import embed, signals
from tests.slow_job import load_slow

if __name__ == "__main__":
    signals.install()
    from pipelines.cli import main

    embed.make_encode = functools.partial(embed.make_encode, load=load_slow)
    sys.exit(main())
