"""Sentence-BERT without Beam: the encoder, its training and evaluation, and the algorithms on its vectors."""

import os

__version__ = "0.1.0"

# MKL reads this at its first use. Sums then have the same bits whatever the number of threads, so that `--workers`
# does not change a result.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")
