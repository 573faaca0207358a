"""Manifests: what is written is read back, and what is damaged is refused in one line."""

import copy
import json

import pytest

from sbert_core.data.manifest import (
    CorpusState,
    InputRows,
    Manifest,
    Part,
    SkippedFile,
    is_part_name,
    parse_manifest,
    part_key,
    part_label,
    part_name,
)
from sbert_core.errors import DataError, FormatWarning

PARTS = (
    Part(name=part_name("a", 0, "0" * 64), rows=3, bytes=10, sha256="0" * 64, source="s", n_tokens=9, rejected=1),
    Part(name=part_name("a", 3, "1" * 64), rows=2, bytes=11, sha256="1" * 64),
)
MANIFEST = Manifest(
    kind="embeddings",
    source="x",
    fingerprint="f",
    settings={"text_column": "text", "prompt": None},
    versions={"pyarrow": "1"},
    parts=PARTS,
    model="default",
    id_column="id",
    n_tokens=9,
    truncated=0,
    inputs=(InputRows(name="in.parquet", rows=6),),
    skipped_files=(SkippedFile(name="bad.csv", reason="cut off"),),
    corpora=(CorpusState(rows=5, digest="d"),),
    audit={"recall": 0.5, "interval_95": [0.4, 0.6], "min_score": 0.75},
    resolution=1.5,
    quality={"silhouette": None},
    hierarchy=[[0, 1, 0.5]],
)


def parse(content: bytes) -> Manifest:
    return parse_manifest(content, "out/embeddings")


def refusal(content: bytes) -> str | None:
    """Why a manifest is not read; None if it is."""
    try:
        parse(content)
    except DataError as error:
        return str(error)
    return None


def test_what_is_written_is_read_back():
    assert parse(MANIFEST.to_json()) == MANIFEST
    assert parse(Manifest().to_json()) == Manifest()
    assert json.loads(MANIFEST.to_json())["rows"] == MANIFEST.rows == 5


def test_names_of_parts():
    assert part_name("pairs", 7, "ab" * 32) == "pairs-0000000007-abababababab.parquet"
    assert part_key("pairs-0000000007-abababababab.parquet") == ("pairs", 7)
    assert part_key("pairs.parquet") is None
    assert part_key(part_name("x-1 [y]/ж", 12, "0" * 64)) == (part_label("x-1 [y]/ж"), 12) == ("x-1_y_ж", 12)
    assert len(part_name("ж" * 300, 0, "0" * 64).encode()) < 200
    assert is_part_name("old-01234567-0000000000.parquet")
    assert not is_part_name("mine.parquet")


def test_every_flipped_bit_is_noticed():
    content = MANIFEST.to_json()
    for place in range(len(content)):
        for bit in (0, 5):
            damaged = bytearray(content)
            damaged[place] ^= 1 << bit
            refused = refusal(bytes(damaged))
            if refused is None:  # white space between values
                assert parse(bytes(damaged)) == MANIFEST
            else:
                assert refused.startswith("out/embeddings/_manifest.json ")
                assert "\n" not in refused


def test_every_cut_is_noticed():
    content = MANIFEST.to_json()
    for end in range(0, len(content) - 1, 7):
        with pytest.raises(DataError, match=r"is damaged: .*--overwrite"):
            parse(content[:end])


HOSTILE = [None, True, -1, 1.5, "", "x", [], [1], {}, {"a": 1}, [[]], [None]]


@pytest.mark.filterwarnings("ignore::sbert_core.errors.FormatWarning")
def test_hostile_values_of_an_older_format_are_refused_in_one_line():
    """Format 1 has no digest: every type is checked."""
    old = json.loads(MANIFEST.to_json())
    for name in ("format", "digest", "kind"):
        del old[name]
    for part in old["parts"]:
        del part["bytes"]
    assert parse(json.dumps(old).encode()).rows == 5
    for name in old:
        for value in HOSTILE:
            changed = copy.deepcopy(old) | {name: value}
            assert "\n" not in (refusal(json.dumps(changed).encode()) or "")
    for name in old["parts"][0]:
        for value in HOSTILE:
            changed = copy.deepcopy(old)
            changed["parts"][0][name] = value
            assert "\n" not in (refusal(json.dumps(changed).encode()) or "")


@pytest.mark.parametrize("content", [b"", b"[]", b"1", b"null", b'"x"', b"\xff\xfe", b"{", b"[" * 100_000, b"{}"])
@pytest.mark.filterwarnings("ignore::sbert_core.errors.FormatWarning")
def test_what_is_no_manifest(content):
    with pytest.raises(DataError, match="is damaged"):
        parse(content)


@pytest.mark.parametrize("name", ["../x.parquet", "/etc/passwd", "a/b.parquet", "..", ".x", "_x", "", "a\\b", "a\0b"])
def test_parts_outside_the_folder_are_refused(name):
    part = Part(name=name, rows=1, bytes=1, sha256="0" * 64)
    with pytest.raises(DataError, match="not a file of its own folder"):
        parse(Manifest(parts=(part,)).to_json())


def test_a_part_that_is_listed_twice_is_refused():
    with pytest.raises(DataError, match="twice"):
        parse(Manifest(parts=(PARTS[0], PARTS[0])).to_json())


def test_older_and_newer_formats():
    old = json.dumps({"parts": [{"name": "p.parquet", "rows": 2, "sha256": "x", "source": None}], "rows": 2, "odd": 1})
    with pytest.warns(FormatWarning, match="older release"):
        assert parse(old.encode()).rows == 2
    with pytest.raises(DataError, match="upgrade sbert-beam"):
        parse(json.dumps({"format": 99, "parts": []}).encode())
