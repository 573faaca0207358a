"""The report: what a corpus holds, as one HTML page that needs no network and no server."""

import base64
import dataclasses
import functools
import hashlib
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import jinja2
import markupsafe

from sbert_core.errors import DataError

NOISE = -1
MAX_TEXT = 10_000
SHOWN_TEXTS = (MAX_TEXT, 2_000, 500, 200, 60)
"""Characters kept of an exemplar or of a text in a pair: the first that keeps all of them under `SHOWN_BYTES`."""
SHOWN_BYTES = 3_000_000
POINT_TEXTS = (300, 200, 120, 60)
"""Characters kept of a point's text: the first of these that keeps the points under `POINT_BYTES`."""
POINT_BYTES = 11_000_000
GRID = 100_000
"""Coordinates are whole numbers up to this: shorter to write, and finer than any screen."""
MAX_REJECTED = 100
DUPLICATE_TEXT = 500
"""Characters kept of a duplicate."""

_MARKS = {"numbers_differ": "numbers differ", "negation_differs": "negation differs"}

_POINT_COLUMNS = ("x", "y", "cluster", "id", "text")
# Inside <script> only these can end the element, begin a comment, or break a line of JSON read as JavaScript.
_UNSAFE = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}
_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportData:
    """All that a report shows; texts are shown as they are, whatever markup they look like."""

    title: str
    figures: Sequence[tuple[str, str]]
    """Figures of the run, such as `("rows", "3,000")`, in the order they are shown."""
    clusters: Sequence[Mapping[str, Any]]
    """`cluster` (-1 is noise), `size`, `name`; `terms`, `exemplars` (texts), `cohesion`, `separation`, `nearest` and
    `parent` may be absent or None."""
    points: Mapping[str, Sequence]
    """Parallel columns `x`, `y`, `cluster`, `id`, `text`: the rows on the map, all or a sample. Empty: no map."""
    pairs: Sequence[Mapping[str, Any]]
    """`id_a`, `id_b`, `score`, `text_a`, `text_b`, best first; `numbers_differ`, `negation_differs` may be absent."""
    score_counts: Sequence[tuple[float, int]]
    """Histogram of the scores of all pairs: lower edge and count, ascending."""
    duplicates: Sequence[Mapping[str, Any]]
    """The first groups: `size`, `kept` (`id`, `text`) and `rows` of `id`, `text`, `score` to the kept row and, as of
    pairs, `numbers_differ` and `negation_differs`: all others of the group, or some."""
    duplicate_rows: int
    """Rows of all groups that are not the kept one."""
    rejected: Sequence[Mapping[str, Any]]
    """`file`, `row`, `id`, `reason` of the first rejected rows."""
    rejected_rows: int
    truncated_rows: int
    rows: int
    """Rows of the input, the rejected ones among them."""
    manifests: Mapping[str, Any]
    """Name and JSON of each manifest, shown folded."""


def render_report(data: ReportData) -> str:
    """The page, as text to be written as UTF-8; the same data gives the same page.

    Nothing in it is fetched, and its Content-Security-Policy runs no script but its own. Lone surrogates become U+FFFD.
    """
    style, script = _asset("report.css"), _asset("report_map.js") + _asset("report.js")
    points, (clusters, pairs) = _points(data.points), _tables(data)
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["count"] = lambda number: f"{number:,}"
    noise = sum(int(cluster["size"]) for cluster in data.clusters if cluster["cluster"] == NOISE)
    page = environment.from_string(_asset("report.html.j2")).render(
        data=data,
        clusters=sum(cluster["cluster"] != NOISE for cluster in data.clusters),
        clustered=sum(int(cluster["size"]) for cluster in data.clusters) - noise,
        noise=noise,
        n_points=len(data.points.get("x", ())),
        bars=_bars(data.score_counts),
        duplicates=[_group(group) for group in data.duplicates],
        rejected=data.rejected[:MAX_REJECTED],
        manifests=[
            (name, json.dumps(body, indent=2, ensure_ascii=False, default=str)) for name, body in data.manifests.items()
        ],
        style=markupsafe.Markup(style),
        script=markupsafe.Markup(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
        blob=markupsafe.Markup(f'{{"clusters":{clusters},\n"points":{points},\n"pairs":{pairs}}}'),
    )
    return _SURROGATES.sub("\ufffd", page)


@functools.cache
def _asset(name: str) -> str:
    return resources.files("sbert_core.report").joinpath(name).read_text(encoding="utf-8")


def _hash(source: str) -> str:
    """The source as the Content-Security-Policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_UNSAFE)


def _cut(text: object, limit: int) -> str:
    shown = "" if text is None else str(text)
    return shown if len(shown) <= limit else shown[: limit - 1].rstrip() + "…"


def _number(value: Any) -> float | None:
    """A measure in the digits worth writing; what is not a finite number is not known."""
    return None if value is None or not math.isfinite(value) else round(float(value), 4)


def _size(encoded: str) -> int:
    return len(encoded.encode("utf-8", "replace"))


def _tables(data: ReportData) -> tuple[str, str]:
    """Clusters and pairs as JSON, their texts cut to what is affordable."""
    for limit in SHOWN_TEXTS:
        clusters = _json([_cluster(cluster, limit) for cluster in data.clusters])
        pairs = _json([_pair(pair, limit) for pair in data.pairs])
        if _size(clusters) + _size(pairs) <= SHOWN_BYTES:
            break
    return clusters, pairs


def _cluster(cluster: Mapping[str, Any], limit: int) -> dict[str, Any]:
    number = int(cluster["cluster"])
    links = {key: cluster.get(key) for key in ("nearest", "parent")}
    return {
        "n": number,
        "size": int(cluster["size"]),
        "name": str(cluster.get("name") or ("No cluster" if number == NOISE else f"Cluster {number}")),
        "terms": [str(term) for term in cluster.get("terms") or ()],
        "exemplars": [_cut(text, limit) for text in cluster.get("exemplars") or ()],
        **{key: _number(cluster.get(key)) for key in ("cohesion", "separation")},
        **{key: None if link is None else int(link) for key, link in links.items()},
    }


def _pair(pair: Mapping[str, Any], limit: int) -> dict[str, Any]:
    ids = {key: str(pair[key]) for key in ("id_a", "id_b")}
    texts = {key: _cut(pair[key], limit) for key in ("text_a", "text_b")}
    return {"score": _number(pair["score"]), **ids, **texts, "marks": _marks(pair)}


def _marks(pair: Mapping[str, Any]) -> list[str]:
    """What the score of two texts hides."""
    return [mark for name, mark in _MARKS.items() if pair.get(name)]


def _group(group: Mapping[str, Any]) -> dict[str, Any]:
    """A group of duplicates as the page shows it."""
    rows = [
        {"id": row["id"], "text": _cut(row["text"], DUPLICATE_TEXT), "score": row["score"], "marks": _marks(row)}
        for row in group["rows"]
    ]
    kept = {"id": group["kept"]["id"], "text": _cut(group["kept"]["text"], DUPLICATE_TEXT)}
    return {"size": int(group["size"]), "kept": kept, "rows": rows, "more": int(group["size"]) - 1 - len(rows)}


def _points(points: Mapping[str, Sequence]) -> str:
    """The points as JSON columns, scaled to the grid with their aspect kept, their texts cut to what is affordable."""
    columns = {name: points.get(name, ()) for name in _POINT_COLUMNS}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"columns of the report's points differ in length: {lengths}")
    axes = {name: [float(value) for value in columns[name]] for name in "xy"}
    for name, axis in axes.items():
        for row, value in enumerate(axis):
            if not math.isfinite(value):
                raise DataError(f"point {row} of the report has {name} = {value}: leave out rows that have no place")
    span = max((max(axis) - min(axis) for axis in axes.values() if axis), default=0.0) or 1.0
    starts = {name: min(axis, default=0.0) for name, axis in axes.items()}
    ready: dict[str, list] = {
        name: [round((value - starts[name]) / span * GRID) for value in axis] for name, axis in axes.items()
    }
    ready["cluster"] = [int(cluster) for cluster in columns["cluster"]]
    ready["id"] = [str(row) for row in columns["id"]]
    for limit in POINT_TEXTS:
        ready["text"] = [_cut(text, limit) for text in columns["text"]]
        encoded = _json(ready)
        if _size(encoded) <= POINT_BYTES:
            break
    return encoded


def _bars(score_counts: Sequence[tuple[float, int]]) -> list[dict[str, Any]]:
    """The histogram's bars: both edges, the count and the height in percent of the highest."""
    if not score_counts:
        return []
    edges = [float(edge) for edge, _ in score_counts]
    width = min((b - a for a, b in itertools.pairwise(edges)), default=0.01)
    highest = max(count for _, count in score_counts) or 1
    return [
        # A bin with anything in it is seen, however high the others are.
        {"low": low, "high": low + width, "count": int(count), "height": max(100 * count / highest, 0.8 * (count > 0))}
        for low, (_, count) in zip(edges, score_counts, strict=True)
    ]
