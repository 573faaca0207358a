"""Runs the embed job with an encoder that takes its time: a process for a test to kill."""

import sys
import time

from pipelines import embed
from pipelines.embed_options import EmbedOptions
from tests.fake_encoder import FakeEncoder
from transforms.encode.encode_sentences import EncodeSentences


class SlowEncoder(FakeEncoder):
    """Takes a fifth of a second per batch."""

    def encode(self, texts, **options):
        time.sleep(0.2)
        return super().encode(texts, **options)


def load_slow(model, **options) -> SlowEncoder:
    return SlowEncoder()


if __name__ == "__main__":
    pattern, output = sys.argv[1:]
    embed.run(EmbedOptions(input=[pattern], output=output, slice_rows=10), encode=EncodeSentences(load=load_slow))
