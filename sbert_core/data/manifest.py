"""The manifest of a dataset: its kind, its input, its settings and its parts.

A dataset is a folder of Parquet parts and a `_manifest.json` that is written last. Readers follow the manifest, never
a listing: a file that it does not list is not part of the dataset.
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
"""The version that this release writes. It also reads version 1, which has no sizes and no digest."""

_PART_NAME = re.compile(r".+-\d{10}-[0-9a-f]{12}\.parquet")
_OLD_PART_NAME = re.compile(r".+-[0-9a-f]{8}-\d{10}\.parquet")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MAX_LABEL_BYTES = 100  # file systems allow file names of 255 bytes


def part_label(text: str) -> str:
    """A text with only the characters that names of parts may have."""
    return re.sub(r"[^\w.-]+", "_", text).encode()[-_MAX_LABEL_BYTES:].decode(errors="ignore")


def part_name(label: str, number: int, version: str) -> str:
    """The name of a part: a label, its first row or number, and a hash of everything that determines its content.

    Parts of different content have different names: a new part never replaces one that readers may be reading.
    """
    return f"{part_label(label)}-{number:010d}-{version[:12]}.parquet"


def part_key(name: str) -> tuple[str, int] | None:
    """The label and the number in the name of a part; None if it is not the name of a part."""
    label, _, rest = name.rpartition("-")[0].rpartition("-")
    return (label, int(rest)) if _PART_NAME.fullmatch(name) else None


def is_part_name(name: str) -> bool:
    """Whether a file name is that of a part, in this format or the previous one."""
    return bool(_PART_NAME.fullmatch(name) or _OLD_PART_NAME.fullmatch(name))


def digest_of(*content: Any) -> str:
    """The SHA-256 of values that JSON can represent, the same in every process."""
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
    """An input file of a dataset."""

    name: str
    rows: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class SkippedFile:
    """An input file that could not be read and was skipped, as --skip_bad_files allows."""

    name: str
    reason: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusState:
    """The state of a corpus when a dataset was derived from it."""

    rows: int
    digest: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """The content of `_manifest.json`; a field that does not apply to a kind of dataset is None."""

    kind: str | None = None  # embeddings, rejected, neighbors, ...; None in format 1
    source: str | None = None  # a hash of everything that determines the dataset
    fingerprint: str | None = None  # of the encoder whose vectors it holds or was derived from
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    parts: tuple[Part, ...] = ()

    # embeddings, rejected
    model: str | None = None
    id_column: str | None = None
    normalized: bool | None = None  # whether vectors have unit length; None: unknown
    n_tokens: int | None = None
    truncated: int | None = None
    inputs: tuple[InputRows, ...] | None = None
    skipped_files: tuple[SkippedFile, ...] | None = None

    # neighbors, pairs, duplicates, search
    corpora: tuple[CorpusState, ...] | None = None
    audit: dict[str, Any] | str | None = None  # the measured recall of routed mining, or "exact"
    groups: int | None = None
    saturated_rows: int | None = None

    # clusters
    clusters: int | None = None
    resolution: float | None = None
    k: int | None = None
    neighbors: int | None = None  # of each row, that the algorithm used
    tree_change: float | None = None
    tree_exact: bool | None = None
    levels: int | None = None  # of leiden: 2 if the corpus is too large for one worker
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
        """The same manifest with these parts, in the order of their names."""
        return dataclasses.replace(self, parts=tuple(sorted(parts, key=lambda part: part.name)))

    def to_dict(self) -> dict[str, Any]:
        """The content as JSON values, without fields that do not apply."""
        content: dict[str, Any] = {"format": FORMAT, "rows": self.rows}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            content[field.name] = [_without_nones(each) for each in value] if isinstance(value, tuple) else value
        return {name: value for name, value in content.items() if value is not None}

    def to_json(self) -> bytes:
        """The bytes of the file: the content and its digest."""
        content = self.to_dict()
        return _serialize({**content, "digest": digest_of(content)})


def _serialize(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=2, sort_keys=True).encode()


def is_as_written(content: bytes) -> bool:
    """Whether the bytes of a valid manifest are exactly those that a job wrote; format 1 is not checked."""
    found = json.loads(content)
    return found.get("format", 1) == 1 or _serialize(found) == content


def parse_manifest(content: bytes, folder: str) -> Manifest:
    """Parses the bytes of a manifest; one that is damaged, or of a newer format, is an error that names it.

    A manifest of format 1 is read with a `FormatWarning`.
    """
    path = f"{folder}/{MANIFEST}"
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"it is not JSON ({error})") from error
    if not isinstance(found, dict):
        raise _damaged(path, "it is not an object")
    try:  # JSON can escape half of a surrogate pair, which is no valid text
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"it contains invalid text ({error})") from error
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
        repeated = next(name for name in names if names.count(name) > 1)
        raise _damaged(path, f"it lists the part {repeated!r} twice")
    for part in manifest.parts:
        if not part.name or part.name.startswith((".", "_")) or re.search(r"[/\\\0]", part.name):
            raise DataError(
                f"{path} names the part {part.name!r}, which is not a file of its own folder: do not use it"
            )
        if part.rows < 0 or (part.bytes or 0) < 0:
            raise _damaged(path, f"the part {part.name!r} has a negative size")
        if part.bytes is not None and not _SHA256.fullmatch(part.sha256):
            raise _damaged(path, f"the part {part.name!r} has no SHA-256")


_SETTING_TYPES: dict[str, tuple[type, ...]] = {  # of the settings that other jobs use
    "text_column": (str,),
    "embedding": (str,),
    "top_k": (int,),
    "min_score": (int, float),
}
_NUMBER = (int, float)


def _check_values(manifest: Manifest, path: str) -> None:
    """Checks the values inside fields that are typed only as dictionaries."""
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
    """Drops keys that this format does not have: format 1 let every job add its own."""
    names = {field.name for field in dataclasses.fields(Manifest)}
    content = {name: value for name, value in found.items() if name in names}
    return {"parts": None, **content}


def _damaged(path: str, reason: str) -> DataError:
    return DataError(f"{path} is damaged: {reason}. Run the job that wrote it again (embed needs --overwrite)")


def _without_nones(record: Any) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(record).items() if value is not None}


def _read(value: Any, hint: Any, path: str, place: str) -> Any:
    """A JSON value converted to the type of its field."""
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
        raise _damaged(path, f"{place}{min(unknown)} is not a known field")
    required = {
        field.name
        for field in dataclasses.fields(kind)
        if field.default is field.default_factory is dataclasses.MISSING
    }
    if missing := required - value.keys():
        raise _damaged(path, f"{place}{min(missing)} is missing")
    return kind(**{name: _read(each, hints[name], path, f"{place}{name}.") for name, each in value.items()})
