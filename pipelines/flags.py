"""A job's options as command-line flags: one frozen dataclass says both."""

import argparse
import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

from apache_beam.options.pipeline_options import PipelineOptions

Options = TypeVar("Options")


def flag(help_text: str, default: Any = dataclasses.MISSING, **argparse_options: Any) -> Any:
    """A field of an options dataclass that is also a flag of the same name."""
    metadata = {"help": help_text, **argparse_options}
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


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


def parse_flags(
    parser: argparse.ArgumentParser, options: type[Options], arguments: Sequence[str]
) -> tuple[Options, list[str]]:
    """Parses our flags into `options`; what is left must be flags that Beam knows, and is returned."""
    ours, rest = parser.parse_known_args(arguments)
    known = PipelineOptions(rest).get_all_options()
    unknown = PipelineOptions(rest).get_all_options(retain_unknown_options=True).keys() - known.keys()
    positional = [argument for argument in rest[:1] if not argument.startswith("-")]
    if unknown or positional:
        named = [f"--{name}" for name in sorted(unknown)] or positional
        parser.error(f"unknown: {', '.join(named)} (neither this job nor Beam has it)")
    names = [field.name for field in dataclasses.fields(options)]  # type: ignore[arg-type]
    return options(**{name: getattr(ours, name) for name in names}), rest
