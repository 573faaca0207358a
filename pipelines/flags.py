"""A job's options as command-line flags: one frozen dataclass says both."""

import argparse
import dataclasses
import difflib
from collections.abc import Sequence
from typing import Any, NoReturn, TypeVar

from sbert_core.errors import DataError

Options = TypeVar("Options")

WORKERS = "processes per machine: those to start here, or those a remote runner starts there"


def flag(help_text: str, default: Any = dataclasses.MISSING, **argparse_options: Any) -> Any:
    """A field of an options dataclass that is also a flag of the same name."""
    metadata = {"help": help_text, **argparse_options}
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def same_flag(options: type, name: str) -> Any:
    """The flag that another job has by this name."""
    field = next(field for field in dataclasses.fields(options) if field.name == name)
    return dataclasses.field(default=field.default, metadata=field.metadata)


def add_flags(parser: argparse.ArgumentParser, options: type) -> None:
    """Adds a flag for every field, required where there is no default."""
    for field in dataclasses.fields(options):
        settings = dict(field.metadata)
        required = field.default is dataclasses.MISSING
        if not required:
            if "action" not in settings:
                settings.setdefault("type", type(field.default) if field.default is not None else str)
            shown = "" if field.default in (None, "", False) else f" (default: {field.default})"
            settings["help"] += shown.replace("%", "%%")
        parser.add_argument(
            f"--{field.name}", required=required, default=field.default if not required else None, **settings
        )


class FlagParser(argparse.ArgumentParser):
    """Tells a mistake in one line."""

    def error(self, message: str) -> NoReturn:
        """Exits with code 2."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def parse_flags(
    parser: argparse.ArgumentParser, options: type[Options], arguments: Sequence[str]
) -> tuple[Options, list[str]]:
    """Parses our flags into `options`; what is left must be flags that Beam knows, and is returned."""
    _refuse_unknown(parser, options, arguments)
    ours, rest = parser.parse_known_args(arguments)
    names = [field.name for field in dataclasses.fields(options)]  # type: ignore[arg-type]
    return options(**{name: getattr(ours, name) for name in names}), rest


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


def _refuse_unknown(parser: argparse.ArgumentParser, options: type, arguments: Sequence[str]) -> None:
    """Beam only warns of flags that it does not know."""
    names = {field.name for field in dataclasses.fields(options)}
    given = [argument.split("=")[0] for argument in arguments if argument.startswith("--")]
    others = [argument for argument in given if argument.removeprefix("--") not in names and argument != "--help"]
    if not others:
        return
    from apache_beam.options.pipeline_options import PipelineOptions  # takes seconds

    known = PipelineOptions(list(arguments))
    unknown = known.get_all_options(retain_unknown_options=True).keys() - known.get_all_options().keys()
    for argument in others:
        name = argument.removeprefix("--").replace("-", "_")
        if name in unknown:
            close = difflib.get_close_matches(name, names, 1)
            hint = f"did you mean --{close[0]}?" if close else "neither this job nor Beam has it"
            parser.error(f"unknown flag {argument}: {hint}")
