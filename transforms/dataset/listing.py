"""Input files: found by globs, folders and datasets, each under a name of its own.

A name is what ids and parts are made of. It is the path of a file below the folder that all patterns have in common,
so it differs for different files and stays the same when that folder moves.
"""

import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from apache_beam.io.filesystem import BeamIOError, FileSystem
from apache_beam.io.filesystems import FileSystems

from sbert_core.data.manifest import MANIFEST
from sbert_core.errors import DataError
from transforms.dataset.files import match
from transforms.dataset.formats import SUFFIXES, suffix_of
from transforms.dataset.published import check_sizes, read_manifest

_GLOB = re.compile(r"[*?\[]")
_SHOWN_FILES = 3


class _Found(NamedTuple):
    """What one pattern leads to."""

    root: str  # the folder that names begin below
    paths: list[str]
    ignored: list[str]  # what is there, but of no kind that is read
    is_dataset: bool = False


def absolute_pattern(pattern: str) -> str:
    """A pattern that means the same in every process: local ones absolute and without `.`, `..` and double slashes."""
    if not pattern.strip():
        raise DataError("an input is empty: expected a file, a folder or a glob. See --input")
    if "\0" in pattern:
        raise DataError(f"the input {pattern!r} contains a NUL character: no path does. See --input")
    pattern = re.sub(r"^file://(localhost)?(?=/)", "", pattern)
    if FileSystems.get_scheme(pattern):
        return pattern
    return os.path.abspath(pattern) + "/" * pattern.endswith("/")  # noqa: PTH100 - URIs are no Path


def list_inputs(patterns: Sequence[str]) -> list[tuple[str, str]]:
    """Finds the files of globs, folders and datasets of earlier jobs: (path, name), sorted by path.

    A file that two patterns find counts once. A pattern that exists as it is written is a path, not a glob. A folder
    gives its files of a known kind; a folder within it, or among the results of a glob, that is called like a file
    (`x.parquet`, as Spark writes them) counts as a folder of parts. Its `.json` files are read only if it has no
    others: beside data they describe it. Hidden files (`.x`, `_x`) are left out, unless they are named in full.
    """
    distinct = dict.fromkeys(absolute_pattern(pattern) for pattern in patterns)
    found = [_expand(pattern) for pattern in distinct]
    if not any(each.paths for each in found):
        raise DataError(_nothing_found(patterns, [path for each in found for path in each.ignored]))
    for pattern, each in zip(distinct, found, strict=True):
        if not each.paths and not each.is_dataset:
            raise DataError(_nothing_found([pattern], each.ignored))
    common = _common([_segments(each.root) for each in found])
    paths = sorted({path for each in found for path in each.paths})
    return [(path, _checked(path, "/".join(_segments(path)[common:]))) for path in paths]


def _checked(path: str, name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"the file name {path!r} is not valid UTF-8: rename the file") from error
    return name


def _nothing_found(patterns: Sequence[str], ignored: Sequence[str]) -> str:
    wanted = ", ".join(map(repr, patterns))
    message = f"no input files: no {', '.join(SUFFIXES)} at {wanted}"
    if ignored:
        more = ", ..." if len(ignored) > _SHOWN_FILES else ""
        return f"{message}; what is there is of no kind that is read: {', '.join(ignored[:_SHOWN_FILES])}{more}"
    return f"{message} (a result is in its folder embeddings/)"


def _segments(path: str) -> list[str]:
    """The steps to a path: scheme, bucket, folders, file; local paths have no bucket."""
    scheme = FileSystems.get_scheme(path)
    if scheme is None:
        return ["file", *filter(None, path.split("/"))]
    return [scheme, *path.removeprefix(f"{scheme}://").rstrip("/").split("/")]


def _common(paths: Sequence[list[str]]) -> int:
    """How many first steps all paths share."""
    shared = 0
    for steps in zip(*paths, strict=False):
        if len(set(steps)) > 1:
            break
        shared += 1
    return shared


def _parts(folder: str) -> list[str]:
    """The files of a dataset: those that its manifest lists, which must be there and have their size."""
    manifest = read_manifest(folder)
    check_sizes(folder, manifest.parts)
    return [f"{folder}/{name}" for name in manifest.part_names]


def _expand(pattern: str) -> _Found:
    try:
        folder = pattern.removesuffix(MANIFEST).rstrip("/")
        if FileSystems.exists(f"{folder}/{MANIFEST}"):
            return _Found(folder, _parts(folder), [], is_dataset=True)
        return _expand_uri(pattern) if FileSystems.get_scheme(pattern) else _expand_local(pattern)
    except DataError:
        raise
    except (BeamIOError, OSError, ValueError) as error:  # ValueError: a scheme that Beam does not know
        raise DataError(f"cannot list the input {pattern}: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _is_hidden(path: str) -> bool:
    """Whether a file is bookkeeping, not data."""
    return path.rstrip("/").rsplit("/", 1)[-1].startswith((".", "_"))


def _expand_local(pattern: str) -> _Found:
    path = pattern.rstrip("/") or "/"
    if os.path.isdir(path):  # noqa: PTH112
        return _Found(path, *_list_folder(path))
    if os.path.lexists(path):
        return _Found(os.path.dirname(path), [path], [])  # noqa: PTH120
    steps = path.split("/")[1:]
    root = ""
    while steps and (not _GLOB.search(steps[0]) or os.path.lexists(f"{root}/{steps[0]}")):
        root += f"/{steps.pop(0)}"
    if not steps:  # nothing of this name
        return _Found(os.path.dirname(path), [], [])  # noqa: PTH120
    paths: list[str] = []
    ignored: list[str] = []
    for found in sorted(_glob(root, steps)):
        if _is_hidden(found):
            continue
        if not os.path.isdir(found):  # noqa: PTH112
            paths.append(found)
        elif suffix_of(found):
            parts, others = _list_folder(found)
            paths += parts
            ignored += others
        else:
            ignored.append(f"{found}/")
    return _Found(root or "/", paths, ignored)


def _list_folder(folder: str) -> tuple[list[str], list[str]]:
    """The files of a local folder that are of a known kind, and what else there is."""
    if os.path.exists(f"{folder}/{MANIFEST}"):  # noqa: PTH110
        return _parts(folder), []
    paths: list[str] = []
    ignored: list[str] = []
    for name in sorted(os.listdir(folder)):  # noqa: PTH208
        path = f"{folder.rstrip('/')}/{name}"
        is_folder = os.path.isdir(path)  # noqa: PTH112
        if _is_hidden(name):
            continue
        if not suffix_of(name):
            ignored.append(f"{path}/" if is_folder else path)
        elif is_folder:
            parts, others = _list_folder(path)
            paths += parts
            ignored += others
        else:
            paths.append(path)
    return _without_descriptions(paths), ignored


def _without_descriptions(paths: list[str]) -> list[str]:
    """The files of a folder but for those that only describe the others."""
    return [path for path in paths if suffix_of(path) != ".json"] or paths


def _glob(folder: str, steps: Sequence[str]) -> Iterator[str]:
    """The paths below a local folder that a pattern matches, with the meaning that Beam gives to its characters."""
    here, *rest = steps
    if "**" in here:
        expression = re.compile(FileSystem.translate_pattern("/".join(steps)))
        yield from (path for path in _walk(folder) if expression.match(path[len(folder) + 1 :]))
        return
    if not _GLOB.search(here) or os.path.lexists(f"{folder}/{here}"):
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
    """All paths below a local folder; links to folders are followed, but not into a folder that they are in."""

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


def _expand_uri(pattern: str) -> _Found:
    """The same on other filesystems, which know only files: a folder is what paths begin with."""
    folder = pattern.rstrip("/")
    if folder == pattern and suffix_of(pattern) and pattern in match(_any_character(pattern)):
        return _Found(_parent(pattern), [pattern], [])
    if _GLOB.search(folder):
        files = match(folder)
        # A folder has no path of its own: its files tell that it is there.
        files += [path for path in match(f"{folder}/*") if suffix_of(path) and suffix_of(_parent(path))]
        paths = [path for path in files if not _is_hidden(path) and not _is_hidden(_parent(path))]
        if paths:
            return _Found(_parent(_GLOB.split(folder, maxsplit=1)[0]), paths, [])
    inside = [path for path in match(f"{_any_character(folder)}/**") if path.startswith(f"{folder}/")]
    paths, ignored = [], list[str]()
    for path in inside:
        *folders, name = path[len(folder) + 1 :].split("/")
        if any(map(_is_hidden, (*folders, name))):
            continue
        (paths if all(map(suffix_of, (*folders, name))) else ignored).append(path)
    return _Found(folder, _without_descriptions(paths), ignored)


def _parent(path: str) -> str:
    return path.rsplit("/", 1)[0]


def _any_character(path: str) -> str:
    """A pattern that matches this path and little else: Beam cannot escape the characters of globs."""
    return _GLOB.sub("?", path)
