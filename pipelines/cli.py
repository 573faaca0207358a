"""The command line: `sbert-beam JOB --flags`."""

import importlib.metadata
import logging
import sys
from collections.abc import Sequence

from pipelines.flags import FlagParser, add_flags, parse_flags
from sbert_core.errors import JobError, SbertBeamError

JOBS = {"embed": "sentences in Parquet shards to embedding columns"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a job; returns 0 if it kept its promises, 1 if it failed, 2 if it was asked for in a wrong way."""
    parser = FlagParser(
        prog="sbert-beam",
        description="Sentence-BERT on Apache Beam.",
        epilog="`sbert-beam JOB --help` tells the flags of a job; Beam's own flags may follow them.",
    )
    version = importlib.metadata.version("sbert-beam")
    parser.add_argument("--version", action="version", version=f"sbert-beam {version}")
    jobs = parser.add_subparsers(dest="job", required=True, metavar="JOB")
    for name, text in JOBS.items():
        jobs.add_parser(name, help=text, add_help=False)
    parser.parse_known_args(arguments[:1] if arguments is not None else sys.argv[1:2])
    return _embed(arguments[1:] if arguments is not None else sys.argv[2:])


def _embed(arguments: Sequence[str]) -> int:
    from pipelines.embed_options import EXAMPLE, EmbedOptions

    parser = FlagParser(
        prog="sbert-beam embed", description=JOBS["embed"], epilog=f"example: {EXAMPLE}", allow_abbrev=False
    )
    add_flags(parser, EmbedOptions)
    logging.getLogger().setLevel(logging.CRITICAL)  # Beam's log is for its developers; what matters is raised
    try:
        options, beam_flags = parse_flags(parser, EmbedOptions, arguments)
        # Imported only now: Beam and torch take seconds to load.
        from pipelines.embed import run

        figures = run(options, beam_flags)
    except SbertBeamError as error:
        print(f"sbert-beam embed: {error}", file=sys.stderr)
        return 1 if isinstance(error, JobError) else 2
    except KeyboardInterrupt:
        print("sbert-beam embed: stopped; the same command goes on from here", file=sys.stderr)
        return 130
    for name, figure in figures.items():
        print(f"{name:>12}  {figure:,}" if isinstance(figure, int) else f"{name:>12}  {figure}")
    return 0
