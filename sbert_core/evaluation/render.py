"""Evaluations as tables, models side by side: plain text, Markdown, JSON."""

import dataclasses
import json
import math
import re
import unicodedata
from collections.abc import Sequence

from sbert_core.errors import DataError
from sbert_core.evaluation.result import Evaluation

_MAX_PART_FIGURES = 3  # a part with more shows its main figure only
_MARKUP = re.compile(r"[\\`*\[\]|<>&~#]|(?<![^\W_])_|_(?![^\W_])")
_BREAKS = re.compile(r"\s+")


@dataclasses.dataclass(frozen=True)
class Table:
    """The figures of evaluations of one task on the same data; the first column has their names."""

    title: str
    header: list[str]
    rows: list[list[str]]


def make_tables(evaluations: Sequence[Evaluation]) -> list[Table]:
    """One table per task and data, models as columns, the main figure first; another one for its parts, if any."""
    groups: dict[tuple[str, str], list[Evaluation]] = {}
    for evaluation in evaluations:
        groups.setdefault((evaluation.task, evaluation.data), []).append(evaluation)
    tables = []
    for (task, data), group in groups.items():
        models = [evaluation.model for evaluation in group]
        scores = [{evaluation.main: evaluation.score, **evaluation.scores} for evaluation in group]
        rows = _rows(scores) + _rows([evaluation.counts for evaluation in group])
        tables.append(Table(f"{task}: {data}", ["figure", *models], rows))
        if any(evaluation.parts for evaluation in group):
            tables.append(Table(f"{task}: {data}, by part", ["part", *models], _part_rows(group)))
    return tables


def render_text(evaluations: Sequence[Evaluation]) -> str:
    """Tables for a terminal."""
    return "\n\n".join("\n".join(_text_lines(table)) for table in make_tables(evaluations)) + "\n"


def render_markdown(evaluations: Sequence[Evaluation]) -> str:
    """Tables in Markdown; markup in names is escaped."""
    parts = []
    for table in make_tables(evaluations):
        lines = [table.header, *table.rows]
        marks = "| --- |" + " ---: |" * (len(table.header) - 1)
        cells = ["| " + " | ".join(_escape(cell) for cell in line) + " |" for line in lines]
        parts.append("\n".join([f"### {_escape(table.title)}", "", cells[0], marks, *cells[1:]]))
    return "\n\n".join(parts) + "\n"


def render_json(evaluations: Sequence[Evaluation]) -> str:
    """The evaluations as JSON; `read_json` is the inverse."""
    values = {"evaluations": [evaluation.to_dict() for evaluation in evaluations]}
    return json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def read_json(text: str) -> list[Evaluation]:
    """The inverse of `render_json`."""
    try:
        values = json.loads(text)["evaluations"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError('not the JSON of an evaluation: expected an object with "evaluations"') from error
    return [Evaluation.from_dict(value) for value in values]


def format_figure(value: float | None) -> str:
    """A figure with four decimals, or one if it is large; a count without."""
    if value is None or not math.isfinite(value):
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4f}" if abs(value) < 100 else f"{value:,.1f}"


def _rows(columns: Sequence[dict[str, float]] | Sequence[dict[str, int]]) -> list[list[str]]:
    """A row per name that any of the columns has."""
    names = dict.fromkeys(name for column in columns for name in column)
    return [[name, *(format_figure(column.get(name)) for column in columns)] for name in names]


def _part_rows(group: Sequence[Evaluation]) -> list[list[str]]:
    """The figures of each part if they are few, else the main one."""
    few = all(len(part.scores) <= _MAX_PART_FIGURES for evaluation in group for part in evaluation.parts)
    columns = []
    for evaluation in group:
        column: dict[str, float] = {}
        for part in evaluation.parts:
            shown = part.scores if few else {part.main: part.score}
            column |= {f"{part.data}: {name}": value for name, value in shown.items()}
        columns.append(column)
    return _rows(columns)


def _text_lines(table: Table) -> list[str]:
    lines = [[_plain(cell) for cell in line] for line in (table.header, *table.rows)]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    shown = [
        "  ".join(_pad(cell, width, left=at == 0) for at, (cell, width) in enumerate(zip(line, widths, strict=True)))
        for line in lines
    ]
    return [_plain(table.title), shown[0].rstrip(), "  ".join("-" * width for width in widths), *shown[1:]]


def _pad(cell: str, width: int, left: bool) -> str:
    space = " " * (width - _width(cell))
    return cell + space if left else space + cell


def _width(cell: str) -> int:
    """Columns of a terminal: two for a Chinese character, none for a combining accent."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in cell
    )


def _plain(cell: str) -> str:
    """One line without control characters."""
    return "".join(char if char.isprintable() else "\ufffd" for char in _BREAKS.sub(" ", cell))


def _escape(cell: str) -> str:
    return _MARKUP.sub(lambda char: "&lt;" if char[0] == "<" else "\\" + char[0], _plain(cell))
