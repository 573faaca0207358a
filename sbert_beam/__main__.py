"""`python -m sbert_beam JOB`: the same as the installed command."""

import sys

from sbert_beam.command import main

if __name__ == "__main__":
    sys.exit(main())
