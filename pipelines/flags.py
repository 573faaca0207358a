"""The options of a job and its command-line flags, both declared by one frozen dataclass."""

import argparse
import dataclasses
import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from sbert_core.errors import DataError

Options = TypeVar("Options")

MAX_INT = 2**31 - 1
SKIPPED_FILES = "files skipped"
"""The name of the figure for input files that were left out."""

WORKERS = "processes per machine: those to start here, or those a remote runner starts there"


def flag(
    help_text: str,
    default: Any = dataclasses.MISSING,
    *,
    at_least: float | None = None,
    above: float | None = None,
    between: tuple[float, float] | None = None,
    kind: str = "",
    one_of: Sequence[str] = (),
    may_be_empty: bool = False,
    positional: bool = False,
    **argparse_options: Any,
) -> Any:
    """A field of a `JobOptions` class that is also a flag of the same name, or a `positional` argument.

    `JobOptions` checks the values: numbers are `at_least` or `above` a limit, or `between` two, where errors call them
    a `kind` of number; a text is `one_of` several. A text must not be empty unless it `may_be_empty`.
    """
    limits = {"at_least": at_least, "above": above, "between": between, "kind": kind}
    texts = {"one_of": tuple(one_of), "may_be_empty": may_be_empty}
    metadata = {"help": help_text, "positional": positional, **limits, **texts, "argparse": argparse_options}
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def same_flag(options: type, name: str) -> Any:
    """The flag of this name of another job."""
    field = next(field for field in dataclasses.fields(options) if field.name == name)
    return dataclasses.field(default=field.default, metadata=field.metadata)


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobOptions:
    """The options of a job: subclasses declare a `flag` for each, and the values are checked here."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            check_value(field, getattr(self, field.name))


def check_value(field: dataclasses.Field[Any], value: Any) -> None:
    """Raises a DataError for a value that the flag does not allow."""
    name, allowed = _shown(field), field.metadata
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, int | float):
        _check_number(name, value, allowed)
    elif isinstance(value, str):
        if not value.strip() and not allowed["may_be_empty"]:
            optional = field.default is not dataclasses.MISSING
            raise DataError(f"{name} is empty: give a value{', or leave it out' if optional else ''}")
        if allowed["one_of"] and value not in allowed["one_of"]:
            *others, last = allowed["one_of"]
            choices = f"{others[0]} or {last}" if len(others) == 1 else f"one of {', '.join(allowed['one_of'])}"
            raise DataError(f"{name} is {choices}, got {value!r}")
    elif not value or not all(isinstance(each, str) and each.strip() for each in value):
        raise DataError(f"{name} has an empty value: give the name of a file or folder")


def _check_number(name: str, value: float, allowed: Mapping[str, Any]) -> None:
    if not math.isfinite(value):
        raise DataError(f"{name} must be a finite number, got {value}")
    if allowed["between"]:
        low, high = allowed["between"]
        if not low <= value <= high:
            kind = f"is {allowed['kind']}, between {low} and {high};" if allowed["kind"] else ""
            raise DataError(f"{name} {kind or f'must be between {low} and {high},'} got {value}")
    if allowed["at_least"] is not None and value < allowed["at_least"]:
        raise DataError(f"{name} must be at least {allowed['at_least']}, got {value}")
    if allowed["above"] is not None and value <= allowed["above"]:
        raise DataError(f"{name} must be above {allowed['above']}, got {value}")
    if isinstance(value, int) and value > MAX_INT:
        raise DataError(f"{name} must be at most {MAX_INT:,}, got {value}")


def _shown(field: dataclasses.Field[Any]) -> str:
    """The flag as it is written on the command line."""
    return field.name.upper() if field.metadata["positional"] else f"--{field.name}"


def add_flags(parser: argparse.ArgumentParser, options: type) -> None:
    """Adds a flag for every field, required where there is no default."""
    for field in dataclasses.fields(options):
        settings = {"help": field.metadata["help"], **field.metadata["argparse"]}
        required = field.default is dataclasses.MISSING
        if not required:
            if "action" not in settings:
                settings.setdefault("type", type(field.default) if field.default is not None else str)
            shown = "" if field.default in (None, "", False) else f" (default: {field.default})"
            settings["help"] += shown.replace("%", "%%")
            settings["default"] = field.default
        if field.metadata["positional"]:
            if not required:
                settings.setdefault("nargs", "?")
            parser.add_argument(field.name, metavar=field.name.upper(), **settings)
        else:
            parser.add_argument(f"--{field.name}", required=required, **settings)


class FlagParser(argparse.ArgumentParser):
    """Reports a mistake in one line."""

    def error(self, message: str) -> NoReturn:
        """Exits with code 2."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def parse_flags(
    parser: argparse.ArgumentParser, options: type[Options], arguments: Sequence[str]
) -> tuple[Options, list[str]]:
    """Parses our flags into `options`; all others must be Beam's flags, and are returned."""
    fields = dataclasses.fields(options)  # type: ignore[arg-type]
    _refuse_unknown(parser, fields, arguments)
    _refuse_repeated(parser, fields, arguments)
    ours, rest = parser.parse_known_args(arguments)
    _refuse_stray(parser, fields, arguments, rest)
    return options(**{field.name: getattr(ours, field.name) for field in fields}), rest


def parse_range(name: str, value: str | None) -> tuple[float, float] | None:
    """The two numbers of a flag such as `--label_range 0,5`."""
    if value is None:
        return None
    try:
        low, high = map(float, value.split(","))
    except ValueError as error:
        raise DataError(f"--{name} is two numbers, as 0,5, got {value!r}") from error
    return low, high


def parse_condition(name: str, value: str | None) -> dict[str, str] | None:
    """The column and the value of a flag such as `--where split=train`."""
    if value is None:
        return None
    column, equals, wanted = value.partition("=")
    if not (column and equals):
        raise DataError(f"--{name} is a column and a value, as split=train, got {value!r}")
    return {column: wanted}


_Fields = Sequence[dataclasses.Field[Any]]


def _flags_in(arguments: Sequence[str]) -> list[str]:
    return [argument.split("=")[0] for argument in arguments if argument.startswith("--")]


def _refuse_unknown(parser: argparse.ArgumentParser, fields: _Fields, arguments: Sequence[str]) -> None:
    """Unknown flags are an error: Beam only warns."""
    names = {field.name for field in fields if not field.metadata["positional"]}
    others = [flag for flag in _flags_in(arguments) if flag.removeprefix("--") not in {*names, "help", ""}]
    unknown = set(_flags_in(_left_by_beam(parser, arguments))) if others else set()
    for argument in others:
        if argument in unknown:
            close = difflib.get_close_matches(argument.removeprefix("--").replace("-", "_"), names, 1)
            hint = f"did you mean --{close[0]}?" if close else "neither this job nor Beam has it"
            parser.error(f"unknown flag {argument}: {hint}")


def _left_by_beam(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> list[str]:
    """The arguments that Beam does not know."""
    from apache_beam.options.pipeline_options import PipelineOptions, _BeamArgumentParser  # takes seconds to import

    beam_parser = _BeamArgumentParser(allow_abbrev=False, add_help=False)
    for options in {str(options): options for options in PipelineOptions.__subclasses__()}.values():
        options._add_argparse_args(beam_parser)
    beam_parser.error = parser.error  # in one line
    left: list[str] = beam_parser.parse_known_args(list(arguments))[1]
    return left


def _refuse_repeated(parser: argparse.ArgumentParser, fields: _Fields, arguments: Sequence[str]) -> None:
    """A flag that is given twice is an error: argparse would silently use the last value."""
    given = _flags_in(arguments)
    for field in fields:
        if given.count(f"--{field.name}") > 1:
            several = field.metadata["argparse"].get("nargs") == "+"
            hint = f"give all values after one --{field.name}" if several else "give it once"
            parser.error(f"--{field.name} is given {given.count(f'--{field.name}')} times: {hint}")


def _refuse_stray(
    parser: argparse.ArgumentParser, fields: _Fields, arguments: Sequence[str], rest: Sequence[str]
) -> None:
    """Values that belong to no flag are an error: a text or a glob was not quoted."""
    if not rest:
        return
    left = _left_by_beam(parser, rest) if _flags_in(rest) else rest
    stray = [argument for argument in left if argument != "--"]
    if not stray:
        return
    before = _flags_in(arguments[: list(arguments).index(stray[0])])
    name = before[-1].removeprefix("--") if before else ""
    field = next((field for field in fields if field.name == name), None)
    takes = "no value" if field and "action" in field.metadata["argparse"] else "one value"
    where = f" after --{name}, which takes {takes}" if field else ""
    parser.error(f"unexpected argument {stray[0]!r}{where}: quote values with spaces")
