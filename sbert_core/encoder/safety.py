"""What a model folder may contain: data, never code; and who may read it."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import torch

from sbert_core.errors import ModelError, SbertBeamError

Value = TypeVar("Value", int, bool, str, dict)

_MOST = 2**31
_LINE = 300
_PICKLED = ("pytorch_model*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")


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


def setting(path: Path, config: dict[str, Any], name: str, kind: type[Value], default: Value | None) -> Value | None:
    """A value of a model's configuration, if it is of its kind; null and a name that is not there are the default.

    Whole numbers must be sizes: at least 1, and no larger than one that a model can have.
    """
    value = config.get(name)
    if value is None:
        return default
    if not isinstance(value, kind) or (kind is int and (isinstance(value, bool) or not 1 <= value <= _MOST)):  # type: ignore[operator]
        wanted = {int: f"a whole number from 1 to {_MOST:,}", bool: "true or false", str: "text", dict: "an object"}
        raise ModelError(f"{path}: {name!r} is {_short(value)}, expected {wanted[kind]}")
    return value


def required(path: Path, config: dict[str, Any], name: str, kind: type[Value]) -> Value:
    """The same of a value that must be there."""
    value = setting(path, config, name, kind, None)
    if value is None:
        raise ModelError(f"{path} does not say {name!r}: is the file damaged?")
    return value


def one_line(error: BaseException) -> str:
    """What an error says, in one line of bearable length."""
    words = " ".join(str(error).split()) or type(error).__name__
    return words if len(words) <= _LINE else f"{words[:_LINE]} ..."


@contextlib.contextmanager
def refuse_damage(folder: Path, doing: str = "be loaded") -> Iterator[None]:
    """Turns whatever a library raises over the files of a model into a ModelError of one line.

    What a machine lacks, memory or the user's patience, is no fault of the model and goes through.
    """
    try:
        yield
    except (SbertBeamError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise ModelError(f"{folder} cannot {doing}: {type(error).__name__}: {one_line(error)}") from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of Rust, which the tokenizer is written in
            raise
        raise ModelError(f"{folder} cannot {doing}: its tokenizer is damaged: {one_line(error)}") from error


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def inner_path(folder: Path, relative: Any) -> Path:
    """Joins a path named in a model's own files; one that leaves the folder is refused."""
    if not isinstance(relative, str) or "\0" in relative:
        raise ModelError(f"{folder} names a path in its own files that is {_short(relative)}: expected text")
    path = folder / relative
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ModelError(f"{folder} names the path {relative!r} in its own files, which leaves the model folder")
    return path


def share_files(folder: Path) -> None:
    """Gives the files of a model folder the mode of new files: safetensors makes its own readable to nobody else."""
    probe = folder / ".mode"
    probe.touch()
    mode = probe.stat().st_mode & 0o777  # what the umask leaves, which cannot be asked for without changing it
    probe.unlink()
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(mode)


def check_folder(folder: Path, *, allow_pickle: bool = False, allow_code: bool = False) -> None:
    """Refuses a folder whose weights are pickled or which brings code of its own.

    Unpickling runs whatever the file says, and so does custom code: both need the caller's explicit word.
    """
    for name in ("config.json", "tokenizer_config.json", "processor_config.json"):
        path = folder / name
        if path.exists() and "auto_map" in read_object(path) and not allow_code:
            raise ModelError(
                f"{path} asks to run Python code from the model ('auto_map'). "
                "If you trust its author, load it with allow_code=True"
            )
    if (folder / "adapter_config.json").exists():
        raise ModelError(f"{folder} holds an adapter, not a model: merge it into its base model and save that")
    if (folder / "model.safetensors").exists():
        return
    index = folder / "model.safetensors.index.json"
    if index.exists():
        return  # `folder_shapes` looks at the files that it names
    pickled = sorted(path.name for pattern in _PICKLED for path in folder.glob(pattern))
    if not pickled:
        raise ModelError(f"{folder} has no model.safetensors: it is not a complete model folder")
    if not allow_pickle:
        raise ModelError(
            f"{folder / pickled[0]} is a pickle, which can run code when it is opened. Convert it to "
            "safetensors, or, if you trust its author, load it with allow_pickle=True"
        )
