"""Command lines: what is refused before any work, and how."""

import dataclasses
import importlib
import math

import pytest

import transforms.neighbors.duplicates
import transforms.neighbors.mining_plan
from pipelines import embed_options, mine_options
from pipelines.cli import JOBS, OPTIONS, main
from pipelines.flags import FlagParser, JobOptions, add_flags, flag, parse_flags
from sbert_core.data.schema import STORED_TYPES
from sbert_core.errors import DataError

REQUIRED = {
    "run": {"input": "x", "output": "y"},
    "embed": {"input": "x", "output": "y"},
    "mine": {"input": "x", "output": "y"},
    "cluster": {"input": "x", "output": "y"},
    "report": {"input": "x"},
    "train": {"output": "y", "model": "m", "data": "d"},
    "evaluate": {"model": "m", "task": "sts", "data": "d"},
    "search": {"queries": "where is it", "corpus": "x"},
    "verify": {"output": "y"},
}


def options_type(job: str) -> type:
    return getattr(importlib.import_module(f"pipelines.{job}_options"), OPTIONS[job])


def refusal(job: str, capsys, **flags: str) -> str:
    """The line that a command is refused with."""
    given = {**REQUIRED[job], **flags}
    arguments = [job, *(f"--{name}={value}" for name, value in given.items())]
    return refused(arguments, capsys)


def refused(arguments: list[str], capsys) -> str:
    try:
        code = main(arguments)
    except SystemExit as caught:
        code = caught.code
    (line,) = capsys.readouterr().err.splitlines()
    assert code == 2
    assert line.startswith(f"sbert-beam {arguments[0]}: ")
    return line


def numeric_flags() -> list[tuple[str, dataclasses.Field]]:
    fields = [(job, field) for job in JOBS for field in dataclasses.fields(options_type(job))]
    return [
        (job, field)
        for job, field in fields
        if (isinstance(field.default, int | float) and not isinstance(field.default, bool))
        or field.metadata["argparse"].get("type") in (int, float)
    ]


def test_every_job_is_tested():
    assert REQUIRED.keys() == JOBS.keys()
    assert len(numeric_flags()) > 30


NO_NUMBERS = ["nan", "inf", "-inf", "1e400", "text", "", "-7"]
HUGE = "99999999999999999999"


@pytest.mark.parametrize("value", NO_NUMBERS)
@pytest.mark.parametrize(("job", "field"), numeric_flags(), ids=lambda value: getattr(value, "name", value))
def test_numbers_out_of_range_are_refused(job, field, value, capsys):
    assert f"--{field.name}" in refusal(job, capsys, **{field.name: value})


@pytest.mark.parametrize(
    ("job", "field"),
    [(job, field) for job, field in numeric_flags() if field.name != "learning_rate"],  # unwise, but no mistake
    ids=lambda value: getattr(value, "name", value),
)
def test_huge_numbers_are_refused(job, field, capsys):
    assert f"--{field.name} " in refusal(job, capsys, **{field.name: HUGE})


@pytest.mark.parametrize(("job", "field"), numeric_flags(), ids=lambda value: getattr(value, "name", value))
def test_defaults_are_in_range(job, field):
    options = options_type(job)(**REQUIRED[job])
    value = getattr(options, field.name)
    assert value is None or math.isfinite(value)


@pytest.mark.parametrize(
    ("job", "name", "value", "message"),
    [
        ("mine", "min_score", "nan", "--min_score must be a finite number, got nan"),
        ("mine", "max_lexical_overlap", "2", "--max_lexical_overlap must be between 0 and 1, got 2.0"),
        ("mine", "max_pairs", "-1", "--max_pairs must be at least 0, got -1"),
        ("mine", "probes", "-1", "--probes must be at least 0, got -1"),
        ("mine", "keep", "shortest", "--keep is one of first, longest, newest, got 'shortest'"),
        ("cluster", "algorithm", "nope", "--algorithm is one of leiden, "),
        ("cluster", "resolution", "-1", "--resolution must be between 0 and 1000000, got -1.0"),
        ("cluster", "k", "0", "--k is a number of clusters or auto, got '0'"),
        ("cluster", "k", "9" * 30, "--k is a number of clusters or auto"),
        ("cluster", "reduction", "tsne", "--reduction is pca or umap, got 'tsne'"),
        ("run", "algorithm", "nope", "--algorithm is one of leiden, "),
        ("run", "top_k", "0", "--top_k must be at least 1, got 0"),
        ("embed", "precision", "half", "--precision is one of auto, float32"),
        ("embed", "stored", "float", "--stored is one of float32, float16, int8"),
        ("train", "learning_rate", "0", "--learning_rate must be above 0, got 0.0"),
        ("evaluate", "task", "nope", "--task is one of sts, "),
    ],
)
def test_a_refusal_says_what_is_allowed(job, name, value, message, capsys):
    assert message in refusal(job, capsys, **{name: value})


def text_flags() -> list[tuple[str, str]]:
    return [
        (job, field.name)
        for job in JOBS
        for field in dataclasses.fields(options_type(job))
        if (field.default is None or field.default is dataclasses.MISSING or isinstance(field.default, str))
        and not field.metadata["may_be_empty"]
    ]


@pytest.mark.parametrize(("job", "name"), text_flags())
@pytest.mark.parametrize("value", ["", " "])
def test_empty_values_are_refused(job, name, value, capsys):
    line = refusal(job, capsys, **{name: value})
    assert f"--{name}" in line


def test_some_values_may_be_empty():
    assert options_type("search")(**REQUIRED["search"], prompt="").prompt == ""


@pytest.mark.parametrize("job", [job for job in JOBS if job != "verify"])  # its argument is positional
def test_a_flag_is_given_once(job, capsys):
    name, value = next(iter(REQUIRED[job].items()))
    flags = [f"--{name}={value}" for name, value in REQUIRED[job].items()]
    line = refused([job, *flags, f"--{name}", value], capsys)
    assert f"--{name} is given 2 times: give" in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["search", "--queries", "where", "is", "my", "parcel", "--corpus", "x"],
            "unexpected argument 'is' after --queries, which takes one value: quote values with spaces",
        ),
        (
            ["cluster", "--input", "a", "b", "--output", "y"],
            "unexpected argument 'b' after --input, which takes one value",
        ),
        (["report", "--input", "a", "b"], "unexpected argument 'b' after --input, which takes one value"),
        (["report", "stray", "--input", "a"], "unexpected argument 'stray': "),
        (["mine", "--mutual", "yes", "--input", "a", "--output", "y"], "'yes' after --mutual, which takes no value"),
        (["embed", "--input", "a", "--output", "y", "z"], "unexpected argument 'z' after --output"),
        (["embed", "--input", "a", "--output", "y", "z", "--runner", "FnApiRunner"], "unexpected argument 'z'"),
        (["embed", "--input", "a", "--output", "y", "--runner", "FnApiRunner", "z"], "unexpected argument 'z'"),
        (["embed", "--input", "a", "--output", "y", "--streaming", "z"], "unexpected argument 'z'"),
        (["embed", "--input", "a", "--output", "y", "--", "z"], "unexpected argument 'z'"),
        (["embed", "--input", "a", "--output", "y", "-z"], "unexpected argument '-z'"),
        (["embed", "--input", "a", "--output", "y", "--direct_num_workers", "many"], "invalid int value: 'many'"),
    ],
)
def test_stray_arguments_are_refused(arguments, message, capsys):
    assert message in refused(arguments, capsys)


@pytest.mark.parametrize("job", ["run", "embed", "mine"])
def test_several_inputs_are_taken(job):
    parser = FlagParser()
    add_flags(parser, options_type(job))
    arguments = ["--input", "a.parquet", "b.parquet", "--output", "y", "--runner", "FnApiRunner", "--streaming"]
    options, rest = parse_flags(parser, options_type(job), arguments)
    assert options.input == ["a.parquet", "b.parquet"]
    assert rest == ["--runner", "FnApiRunner", "--streaming"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FolderOptions(JobOptions):
    folder: str = flag("a folder", positional=True)
    limit: int = flag("how many", 3, at_least=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaybeOptions(JobOptions):
    folder: str = flag("a folder", "here", positional=True)


def parse(options: type, *arguments: str) -> JobOptions:
    parser = FlagParser(prog="check")
    add_flags(parser, options)
    return parse_flags(parser, options, arguments)[0]


def test_positional_arguments(capsys):
    assert parse(FolderOptions, "out") == FolderOptions(folder="out", limit=3)
    assert parse(FolderOptions, "--limit", "5", "out") == FolderOptions(folder="out", limit=5)
    assert parse(MaybeOptions).folder == "here"
    assert parse(MaybeOptions, "there").folder == "there"
    with pytest.raises(DataError, match="FOLDER is empty"):
        parse(FolderOptions, "")
    for arguments, message in (
        ((), "required: FOLDER"),
        (("out", "more"), "unexpected argument 'more'"),
        (("--folder", "out"), "unknown flag --folder"),
    ):
        with pytest.raises(SystemExit):
            parse(FolderOptions, *arguments)
        assert message in capsys.readouterr().err


def test_choices_are_those_of_the_steps():
    assert mine_options.PAIRINGS == transforms.neighbors.mining_plan.PAIRINGS
    assert mine_options.KEEP_RULES == transforms.neighbors.duplicates.KEEP_RULES
    assert set(embed_options.STORED) == set(STORED_TYPES)
