"""The command line: `sbert-beam JOB --flags`."""

import contextlib
import importlib
import importlib.metadata
import logging
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from pipelines import signals
from pipelines.flags import SKIPPED_FILES, FlagParser, add_flags, parse_flags
from sbert_core.errors import FormatWarning, JobError, SbertBeamError

JOBS = {
    "run": "embed, mine, cluster and report in one go",
    "embed": "sentences in Parquet shards to embedding columns",
    "mine": "embeddings to neighbours, paraphrase pairs and duplicates",
    "cluster": "embeddings and neighbours to named clusters",
    "report": "the results of the other jobs as one HTML page",
    "train": "an encoder trained on your own pairs, triplets or texts",
    "evaluate": "scores of encoders on tasks, robustness and speed",
    "search": "the rows of a corpus that are nearest to queries",
    "verify": "checks that the results below a folder are intact",
}
RESUMABLE = ("run", "embed", "mine", "train")  # jobs that continue where a stopped run ended
EXIT_FILES_SKIPPED = 3
OPTIONS = {job: f"{job.capitalize()}Options" for job in JOBS}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a job and returns its exit code.

    0 if the job succeeded, 1 if it failed, 2 if the command line or the input is wrong, 3 if it succeeded and left out
    unreadable files with `--skip_bad_files`.
    """
    parser = FlagParser(
        prog="sbert-beam",
        description="Sentence-BERT on Apache Beam.",
        epilog="`sbert-beam JOB --help` shows the flags of a job; Beam's own flags may follow them.",
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
    advice = f"the same command {'continues from here' if job in RESUMABLE else 'starts again'}"
    signals.describe_command(name, advice)
    parser = FlagParser(prog=name, description=JOBS[job], epilog=f"example: {module.EXAMPLE}", allow_abbrev=False)
    add_flags(parser, options_type)
    logging.getLogger().setLevel(logging.CRITICAL)  # what matters to users is raised as an error
    try:
        options, beam_flags = parse_flags(parser, options_type, arguments)
        # Imported only now: Beam and torch take seconds to load.
        if beam_flags:  # an engine that cannot be used is an error before any work
            importlib.import_module("pipelines.execute").check_command(beam_flags, getattr(options, "workers", 1))
        with _short_warnings(name):
            figures = importlib.import_module(f"pipelines.{job}").run(options, beam_flags)
    except SbertBeamError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1 if isinstance(error, JobError) else 2
    except OSError as error:  # a full disk or a lost mount, outside a pipeline
        print(f"{name}: {_describe(error)}; {advice} when this is fixed", file=sys.stderr)
        return 1
    except KeyboardInterrupt as stopped:  # only where another program calls this function
        print(signals.stop_line(name, signal.SIGINT, advice, [str(stopped)]), file=sys.stderr)
        return 130
    width = max(map(len, figures), default=0)
    for title, figure in figures.items():
        print(f"{title:>{width}}  {figure:,}" if isinstance(figure, int) else f"{title:>{width}}  {figure}")
    return EXIT_FILES_SKIPPED if figures.get(SKIPPED_FILES) else 0


def _describe(error: OSError) -> str:
    """The reason of a system error in one line, with the file if it has one."""
    reason = error.strerror or " ".join(str(error).split()) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename else reason


@contextlib.contextmanager
def _short_warnings(name: str) -> Iterator[None]:
    """Prints each of our warnings once, in one line."""
    with warnings.catch_warnings():
        warnings.simplefilter("once", FormatWarning)
        show_others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
            if issubclass(category, FormatWarning):
                print(f"{name}: warning: {message}", file=sys.stderr)
            else:
                show_others(message, category, *rest, **more)

        warnings.showwarning = show
        yield
