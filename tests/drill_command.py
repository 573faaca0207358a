"""The command line with a fake encoder, which says when it begins: a process for the drill to kill or to race."""

import functools
import sys
import time

from pipelines import signals
from tests.fake_encoder import FakeEncoder

SECONDS_PER_BATCH = 0.03


class PacedEncoder(FakeEncoder):
    """Takes a little time, so that there is something to interrupt."""

    def encode(self, texts, **options):
        time.sleep(SECONDS_PER_BATCH)
        return super().encode(texts, **options)


def load_paced(model, **options) -> PacedEncoder:
    return PacedEncoder()


if __name__ == "__main__":
    signals.install()
    from pipelines import cluster, embed, mine  # noqa: F401 - imported before the clock of the drill starts
    from pipelines.cli import main

    embed.make_encode = functools.partial(embed.make_encode, load=load_paced)
    print("begins", flush=True)
    code = main()
    signals.ignore()
    sys.exit(code)
