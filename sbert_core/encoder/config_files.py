"""The JSON files of a model folder: read with a check of every value, since a download can be damaged."""

import json
from pathlib import Path
from typing import Any, TypeVar

from sbert_core.errors import ModelError

Value = TypeVar("Value", int, bool, str, dict)

MAX_SIZE = 2**31
"""The largest size that a configuration may ask for."""
_MAX_MESSAGE_CHARACTERS = 300
_MAX_VALUE_CHARACTERS = 60
_EXPECTED = {
    int: f"a whole number from 1 to {MAX_SIZE:,}",
    bool: "true or false",
    str: "text",
    dict: "an object",
}


def read_json(path: Path) -> Any:
    """Reads a JSON file; the error names it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not readable JSON: {one_line(error)}") from error


def read_object(path: Path) -> dict[str, Any]:
    """Reads a JSON file that holds an object."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise ModelError(f"{path} holds {type(content).__name__}, expected an object: download it again")
    return content


def read_optional_object(path: Path) -> dict[str, Any]:
    """Reads a JSON file that holds an object; a missing file counts as an empty object."""
    return read_object(path) if path.exists() else {}


def write_json(path: Path, content: Any) -> None:
    """Writes a JSON file, indented for people."""
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def setting(path: Path, config: dict[str, Any], name: str, kind: type[Value], default: Value | None) -> Value | None:
    """Returns the value of `name` after a check of its type; null and a missing name give the default.

    Integers are sizes: at least 1 and at most `MAX_SIZE`.
    """
    value = config.get(name)
    if value is None:
        return default
    if not isinstance(value, kind) or (kind is int and not _is_size(value)):
        raise ModelError(f"{path}: {name!r} is {_short_repr(value)}, expected {_EXPECTED[kind]}")
    return value


def required(path: Path, config: dict[str, Any], name: str, kind: type[Value]) -> Value:
    """Returns the value of `name`, which must be present, after a check of its type."""
    value = setting(path, config, name, kind, None)
    if value is None:
        raise ModelError(f"{path} has no {name!r}: the file may be damaged, download it again")
    return value


def inner_path(folder: Path, relative: Any) -> Path:
    """Joins a path that a model's own files name; a path that leaves the folder is refused."""
    if not isinstance(relative, str) or "\0" in relative:
        raise ModelError(f"{folder} names a path in its own files that is {_short_repr(relative)}: expected text")
    path = folder / relative
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ModelError(f"{folder} names the path {relative!r} in its own files, which leaves the model folder")
    return path


def one_line(error: BaseException) -> str:
    """Returns the message of an error in one line of limited length."""
    message = " ".join(str(error).split()) or type(error).__name__
    return message if len(message) <= _MAX_MESSAGE_CHARACTERS else f"{message[:_MAX_MESSAGE_CHARACTERS]} ..."


def _is_size(value: Any) -> bool:
    return not isinstance(value, bool) and 1 <= value <= MAX_SIZE


def _short_repr(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_VALUE_CHARACTERS else f"{text[: _MAX_VALUE_CHARACTERS - 3]}..."
