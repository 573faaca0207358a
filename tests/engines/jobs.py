"""The jobs as the tests of engines run them: one small corpus, the command of each job, and what it writes."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

from pipelines import mine
from pipelines.cli import main
from sbert_core.clusters import two_levels
from tests.engines.sentences import make_sentences
from tests.tiny_models import make_classifier, make_transformer

ROWS_PER_GROUP = 16  # of routed mining


class Commands:
    """Runs commands with the flags of an engine; several blocks and cells take part, so that there is work to share.

    What a command reads, besides the sentences, is always made without flags: engines share no mistakes.
    """

    def __init__(self, new_folder: Callable[[str], Path]) -> None:
        self._new_folder = new_folder
        self.sentences = make_sentences(new_folder("corpus") / "sentences")
        self.model = make_transformer(new_folder("model"))  # any process can load it
        self._cross_encoder = make_classifier(new_folder("cross-encoder"))
        self.output = functools.cache(self._new_output)

    def _new_output(self, command: str, flags: tuple[str, ...] = ()) -> Path:
        output = self._new_folder(command)
        assert self.run(command, output, flags) == 0
        return output

    def run(self, command: str, output: Path, flags: tuple[str, ...]) -> int:
        """Runs a command; returns its exit code."""
        given = arguments_of(
            command, str(self.sentences), str(self.model), str(self._cross_encoder), lambda each: str(self.output(each))
        )
        return run_command(command, [*given, "--output", str(output), *flags])


def arguments_of(
    command: str, sentences: str, model: str, cross_encoder: str, folder_of: Callable[[str], str]
) -> list[str]:
    """The arguments of a command but for its output; `folder_of` gives the output of another one.

    Several blocks and cells take part, so that there is work to share.
    """
    if command in ("run", "embed"):
        return [command, "--input", sentences, "--model", model]
    done, scored = folder_of("run"), ["--cross_encoder", cross_encoder]
    if command == "search":
        corpus = ["--corpus", f"{done}/embeddings", "--block_rows=16", "--top_k=5"]
        return ["search", "--queries", f"{sentences}/part-0.parquet", *corpus, *scored]
    cluster = ["cluster", "--input", done, "--block_rows=32"]
    mining = ["mine", "--input", f"{done}/embeddings", "--top_k=8", "--block_rows=32"]
    return {
        "exact": mining,
        "routed": [*mining, "--index=routed", "--cells=6", "--probes=2"],
        "scored": [*mining, *scored],
        "leiden": cluster,
        "two levels": cluster,
        "hdbscan": [*cluster, "--algorithm=hdbscan"],
        "kmeans": [*cluster, "--algorithm=kmeans", "--k=4"],
        "existing": [*cluster, "--clusters", f"{done}/clusters"],
    }[command]


def run_command(command: str, arguments: list[str]) -> int:
    """Runs a command with limits that divide a small corpus as a large one is; returns its exit code."""
    with _small_limits(command):
        return main(arguments)


@contextlib.contextmanager
def _small_limits(command: str) -> Iterator[None]:
    """Has a small corpus divided as a large one is; both limits take effect where a job is started."""
    settings = functools.partial(mine.RoutingSettings, group_rows=ROWS_PER_GROUP)
    limit = 1 if command == "two levels" else two_levels.FLAT_BYTES
    with mock.patch.object(mine, "RoutingSettings", settings), mock.patch.object(two_levels, "FLAT_BYTES", limit):
        yield
