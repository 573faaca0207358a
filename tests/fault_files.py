"""Exercises of the drill that damage the files of a finished output, or give manifests values no job would write."""

import contextlib
import functools
import json
import random
import shutil
from pathlib import Path
from unittest import mock

from sbert_core.data.manifest import digest_of
from tests.fault_drill import (
    MINE,
    WRITTEN_BY,
    Record,
    check_verify,
    commands,
    contents,
    difference,
    finished_output,
    readers,
    repair,
    run_here,
    timed,
)

# Damaged files


def damage(path: Path, rng: random.Random) -> str:
    """Changes a file at a random place; returns a description."""
    content = bytearray(path.read_bytes())
    kind = rng.choice(("flip", "flip", "cut", "append", "overwrite", "empty")) if content else "append"
    place = rng.randrange(len(content)) if content else 0
    if kind == "flip":
        content[place] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        del content[place:]
    elif kind == "append":
        content += rng.choice((b"\n", b"\0" * 100, rng.randbytes(rng.randrange(1, 500))))
    elif kind == "overwrite":
        size = min(len(content) - place, rng.randrange(1, 600))
        content[place : place + size] = bytes(byte ^ 0x5A for byte in content[place : place + size])
    else:
        content.clear()
    path.write_bytes(content)
    return f"{kind} at {place} of {path.name}"


def damaged_output(seed: int, folder: Path, base: Path) -> Record:
    """A file of a finished output is damaged: verify finds it, readers refuse it, its job repairs it."""
    rng = random.Random(seed)
    record = Record("damaged output", seed)
    source, intact = finished_output(base)
    expected = contents(intact)
    out = folder / "out"
    shutil.copytree(intact, out)
    with timed(record):
        name = rng.choice(sorted(expected))
        path = out / name
        record.done = f"{Path(name).parent}: {damage(path, rng)}"
        check_verify(record, out, is_intact=False)
        dataset = name.split("/")[0]
        written_by = WRITTEN_BY[dataset]
        for job, arguments in rng.sample(sorted(readers(out, folder / "elsewhere").items()), 2):
            outcome = run_here(*arguments)
            record.failures += [f"{job}: {fault}" for fault in outcome.faults(0, 1, 2)]
            if outcome.code == 0:
                differs = difference(contents(folder / "elsewhere" / job), _undamaged(job, intact))
                record.require(not differs, f"{job} ended with 0, and these files differ: {differs}")
        arguments = commands(source, out)[written_by]
        overwrite = ["--overwrite"] if written_by == "embed" and path.name == "_manifest.json" else []
        repair(record, [*arguments, *overwrite], out, expected)
        check_verify(record, out, is_intact=True)
    return record


@functools.cache
def _undamaged(job: str, intact: Path) -> dict[str, bytes]:
    elsewhere = intact.parent / "undamaged"
    outcome = run_here(*readers(intact, elsewhere)[job])
    assert outcome.code == 0, outcome.errors
    return contents(elsewhere / job)


def damaged_work(seed: int, folder: Path, base: Path) -> Record:
    """Work files that a stopped mine job left for the next run are damaged: the next run gives the right bytes."""
    rng = random.Random(seed)
    record = Record("damaged work files", seed)
    _, intact = finished_output(base)
    index = rng.choice((["--index", "exact"], ["--index", "routed", "--cells", "6"]))
    out, undisturbed = folder / "out", folder / "undisturbed"
    arguments = ["mine", "--input", f"{intact}/embeddings", *MINE, *index]
    with timed(record):
        assert run_here(*arguments, "--output", str(undisturbed)).code == 0
        with mock.patch("transforms.dataset.published.publish", side_effect=OSError(28, "No space left on device")):
            stopped = run_here(*arguments, "--output", str(out))
        record.failures += stopped.faults(1)
        files = sorted(path for path in out.glob("_mine/**/*") if path.is_file())
        finished = [path for path in files if path.name.startswith(("tile-", "within-", "across-", "found-0"))]
        record.require(finished, "the stopped run left nothing to continue from")
        chosen = rng.sample(finished, min(2, len(finished))) + rng.sample(files, 1)
        record.done = f"{index[1]}: " + "; ".join(damage(path, rng) for path in dict.fromkeys(chosen))
        repair(record, [*arguments, "--output", str(out)], out, contents(undisturbed))
        check_verify(record, out, is_intact=True)
    return record


# Hostile manifests

# Manifest fields without a declared type that jobs use; they are changed more often.
_TRUSTED = ("settings", "quality", "hierarchy", "audit", "parts", "text_column", "embedding", "top_k", "interval_95")
_HUGE = (10**30, -(10**18), 1e308, -1, 0, 2**63)
_NAMES = ("../../etc/passwd", "/etc/passwd", "..", "", "\0", "a" * 300, "\ud800", "_manifest.json", "x.parquet")


def mutate(value: object, rng: random.Random) -> object:
    """A JSON value with something in it replaced, added or removed at a random place."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice([name for name in sorted(value) for _ in range(5 if name in _TRUSTED else 1)])
        if rng.random() < 0.12:
            return {name: each for name, each in value.items() if name != key}
        if rng.random() < 0.06:
            return {**value, rng.choice(("extra", "", "parts")): strange(rng)}
        return {**value, key: mutate(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.85:
        place = rng.randrange(len(value))
        if rng.random() < 0.15:
            return [*value, value[place]]
        return [*value[:place], mutate(value[place], rng), *value[place + 1 :]]
    return strange(rng)


def strange(rng: random.Random) -> object:
    """A value that no job would write."""
    nested: object = "deep"
    for _ in range(rng.choice((3, 300))):
        nested = [nested] if rng.random() < 0.5 else {"a": nested}
    choices = (None, True, "text", rng.choice(_NAMES), rng.choice(_HUGE), [], {}, [1, "a"], {"a": 1}, nested, 0.5)
    return rng.choice(choices)


def hostile_manifest(seed: int, folder: Path, base: Path) -> Record:
    """A manifest is changed and its digest updated: every job works or reports in one line what is wrong."""
    rng = random.Random(seed)
    record = Record("hostile manifest", seed)
    source, intact = finished_output(base)
    out = folder / "out"
    shutil.copytree(intact, out)
    with timed(record):
        path = rng.choice(sorted(out.rglob("_manifest.json")))
        found = json.loads(path.read_text())
        changed = found
        for _ in range(rng.choice((1, 1, 2, 4))):
            changed = mutate(changed, rng)
        if isinstance(changed, dict) and changed.get("digest") == found["digest"]:
            content = {key: value for key, value in changed.items() if key != "digest"}
            with contextlib.suppress(ValueError, RecursionError):
                changed = {**content, "digest": digest_of(content)}
        path.write_text(json.dumps(changed), encoding="utf-8", errors="surrogatepass")
        record.done = f"{path.parent.name}: {_changes(found, changed)}"
        all_commands = {
            "verify": ["verify", str(out)],
            **readers(out, folder / "elsewhere"),
            "search": ["search", "--queries", "ticket", "--corpus", f"{out}/embeddings"],
            **{f"{job} again": arguments for job, arguments in commands(source, out).items()},
        }
        for job in ("verify", *rng.sample(sorted(all_commands.keys() - {"verify"}), 3)):
            arguments = all_commands[job]
            record.failures += [f"{job}: {fault}" for fault in run_here(*arguments).faults(0, 1, 2)]
    return record


def _changes(found: dict, changed: object) -> str:
    if not isinstance(changed, dict):
        return str(changed)[:60]
    names = [
        name for name in found.keys() | changed.keys() if found.get(name) != changed.get(name) and name != "digest"
    ]
    return "; ".join(f"{name} = {str(changed.get(name))[:60]}" for name in sorted(names))
