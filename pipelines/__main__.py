"""`python -m pipelines JOB`: the command line without the installed script."""

import sys

from pipelines.cli import main

sys.exit(main())
