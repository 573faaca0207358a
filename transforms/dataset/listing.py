"""Lists input files by globs, folders and datasets, and gives each a unique name.

Ids and part names are made from the name of a file. It is the path below the folder that all patterns have in common,
so different files have different names, and a name stays the same when that folder moves.
"""

import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from apache_beam.io.filesystem import BeamIOError, FileSystem
from apache_beam.io.filesystems import FileSystems

from sbert_core.data.dataset_reader import folder_of
from sbert_core.data.formats import SUFFIXES, first_line, is_hidden, suffix_of, without_descriptions
from sbert_core.data.manifest import MANIFEST
from sbert_core.errors import DataError
from transforms.dataset.files import match
from transforms.dataset.published import BEAM_DATASETS

_GLOB_CHARACTERS = re.compile(r"[*?\[]")
_MAX_IGNORED_SHOWN = 3


class _Listing(NamedTuple):
    """The files that one pattern matches."""

    root: str  # the folder that names begin below
    paths: list[str]
    ignored: list[str]  # files of unknown formats, and folders that are not opened
    is_dataset: bool = False


def absolute_pattern(pattern: str) -> str:
    """A pattern that means the same in every process: a local one is absolute, without `.`, `..` and double slashes."""
    if not pattern.strip():
        raise DataError("an input is empty: expected a file, a folder or a glob. See --input")
    if "\0" in pattern:
        raise DataError(f"the input {pattern!r} contains a NUL character: no path does. See --input")
    pattern = re.sub(r"^file://(localhost)?(?=/)", "", pattern)
    if FileSystems.get_scheme(pattern):
        return pattern
    return os.path.abspath(pattern) + "/" * pattern.endswith("/")  # noqa: PTH100 - URIs are no Path


def list_inputs(patterns: Sequence[str]) -> list[tuple[str, str]]:
    """The files of globs, folders and datasets of earlier jobs: (path, name), sorted by path.

    A file that two patterns match is listed once. A pattern that exists as it is written is a path, not a glob. A
    folder stands for its files of a known format. A folder within it, or among the matches of a glob, whose name is
    that of a file (`x.parquet`, as Spark writes them) is opened too. The `.json` files of a folder are read only if it
    has no others: beside data they describe it. Hidden files (`.x`, `_x`) are skipped, unless named in full.
    """
    distinct = dict.fromkeys(absolute_pattern(pattern) for pattern in patterns)
    listings = [_expand(pattern) for pattern in distinct]
    if not any(listing.paths for listing in listings):
        raise _nothing_found(patterns, [path for listing in listings for path in listing.ignored])
    for pattern, listing in zip(distinct, listings, strict=True):
        if not listing.paths and not listing.is_dataset:
            raise _nothing_found([pattern], listing.ignored)
    n_common = _count_common([_segments(listing.root) for listing in listings])
    paths = sorted({path for listing in listings for path in listing.paths})
    return [(path, _valid_name(path, "/".join(_segments(path)[n_common:]))) for path in paths]


def _valid_name(path: str, name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"the file name {path!r} is not valid UTF-8: rename the file") from error
    return name


def _nothing_found(patterns: Sequence[str], ignored: Sequence[str]) -> DataError:
    message = f"no input files: no {', '.join(SUFFIXES)} at {', '.join(map(repr, patterns))}"
    if ignored:
        shown = ", ".join(ignored[:_MAX_IGNORED_SHOWN]) + (", ..." if len(ignored) > _MAX_IGNORED_SHOWN else "")
        return DataError(f"{message}; files of other formats are ignored: {shown}")
    return DataError(f"{message} (a result is in its folder embeddings/)")


def _segments(path: str) -> list[str]:
    """The segments of a path: scheme, bucket, folders, file; local paths have no bucket."""
    scheme = FileSystems.get_scheme(path)
    if scheme is None:
        return ["file", *filter(None, path.split("/"))]
    return [scheme, *path.removeprefix(f"{scheme}://").rstrip("/").split("/")]


def _count_common(paths: Sequence[list[str]]) -> int:
    """How many leading segments all paths share."""
    n_common = 0
    for segments in zip(*paths, strict=False):
        if len(set(segments)) > 1:
            break
        n_common += 1
    return n_common


def _parts(folder: str) -> list[str]:
    """The files of a dataset: those that its manifest lists, which must exist and have the recorded size."""
    manifest = BEAM_DATASETS.read_manifest(folder)
    BEAM_DATASETS.check_sizes(folder, manifest.parts)
    return [f"{folder}/{name}" for name in manifest.part_names]


def _expand(pattern: str) -> _Listing:
    try:
        folder = folder_of(pattern)
        if FileSystems.exists(f"{folder}/{MANIFEST}"):
            return _Listing(folder, _parts(folder), [], is_dataset=True)
        return _expand_uri(pattern) if FileSystems.get_scheme(pattern) else _expand_local(pattern)
    except DataError:
        raise
    except (BeamIOError, OSError, ValueError) as error:  # ValueError: a scheme that Beam does not know
        raise DataError(f"cannot list the input {pattern}: {first_line(error)}") from error


def _expand_local(pattern: str) -> _Listing:
    path = pattern.rstrip("/") or "/"
    if os.path.isdir(path):  # noqa: PTH112
        return _Listing(path, *_list_folder(path))
    if os.path.lexists(path):
        return _Listing(os.path.dirname(path), [path], [])  # noqa: PTH120
    segments = path.split("/")[1:]
    root = ""
    while segments and (not _GLOB_CHARACTERS.search(segments[0]) or os.path.lexists(f"{root}/{segments[0]}")):
        root += f"/{segments.pop(0)}"
    if not segments:  # no file of this name
        return _Listing(os.path.dirname(path), [], [])  # noqa: PTH120
    paths: list[str] = []
    ignored: list[str] = []
    for found in sorted(_glob(root, segments)):
        if is_hidden(found):
            continue
        if not os.path.isdir(found):  # noqa: PTH112
            paths.append(found)
        elif suffix_of(found):
            parts, others = _list_folder(found)
            paths += parts
            ignored += others
        else:
            ignored.append(f"{found}/")
    return _Listing(root or "/", paths, ignored)


def _list_folder(folder: str) -> tuple[list[str], list[str]]:
    """The files of a local folder that are of a known format, and the other ones."""
    if os.path.exists(f"{folder}/{MANIFEST}"):  # noqa: PTH110
        return _parts(folder), []
    paths: list[str] = []
    ignored: list[str] = []
    for name in sorted(os.listdir(folder)):  # noqa: PTH208
        path = f"{folder.rstrip('/')}/{name}"
        is_folder = os.path.isdir(path)  # noqa: PTH112
        if is_hidden(name):
            continue
        if not suffix_of(name):
            ignored.append(f"{path}/" if is_folder else path)
        elif is_folder:
            parts, others = _list_folder(path)
            paths += parts
            ignored += others
        else:
            paths.append(path)
    return without_descriptions(paths), ignored


def _glob(folder: str, segments: Sequence[str]) -> Iterator[str]:
    """The paths below a local folder that a pattern matches, with the meaning that Beam gives to its characters."""
    here, *rest = segments
    if "**" in here:
        expression = re.compile(FileSystem.translate_pattern("/".join(segments)))
        yield from (path for path in _walk(folder) if expression.match(path[len(folder) + 1 :]))
        return
    if not _GLOB_CHARACTERS.search(here) or os.path.lexists(f"{folder}/{here}"):
        names = [here] if os.path.lexists(f"{folder}/{here}") else []
    else:
        # Beam's single star stops at a backslash too, which is a character of local names.
        expression = re.compile(FileSystem.translate_pattern(here.replace("*", "**")))
        names = [name for name in os.listdir(folder or "/") if expression.match(name)]  # noqa: PTH208
    for name in names:
        path = f"{folder}/{name}"
        if not rest:
            yield path
        elif os.path.isdir(path):  # noqa: PTH112
            yield from _glob(path, rest)


def _walk(folder: str) -> Iterator[str]:
    """All paths below a local folder; links to folders are followed, except to a folder above the link."""

    def fail(error: OSError) -> None:
        raise error

    for place, folders, files in os.walk(folder or "/", onerror=fail, followlinks=True):
        inside = os.path.realpath(place)
        folders[:] = [
            name
            for name in folders
            if not os.path.islink(f"{place}/{name}")  # noqa: PTH114
            or not f"{inside}/".startswith(f"{os.path.realpath(f'{place}/{name}')}/")
        ]
        yield from (f"{place}/{name}" for name in (*folders, *files))


def _expand_uri(pattern: str) -> _Listing:
    """The same on object stores, which have no folders: a folder is a prefix of paths."""
    folder = pattern.rstrip("/")
    if folder == pattern and suffix_of(pattern) and pattern in match(_any_character(pattern)):
        return _Listing(_parent(pattern), [pattern], [])
    if _GLOB_CHARACTERS.search(folder):
        files = match(folder)
        # A folder has no path of its own, so a glob matches only the files in it.
        files += [path for path in match(f"{folder}/*") if suffix_of(path) and suffix_of(_parent(path))]
        paths = [path for path in files if not is_hidden(path) and not is_hidden(_parent(path))]
        if paths:
            return _Listing(_parent(_GLOB_CHARACTERS.split(folder, maxsplit=1)[0]), paths, [])
    inside = [path for path in match(f"{_any_character(folder)}/**") if path.startswith(f"{folder}/")]
    paths, ignored = [], list[str]()
    for path in inside:
        *folders, name = path[len(folder) + 1 :].split("/")
        if any(map(is_hidden, (*folders, name))):
            continue
        (paths if all(map(suffix_of, (*folders, name))) else ignored).append(path)
    return _Listing(folder, without_descriptions(paths), ignored)


def _parent(path: str) -> str:
    return path.rsplit("/", 1)[0]


def _any_character(path: str) -> str:
    """A pattern that matches this path and few others: Beam cannot escape the characters of globs."""
    return _GLOB_CHARACTERS.sub("?", path)
