"""What a model folder may contain: data, never code."""

import json
from pathlib import Path
from typing import Any

from sbert_core.errors import ModelError

_PICKLED = ("pytorch_model*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")


def read_json(path: Path) -> Any:
    """Reads a JSON file; the error names it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} is not readable JSON: {error}") from error


def inner_path(folder: Path, relative: str) -> Path:
    """Joins a path named in a model's own files; one that leaves the folder is refused."""
    path = folder / relative
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ModelError(f"{folder / 'modules.json'} names the path {relative!r}, which leaves the model folder")
    return path


def check_folder(folder: Path, *, allow_pickle: bool = False, allow_code: bool = False) -> None:
    """Refuses a folder whose weights are pickled or which brings code of its own.

    Unpickling runs whatever the file says, and so does custom code: both need the caller's explicit word.
    """
    for name in ("config.json", "tokenizer_config.json", "processor_config.json"):
        path = folder / name
        if path.exists() and "auto_map" in read_json(path) and not allow_code:
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
        for shard in set(read_json(index).get("weight_map", {}).values()):
            inner_path(folder, shard)
        return
    pickled = sorted(path.name for pattern in _PICKLED for path in folder.glob(pattern))
    if not pickled:
        raise ModelError(f"{folder} has no model.safetensors: it is not a complete model folder")
    if not allow_pickle:
        raise ModelError(
            f"{folder / pickled[0]} is a pickle, which can run code when it is opened. Convert it to "
            "safetensors, or, if you trust its author, load it with allow_pickle=True"
        )
