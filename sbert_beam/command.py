"""The installed command `sbert-beam`."""

import sys

from sbert_beam.packages import import_own_packages


def main() -> int:
    """Runs the command line with our own packages; returns the exit code."""
    try:
        import_own_packages()
    except ImportError as error:
        print(f"sbert-beam: {error}", file=sys.stderr)
        return 2
    from pipelines.__main__ import command

    return command()
