"""Values of a plan, as YAML or flags give them: turned into the types of its fields, or refused in one line."""

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, get_args

from sbert_core.data.tables import short
from sbert_core.errors import DataError

Part = TypeVar("Part")

_NAMES = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    dict: "names with values",
    tuple: "a list",
}


def make_part(kind: type[Part], given: Any, where: str) -> Part:
    """A dataclass of a mapping; names that are not known, or missing, are refused."""
    if not isinstance(given, Mapping):
        raise DataError(f"{where}: expected names with values, got {short(given)}")
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in given:
        if name not in fields:
            close = difflib.get_close_matches(str(name), fields, 1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(fields)}"
            raise DataError(f"{where}: {name!r} is not known: {hint}")
    missing = [
        name
        for name, field in fields.items()
        if name not in given and field.default is field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise DataError(f"{where}: {missing[0]} is missing")
    hints = typing.get_type_hints(kind)
    return kind(**{name: as_type(value, hints[name], f"{where}: {name}") for name, value in given.items()})


def as_type(value: Any, hint: Any, where: str) -> Any:
    """A value from YAML as the type of its field; 2e-5 is text to YAML, and one column needs no list."""
    options = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None and type(None) in options:
        return None
    wanted = next(option for option in options if option is not type(None))
    kind = typing.get_origin(wanted) or wanted
    if kind is Literal:
        return value  # `check_choices` has the choices to tell
    if kind is tuple:
        return _as_tuple(value, get_args(wanted), where)
    if kind in (int, float):
        try:
            if not isinstance(value, bool) and float(value) == (number := kind(value)):
                return number
        except (TypeError, ValueError, OverflowError):
            pass
    elif isinstance(value, kind):
        if kind is dict:
            _check_names(value, get_args(wanted), where)
        return value
    raise DataError(f"{where} must be {_NAMES[kind]}, got {short(value)}")


def _as_tuple(value: Any, items: tuple[Any, ...], where: str) -> tuple[Any, ...]:
    values = tuple(value) if isinstance(value, list | tuple) else (value,)
    if ... not in items and len(values) != len(items):
        raise DataError(f"{where} must be {len(items)} values, got {short(value)}")
    if items[0] is float:
        return tuple(as_type(each, float, where) for each in values)
    for each in values:
        if not isinstance(each, items[0]):
            raise DataError(f"{where} must be {_NAMES.get(items[0], 'a list')}, or a list of it, got {short(value)}")
    return values


def _check_names(value: Mapping[Any, Any], items: tuple[Any, ...], where: str) -> None:
    for name, each in value.items():
        if not isinstance(name, str):
            raise DataError(f"{where}: the name {short(name)} must be text")
        if items[1] is str and not isinstance(each, str):
            raise DataError(f"{where}: {name} must be text, got {short(each)}")


def check_choices(plan: Any, **choices: Any) -> None:
    """Refuses a value that is not one of a Literal's."""
    for name, literal in choices.items():
        if getattr(plan, name) not in get_args(literal):
            raise DataError(f"{name} must be one of {', '.join(get_args(literal))}, got {short(getattr(plan, name))}")


def check_numbers(plan: Any, limits: Mapping[str, tuple[float, float]]) -> None:
    """Refuses a number outside of its limits, and what is not a number; None has none."""
    for name, (least, most) in limits.items():
        value = getattr(plan, name)
        if value is None or least <= value <= most:
            continue
        if most == 1:
            problem = f"from {least:g} to {most:g}"
        elif value > most:
            problem = f"at most {most:,}" if math.isfinite(most) else "a finite number"
        elif least == 0 and value < 0:
            raise DataError(f"{name} must not be negative, got {value}")
        else:
            problem = "a number" if math.isnan(value) else f"at least {least:g}"
        raise DataError(f"{name} must be {problem}, got {value}")


def check_above_zero(plan: Any, *names: str) -> None:
    """Refuses a number that is not finite and above 0; None has none."""
    for name in names:
        value = getattr(plan, name)
        if value is not None and not 0 < value < math.inf:
            raise DataError(f"{name} must be a finite number above 0, got {value}")
