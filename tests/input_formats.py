"""The same small corpus in every input format, with the same bytes in every process."""

import bz2
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 100
NAMES = (
    "one_group.parquet",
    "groups.parquet",
    "one_row_groups.parquet",
    "rows.csv",
    "rows.csv.gz",
    "rows.tsv",
    "rows.jsonl",
    "rows.jsonl.bz2",
    "rows.json",
    "rows.txt",
    "rows.txt.gz",
)
"""The files that `write_input` can write; the name decides the format and the row groups."""


def make_rows(rows: int = ROWS) -> list[dict[str, str]]:
    """Rows with an id, a text and one more column; all values are text, as CSV has no other type."""
    return [
        {"id": f"r{row:06}", "text": f"sentence {row} is aböut" + " more" * (row % 7), "n": str(row % 5)}
        for row in range(rows)
    ]


def write_input(folder: Path, name: str, rows: int = ROWS) -> Path:
    """Writes the rows to a file of this name in a new folder."""
    folder.mkdir(parents=True, exist_ok=True)
    table = make_rows(rows)
    path = folder / name
    if name.endswith(".parquet"):
        _write_parquet(path, pa.Table.from_pylist(table))
        return path
    content = _text(name, table).encode()
    if name.endswith(".gz"):
        content = gzip.compress(content, mtime=0)
    elif name.endswith(".bz2"):
        content = bz2.compress(content)
    path.write_bytes(content)
    return path


def _write_parquet(path: Path, table: pa.Table) -> None:
    group_rows = {"one_group": len(table), "groups": 40, "one_row_groups": 1}[path.stem] or 1
    with pq.ParquetWriter(path, table.schema) as writer:
        for start in range(0, len(table), group_rows):
            writer.write_table(table.slice(start, group_rows))
            if path.stem == "groups":
                writer.write_table(table.slice(0, 0))  # an empty row group


def _text(name: str, rows: list[dict[str, str]]) -> str:
    if ".json" in name:
        lines = [json.dumps(row) for row in rows]
        return "\n".join(lines) + "\n" if ".jsonl" in name else "[" + ",\n".join(lines) + "]"
    if ".txt" in name:
        return "".join(f"{row['text']}\n" for row in rows)
    delimiter = "\t" if ".tsv" in name else ","
    return "".join(f"{delimiter.join(row)}\n" for row in [list(rows[0]), *(list(row.values()) for row in rows)])
