"""The command line: `sbert-beam JOB --flags`."""

import importlib
import importlib.metadata
import logging
import sys
from collections.abc import Sequence

from pipelines.flags import FlagParser, add_flags, parse_flags
from sbert_core.errors import JobError, SbertBeamError

JOBS = {
    "run": "embed, mine, cluster and report in one go",
    "embed": "sentences in Parquet shards to embedding columns",
    "mine": "embeddings to neighbours, paraphrase pairs and duplicates",
    "cluster": "embeddings and neighbours to named clusters",
    "report": "the results of the other jobs as one HTML page",
    "train": "an encoder fitted to your own pairs, triplets or texts",
    "evaluate": "how good encoders are: scores on tasks, robustness, speed",
    "search": "the rows of a corpus that are nearest to queries",
}
OPTIONS = {job: f"{job.capitalize()}Options" for job in JOBS}


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
    given = list(sys.argv[1:] if arguments is None else arguments)
    return _run(parser.parse_known_args(given[:1])[0].job, given[1:])


def _run(job: str, arguments: Sequence[str]) -> int:
    module = importlib.import_module(f"pipelines.{job}_options")
    options_type = getattr(module, OPTIONS[job])
    name = f"sbert-beam {job}"
    parser = FlagParser(prog=name, description=JOBS[job], epilog=f"example: {module.EXAMPLE}", allow_abbrev=False)
    add_flags(parser, options_type)
    logging.getLogger().setLevel(logging.CRITICAL)  # Beam's log is for its developers; what matters is raised
    try:
        options, beam_flags = parse_flags(parser, options_type, arguments)
        # Imported only now: Beam and torch take seconds to load.
        if beam_flags:  # an engine that cannot be used is told before any work
            importlib.import_module("pipelines.execute").check_command(beam_flags, getattr(options, "workers", 1))
        figures = importlib.import_module(f"pipelines.{job}").run(options, beam_flags)
    except SbertBeamError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1 if isinstance(error, JobError) else 2
    except KeyboardInterrupt:
        print(f"{name}: stopped; the same command goes on from here", file=sys.stderr)
        return 130
    width = max(map(len, figures), default=0)
    for title, figure in figures.items():
        print(f"{title:>{width}}  {figure:,}" if isinstance(figure, int) else f"{title:>{width}}  {figure}")
    return 0
