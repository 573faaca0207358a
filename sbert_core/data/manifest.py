"""The manifest of a dataset: what it is, what it was made of, and which parts it has.

A dataset is a folder of Parquet parts and a `_manifest.json` that is written last. Readers follow the manifest, never
a listing: a part that it does not name does not belong to the dataset.
"""

import dataclasses
import hashlib
import json
import re
import types
import typing
import warnings
from collections.abc import Mapping
from typing import Any, Self

from sbert_core.errors import DataError, FormatWarning

MANIFEST = "_manifest.json"
FORMAT = 2
"""Version of the layout that this release writes. It reads 1 too, which has neither sizes nor a digest of its own."""

_PART_NAME = re.compile(r".+-\d{10}-[0-9a-f]{12}\.parquet")
_OLD_PART_NAME = re.compile(r".+-[0-9a-f]{8}-\d{10}\.parquet")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MAX_LABEL_BYTES = 100  # file systems allow names of 255


def part_label(text: str) -> str:
    """A text as the names of parts can hold it."""
    return re.sub(r"[^\w.-]+", "_", text).encode()[-_MAX_LABEL_BYTES:].decode(errors="ignore")


def part_name(label: str, number: int, version: str) -> str:
    """The name of a part: what it is of, its first row or number, and a hash of all that decides its content.

    A part whose content would differ has another name: a new part never replaces one that readers may be reading.
    """
    return f"{part_label(label)}-{number:010d}-{version[:12]}.parquet"


def part_key(name: str) -> tuple[str, int] | None:
    """What a part is of and its number, whatever its content; None if it is not the name of a part."""
    label, _, rest = name.rpartition("-")[0].rpartition("-")
    return (label, int(rest)) if _PART_NAME.fullmatch(name) else None


def is_part_name(name: str) -> bool:
    """Whether a job has given a file this name, in this format or the one before."""
    return bool(_PART_NAME.fullmatch(name) or _OLD_PART_NAME.fullmatch(name))


def digest_of(*content: Any) -> str:
    """A SHA-256 of values that JSON can hold, the same in every process."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """One committed file of a dataset."""

    name: str
    rows: int
    sha256: str
    bytes: int | None = None  # None: written by a release that did not record it
    source: str | None = None  # of embeddings: a hash of the input rows, the encoder and the options
    n_tokens: int | None = None
    truncated: int | None = None
    rejected: int | None = None  # input rows of this part that are in rejected/ instead


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputRows:
    """An input file that a dataset was made of."""

    name: str
    rows: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class SkippedFile:
    """An input file that could not be read and was left out, as --skip_bad_files allows."""

    name: str
    reason: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusState:
    """A corpus as it was when something was derived from it."""

    rows: int
    digest: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """What `_manifest.json` says; a field that does not apply to a kind of dataset is None."""

    kind: str | None = None  # embeddings, rejected, neighbors, ...; None in format 1
    source: str | None = None  # a hash of all that decides the dataset
    fingerprint: str | None = None  # of the encoder whose vectors it holds or was derived from
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    parts: tuple[Part, ...] = ()

    # embeddings, rejected
    model: str | None = None
    id_column: str | None = None
    normalized: bool | None = None  # whether vectors have unit length; None: not known
    n_tokens: int | None = None
    truncated: int | None = None
    inputs: tuple[InputRows, ...] | None = None
    skipped_files: tuple[SkippedFile, ...] | None = None

    # neighbors, pairs, duplicates, search
    corpora: tuple[CorpusState, ...] | None = None
    audit: dict[str, Any] | str | None = None  # what routed mining measured of itself, or "exact"
    groups: int | None = None
    saturated_rows: int | None = None

    # clusters
    clusters: int | None = None
    resolution: float | None = None
    k: int | None = None
    neighbors: int | None = None  # of each row, that the algorithm used
    tree_change: float | None = None
    tree_exact: bool | None = None
    existing: bool | None = None  # rows were assigned to clusters of an earlier run
    quality: dict[str, Any] | None = None
    hierarchy: list[Any] | None = None

    @property
    def rows(self) -> int:
        """Rows of all parts."""
        return sum(part.rows for part in self.parts)

    @property
    def part_names(self) -> list[str]:
        """The names of the parts, in their order."""
        return [part.name for part in self.parts]

    def with_parts(self, parts: typing.Iterable[Part]) -> Self:
        """The same with these parts, in the order of their names."""
        return dataclasses.replace(self, parts=tuple(sorted(parts, key=lambda part: part.name)))

    def to_dict(self) -> dict[str, Any]:
        """The content as JSON can hold it, without what does not apply."""
        content: dict[str, Any] = {"format": FORMAT, "rows": self.rows}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            content[field.name] = [_given(each) for each in value] if isinstance(value, tuple) else value
        return {name: value for name, value in content.items() if value is not None}

    def to_json(self) -> bytes:
        """The file: the content and its digest."""
        content = self.to_dict()
        return _layout({**content, "digest": digest_of(content)})


def _layout(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=2, sort_keys=True).encode()


def is_as_written(content: bytes) -> bool:
    """Whether the bytes of a manifest that can be read are those that a job wrote; format 1 is not checked."""
    found = json.loads(content)
    return found.get("format", 1) == 1 or _layout(found) == content


def parse_manifest(content: bytes, folder: str) -> Manifest:
    """Reads the bytes of a manifest; one that is damaged, or of a newer format, is an error that names it.

    A manifest of format 1 is read with a `FormatWarning`.
    """
    path = f"{folder}/{MANIFEST}"
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"it is not JSON ({error})") from error
    if not isinstance(found, dict):
        raise _damaged(path, "it is not an object")
    try:  # JSON can escape half of a character, which no file name, column or message can hold
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"it holds what is no text ({error})") from error
    version = found.pop("format", 1)
    if type(version) is not int or version < 1:
        raise _damaged(path, f"its format is {version!r}")
    if version > FORMAT:
        raise DataError(f"{path} has format {version}, this release reads up to {FORMAT}: upgrade sbert-beam")
    digest = found.pop("digest", None)
    if version == 1 and digest is not None:
        raise _damaged(path, "its format is missing")
    if version > 1:
        try:
            expected = digest_of({**found, "format": version})
        except ValueError as error:
            raise _damaged(path, str(error)) from error
        if digest != expected:
            raise _damaged(path, "its content does not match its digest")
    else:
        warnings.warn(
            f"{folder} was written by an older release: its parts are not checked in full. Run its job again",
            FormatWarning,
            stacklevel=2,
        )
    rows = found.pop("rows", None)
    if version == 1:
        found = _from_format_1(found)
    manifest: Manifest = _read(found, Manifest, path, "")
    _check_parts(manifest, path)
    _check_values(manifest, path)
    if rows is not None and rows != manifest.rows:
        raise _damaged(path, f"it says {rows} rows, its parts have {manifest.rows}")
    return manifest


def _check_parts(manifest: Manifest, path: str) -> None:
    names = manifest.part_names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise _damaged(path, f"it lists the part {twice!r} twice")
    for part in manifest.parts:
        if not part.name or part.name.startswith((".", "_")) or re.search(r"[/\\\0]", part.name):
            raise DataError(
                f"{path} names the part {part.name!r}, which is not a file of its own folder: do not use it"
            )
        if part.rows < 0 or (part.bytes or 0) < 0:
            raise _damaged(path, f"the part {part.name!r} has a negative size")
        if part.bytes is not None and not _SHA256.fullmatch(part.sha256):
            raise _damaged(path, f"the part {part.name!r} has no SHA-256")


_SETTING_TYPES: dict[str, tuple[type, ...]] = {  # of those that other jobs use
    "text_column": (str,),
    "embedding": (str,),
    "top_k": (int,),
    "min_score": (int, float),
}
_NUMBER = (int, float)


def _check_values(manifest: Manifest, path: str) -> None:
    """Checks what is inside of fields that have no type of their own."""
    for name, kinds in _SETTING_TYPES.items():
        if type(manifest.settings.get(name, kinds[0]())) not in kinds:
            raise _damaged(path, f"settings.{name} is {str(manifest.settings[name])[:40]!r}")
    for name, value in (manifest.quality or {}).items():
        if value is not None and type(value) not in _NUMBER:
            raise _damaged(path, f"quality.{name[:40]} is {str(value)[:40]!r}")
    if isinstance(audit := manifest.audit, dict):
        recall, interval = audit.get("recall"), audit.get("interval_95")
        is_interval = (
            isinstance(interval, list) and len(interval) == 2 and all(type(end) in _NUMBER for end in interval)
        )
        is_measured = type(recall) in _NUMBER and is_interval and type(audit.get("min_score")) in _NUMBER
        if "recall" not in audit or not (recall is None or is_measured):
            raise _damaged(path, f"audit is {str(audit)[:40]!r}")


def _from_format_1(found: dict[str, Any]) -> dict[str, Any]:
    """Drops what format 1 had and this format has not; it let every job add keys of its own."""
    known = {field.name for field in dataclasses.fields(Manifest)}
    content = {name: value for name, value in found.items() if name in known}
    return {"parts": None, **content}


def _damaged(path: str, reason: str) -> DataError:
    return DataError(f"{path} is damaged: {reason}. Run the job that wrote it again (embed needs --overwrite)")


def _given(record: Any) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(record).items() if value is not None}


def _read(value: Any, hint: Any, path: str, place: str) -> Any:
    """A JSON value as the type of its field."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for option in options:
        kind = typing.get_origin(option) or option
        if option is Any or (kind in (dict, list, str, bool, types.NoneType) and isinstance(value, kind)):
            return value
        if kind is int and type(value) is int:
            return value
        if kind is float and type(value) in (int, float):
            return float(value)
        if kind is tuple and isinstance(value, list):
            return tuple(_read(each, typing.get_args(option)[0], path, place) for each in value)
        if dataclasses.is_dataclass(kind) and isinstance(value, Mapping):
            return _read_fields(value, kind, path, place)
    raise _damaged(path, f"{place.strip('.') or 'it'} is {str(value)[:40]!r}")


def _read_fields(value: Mapping[str, Any], kind: Any, path: str, place: str) -> Any:
    hints = typing.get_type_hints(kind)
    unknown = value.keys() - hints.keys()
    if unknown:
        raise _damaged(path, f"{place}{min(unknown)} is not known")
    required = {
        field.name
        for field in dataclasses.fields(kind)
        if field.default is field.default_factory is dataclasses.MISSING
    }
    if missing := required - value.keys():
        raise _damaged(path, f"{place}{min(missing)} is missing")
    return kind(**{name: _read(each, hints[name], path, f"{place}{name}.") for name, each in value.items()})
