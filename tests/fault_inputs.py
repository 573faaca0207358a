"""Exercises of the drill with inputs and models that nobody would write by hand."""

import csv
import datetime
import decimal
import gzip
import io
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fault_drill import Record, check_verify, run_here, timed
from tests.fault_files import damage, mutate
from tests.tiny_models import make_transformer
from transforms.dataset.published import read_dataset

FORMATS = (".parquet", ".parquet", ".parquet", ".csv", ".tsv", ".jsonl", ".json", ".txt")
_ALPHABETS = (
    "abc xyz",
    "äöü ß é",
    "日本語 한국어 ไทย",
    "😀👩‍👧 🏽",
    "".join(map(chr, range(1, 32))) + "\x7f\x80\x85\u2028\u2029",
    "\",;\t\\'{}[]<>&#$%",
    "\0 a",
)


def random_text(rng: random.Random) -> str:
    """A text of up to 100,000 characters of one or more scripts, control characters among them."""
    size = rng.choice((0, 1, 5, 40, 40, 40, 300, 3000, 100_000 if rng.random() < 0.05 else 20))
    if rng.random() < 0.2:
        points = (rng.choice((rng.randrange(0xD800), rng.randrange(0xE000, 0x110000))) for _ in range(min(size, 500)))
        return "".join(map(chr, points))
    alphabet = "".join(rng.sample(_ALPHABETS, rng.choice((1, 1, 2))))
    return "".join(rng.choices(alphabet, k=size))


_DAY = datetime.datetime(2025, 1, 1)

# Arrow type -> a random value of it.
_VALUES: dict[pa.DataType, Any] = {
    pa.null(): lambda rng: None,
    pa.bool_(): lambda rng: rng.random() < 0.5,
    pa.int8(): lambda rng: rng.randrange(-128, 128),
    pa.uint16(): lambda rng: rng.randrange(2**16),
    pa.int32(): lambda rng: rng.randrange(-(2**31), 2**31),
    pa.int64(): lambda rng: rng.randrange(-(2**63), 2**63),
    pa.uint64(): lambda rng: rng.randrange(2**64),
    pa.float16(): lambda rng: rng.choice((0.5, -2.0)),
    pa.float32(): lambda rng: rng.choice((0.25, -1.5, float("inf"))),
    pa.float64(): lambda rng: rng.random(),
    pa.decimal32(7, 2): lambda rng: decimal.Decimal(rng.randrange(10**6)) / 100,
    pa.decimal64(15, 3): lambda rng: decimal.Decimal(rng.randrange(10**9)) / 1000,
    pa.decimal128(30, 5): lambda rng: decimal.Decimal(rng.randrange(10**12)) / 100000,
    pa.decimal256(60, 2): lambda rng: decimal.Decimal(rng.randrange(10**20)) / 100,
    pa.string(): random_text,
    pa.large_string(): random_text,
    pa.string_view(): random_text,
    pa.binary(): lambda rng: rng.randbytes(rng.randrange(9)),
    pa.large_binary(): lambda rng: rng.randbytes(rng.randrange(9)),
    pa.binary_view(): lambda rng: rng.randbytes(rng.randrange(9)),
    pa.binary(6): lambda rng: rng.randbytes(6),
    pa.date32(): lambda rng: _DAY.date() + datetime.timedelta(rng.randrange(9999)),
    pa.date64(): lambda rng: _DAY.date() + datetime.timedelta(rng.randrange(9999)),
    pa.time32("ms"): lambda rng: datetime.time(rng.randrange(24), rng.randrange(60)),
    pa.time64("ns"): lambda rng: datetime.time(rng.randrange(24), rng.randrange(60)),
    pa.timestamp("s"): lambda rng: _DAY + datetime.timedelta(hours=rng.randrange(9999)),
    pa.timestamp("ns", "Europe/Berlin"): lambda rng: _DAY + datetime.timedelta(hours=rng.randrange(9999)),
    pa.duration("us"): lambda rng: datetime.timedelta(seconds=rng.randrange(9999)),
    pa.month_day_nano_interval(): lambda rng: (rng.randrange(9), 1, 2),
    pa.list_(pa.int16()): lambda rng: [rng.randrange(9) for _ in range(rng.randrange(3))],
    pa.large_list(pa.string()): lambda rng: [random_text(rng)[:50]],
    pa.list_view(pa.int32()): lambda rng: [1, 2],
    pa.list_(pa.float32(), 3): lambda rng: [1.0, 2.0, rng.random()],
    pa.list_(pa.list_(pa.bool_())): lambda rng: [[True], []],
    pa.map_(pa.string(), pa.int8()): lambda rng: [("a", 1), ("b", 2)],
    pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))]): lambda rng: {"x": 1, "y": ["a", None]},
    pa.struct([]): lambda rng: {},
    pa.dictionary(pa.int8(), pa.string()): lambda rng: rng.choice("abc"),
    pa.dictionary(pa.uint32(), pa.int64()): lambda rng: rng.randrange(3),
    pa.run_end_encoded(pa.int32(), pa.string()): lambda rng: "a",
    pa.uuid(): lambda rng: rng.randbytes(16),
}


def random_column(rng: random.Random, kind: pa.DataType, rows: int, nulls: bool = True) -> pa.Array | None:
    """Random values of a type; None where Arrow cannot make them from Python's."""
    nulls = nulls and not pa.types.is_fixed_size_list(kind)  # Arrow writes such nulls and cannot read them
    values = [None if nulls and rng.random() < 0.1 else _VALUES[kind](rng) for _ in range(rows)]
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, NotImplementedError, TypeError):
        return None


def random_input(rng: random.Random, folder: Path) -> tuple[list[tuple[Any, str | None]], pa.Table | None, str]:
    """Writes files of one format; returns ids (None: made up) and texts, the rows of Parquet, and what was written."""
    folder.mkdir()
    suffix, compressed = rng.choice(FORMATS), rng.random() < 0.3
    shards, rows = rng.choice((1, 1, 2, 4)), rng.choice((0, 1, 7, 40))
    texts: list[str | None] = [random_text(rng) for _ in range(rows)]
    if suffix == ".parquet":
        return _write_parquet(rng, folder, texts, shards)
    if suffix == ".txt":
        texts = ["".join((text or "").splitlines()).strip("\r\n\x00") or "x" for text in texts]
    if suffix in (".csv", ".tsv") and rng.random() < 0.7:
        texts = [(text or "").replace("\0", "") for text in texts]
    if suffix == ".tsv":
        texts = ["".join(each for each in text or "" if each not in "\t\r\n") for text in texts]
    ids = [f"id {row}" for row in range(rows)]
    size = -(-rows // shards) or 1
    for shard in range(shards):
        part = list(zip(ids, texts, strict=True))[shard * size : (shard + 1) * size]
        content = _encode_rows(suffix, part)
        path = folder / f"part-{shard}{suffix}"
        if compressed:
            path, content = path.with_name(f"{path.name}.gz"), gzip.compress(content)
        path.write_bytes(content)
    named = [None] * rows if suffix == ".txt" else ids
    return list(zip(named, texts, strict=True)), None, f"{suffix}{'.gz' * compressed}, {shards} files, {rows} rows"


def _encode_rows(suffix: str, rows: list[tuple[str, str | None]]) -> bytes:
    if suffix == ".txt":
        return "".join(f"{text}\n" for _, text in rows).encode()
    if suffix == ".tsv":
        return "".join(f"{key}\t{text}\n" for key, text in [("id", "text"), *rows]).encode()
    objects = [{"id": key, "text": text} for key, text in rows]
    if suffix == ".jsonl":
        return "".join(json.dumps(each) + "\n" for each in objects).encode()
    if suffix == ".json":
        return json.dumps(objects).encode()
    sink = io.StringIO()
    csv.writer(sink, quoting=csv.QUOTE_ALL).writerows([("id", "text"), *rows])
    return sink.getvalue().encode()


def _write_parquet(
    rng: random.Random, folder: Path, texts: list[str | None], shards: int
) -> tuple[list[tuple[Any, str | None]], pa.Table, str]:
    rows = len(texts)
    texts = [None if rng.random() < 0.05 else text for text in texts]
    kinds = rng.sample(list(_VALUES), rng.randrange(5))
    text_kind = rng.choice((pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())))
    columns: dict[str, pa.Array] = {"text": pa.array(texts, text_kind)}
    id_kind = rng.choice([None, pa.string(), pa.string(), *_VALUES])
    if id_kind is not None and (ids := random_column(rng, id_kind, rows, nulls=rng.random() < 0.2)) is not None:
        columns["id"] = ids if id_kind != pa.string() else pa.array([f"{row:03}" for row in range(rows)])
    for number, kind in enumerate(kinds):
        if (column := random_column(rng, kind, rows)) is not None:
            columns[rng.choice((f"extra {number}", f"ä.{number}", f"c{number}"))] = column
    table = pa.table(columns)
    size = -(-rows // shards) or 1
    done = f".parquet, {shards} files, {rows} rows of {', '.join(str(field.type) for field in table.schema)}"
    try:
        for shard in range(shards):
            pq.write_table(table.slice(shard * size, size), folder / f"part-{shard}.parquet", row_group_size=9)
    except (pa.ArrowException, NotImplementedError):  # a type that Parquet does not have
        shutil.rmtree(folder)
        folder.mkdir()
        return _write_parquet(rng, folder, texts, shards)
    stored = pa.concat_tables([pq.read_table(path) for path in sorted(folder.iterdir())])
    ids = stored["id"].to_pylist() if "id" in stored.column_names else [None] * rows
    return list(zip(ids, texts, strict=True)), stored, done


def random_rows(seed: int, folder: Path, base: Path) -> Record:
    """A random corpus is embedded: every row comes out with its text and columns, or nothing is written at all."""
    rng = random.Random(seed)
    record = Record("random input", seed)
    expected, table, record.done = random_input(rng, folder / "in")
    out = folder / "out"
    with timed(record):
        outcome = run_here(
            "embed", "--input", folder / "in", "--output", out, "--slice_rows", str(rng.choice((3, 500)))
        )
        record.exit_code = outcome.code
        record.failures += outcome.faults(0, 1, 2)
        if outcome.code == 0:
            check_verify(record, out, is_intact=True)
            _compare_rows(record, out, expected, table)
        elif outcome.code == 1:  # found while the job ran, as ids that occur twice are: nothing is published
            record.require(not list(out.rglob("_manifest.json")), "a job that failed published a result")
            record.require("id" in outcome.errors, f"a fault found late: {outcome.errors!r}")
        else:
            record.require(not list(out.rglob("*.parquet")), "a job that was refused wrote parts")
    return record


def _compare_rows(record: Record, out: Path, expected: list[tuple[Any, str | None]], table: pa.Table | None) -> None:
    embedded, rejected = read_dataset(f"{out}/embeddings"), read_dataset(f"{out}/rejected")
    record.require(len(embedded) + len(rejected) == len(expected), f"{len(embedded)} + {len(rejected)} rows came out")
    if not len(embedded):
        return
    texts = embedded["text"].to_pylist()
    if expected[0][0] is None:
        found, wanted = sorted(texts), sorted(text for _, text in expected if text is not None)
        record.require(found == wanted, "texts differ")
        return
    by_id = {str(key): text for key, text in zip(embedded["id"].to_pylist(), texts, strict=True)}
    wanted_by_id = {str(key): text for key, text in expected if text is not None}
    odd = [key for key in wanted_by_id.keys() | by_id.keys() if by_id.get(key) != wanted_by_id.get(key)]
    record.require(not odd, f"{len(odd)} rows differ, the first is {odd[:1]!r}")
    if table is None:
        return
    rows_by_id = {str(row["id"]): row for row in table.to_pylist()}
    added = ("embedding", "n_tokens", "truncated")
    for row in embedded.drop_columns(list(added)).to_pylist():
        record.require(repr(row) == repr({**rows_by_id[str(row["id"])]}), f"the columns of row {row['id']!r} differ")


# Models


def hostile_model(seed: int, folder: Path, base: Path) -> Record:
    """A file of a model folder is damaged or changed: embed works, or says in one line what is wrong."""
    rng = random.Random(seed)
    record = Record("hostile model", seed)
    if not (base / "model").exists():
        make_transformer(base / "model")
        (base / "one.txt").write_text("the quick fox\n")
    model = shutil.copytree(base / "model", folder / "model")
    with timed(record):
        path = rng.choice(sorted(path for path in model.iterdir() if path.is_file()))
        if path.suffix == ".json" and rng.random() < 0.7:
            path.write_text(json.dumps(mutate(json.loads(path.read_text()), rng)))
            record.done = f"changed {path.name}"
        elif rng.random() < 0.15:
            path.unlink()
            record.done = f"removed {path.name}"
        else:
            record.done = damage(path, rng)
        arguments = ["--input", base / "one.txt", "--output", folder / "out", "--device", "cpu"]
        outcome = run_here("embed", *arguments, "--model", model, fake=False)
        record.exit_code = outcome.code
        record.failures += outcome.faults(0, 1, 2)
    return record
