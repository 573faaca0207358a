"""Safety of model folders: they hold data, never code, and damage is an error of one line."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import torch

from sbert_core.encoder.config_files import one_line, read_object
from sbert_core.errors import ModelError, SbertBeamError

_PICKLE_PATTERNS = ("pytorch_model*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")


@contextlib.contextmanager
def refuse_damage(folder: Path, action: str = "be loaded") -> Iterator[None]:
    """Converts any exception that a library raises on a model's files into a one-line ModelError.

    Running out of memory and interrupts are not the model's fault and pass through.
    """
    try:
        yield
    except (SbertBeamError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise ModelError(f"{folder} cannot {action}: {type(error).__name__}: {one_line(error)}") from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # raised by the tokenizer's Rust code
            raise
        raise ModelError(f"{folder} cannot {action}: its tokenizer is damaged: {one_line(error)}") from error


def check_folder(folder: Path, *, allow_pickle: bool = False, allow_code: bool = False) -> None:
    """Refuses a folder with pickled weights or Python code.

    Unpickling can run code, and so can a custom model class: both need the caller's explicit permission.
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
        return  # `folder_shapes` checks the files that it names
    pickled = sorted(path.name for pattern in _PICKLE_PATTERNS for path in folder.glob(pattern))
    if not pickled:
        raise ModelError(f"{folder} has no model.safetensors: it is not a complete model folder")
    if not allow_pickle:
        raise ModelError(
            f"{folder / pickled[0]} is a pickle, which can run code when it is opened. Convert it to "
            "safetensors, or, if you trust its author, load it with allow_pickle=True"
        )


def set_default_file_modes(folder: Path) -> None:
    """Gives the files of a model folder the mode of new files: safetensors makes its own readable to the owner only."""
    probe = folder / ".mode"
    probe.touch()
    mode = probe.stat().st_mode & 0o777  # the umask cannot be read without changing it
    probe.unlink()
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(mode)
