"""The report: one HTML page about a corpus that needs no network and no server."""

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

from sbert_core.clusters.noise import NOISE
from sbert_core.errors import DataError

MAX_TEXT_CHARS = 10_000
TABLE_TEXT_CHARS = (MAX_TEXT_CHARS, 2_000, 500, 200, 60)
"""Limits for an exemplar or a text in a pair: the first that keeps clusters and pairs under `MAX_TABLE_BYTES`."""
MAX_TABLE_BYTES = 3_000_000
POINT_TEXT_CHARS = (300, 200, 120, 60)
"""Limits for the text of a point: the first that keeps all points under `MAX_POINT_BYTES`."""
MAX_POINT_BYTES = 11_000_000
GRID_SIZE = 100_000
"""Coordinates are integers up to this: shorter in JSON than floats, and finer than any screen."""
MAX_REJECTED = 100
DUPLICATE_TEXT_CHARS = 500

_MARKS = {"numbers_differ": "numbers differ", "negation_differs": "negation differs"}

POINT_COLUMNS = ("x", "y", "cluster", "id", "text")
# Inside <script> only these can end the element, start a comment, or break a line of JSON read as JavaScript.
_UNSAFE = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}
_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportData:
    """The data of a report. Texts are shown as they are: markup in them has no effect."""

    title: str
    figures: Sequence[tuple[str, str]]
    """Figures of the run, such as `("rows", "3,000")`, in the order they are shown."""
    clusters: Sequence[Mapping[str, Any]]
    """`cluster` (-1 is noise), `size`, `name`; `terms`, `exemplars` (texts), `cohesion`, `separation`, `nearest` and
    `parent` may be absent or None."""
    points: Mapping[str, Sequence]
    """Columns `x`, `y`, `cluster`, `id`, `text` of the rows on the map, all or a sample. Empty: no map."""
    pairs: Sequence[Mapping[str, Any]]
    """`id_a`, `id_b`, `score`, `text_a`, `text_b`, best first; `numbers_differ`, `negation_differs` may be absent."""
    score_counts: Sequence[tuple[float, int]]
    """Histogram of the scores of all pairs: lower edge and count, ascending."""
    duplicates: Sequence[Mapping[str, Any]]
    """The first groups: `size`, `kept` (`id`, `text`), and `rows`, all or some of the others: `id`, `text`, `score` to
    the kept row; `numbers_differ` and `negation_differs` may be absent."""
    duplicate_rows: int
    """Rows of all groups except the kept ones."""
    rejected: Sequence[Mapping[str, Any]]
    """`file`, `row`, `id`, `reason` of the first rejected rows."""
    rejected_rows: int
    truncated_rows: int
    rows: int
    """Rows of the input, including the rejected ones."""
    manifests: Mapping[str, Any]
    """The name and JSON of each manifest, shown collapsed."""


def render_report(data: ReportData) -> str:
    """The page, to be written as UTF-8. The same data gives the same page.

    The page loads nothing, and its Content-Security-Policy allows no script but its own. Lone surrogates become U+FFFD.
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
    """The hash of a script or style for the Content-Security-Policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_UNSAFE)


def _cut(text: object, limit: int) -> str:
    shown = "" if text is None else str(text)
    return shown if len(shown) <= limit else shown[: limit - 1].rstrip() + "…"


def _number(value: Any) -> float | None:
    """A measure with four decimals; None if it is not a finite number."""
    return None if value is None or not math.isfinite(value) else round(float(value), 4)


def _size(encoded: str) -> int:
    return len(encoded.encode("utf-8", "replace"))


def _possible_limits(texts: Sequence[object], limits: Sequence[int], max_bytes: int) -> Sequence[int]:
    """The limits for texts that may fit into `max_bytes`, at least the last: a character takes one byte or more.

    Found without encoding the texts, which takes seconds for many long ones.
    """
    possible = [limit for limit in limits if sum(len(_cut(text, limit)) for text in texts) <= max_bytes]
    return possible or limits[-1:]


def _tables(data: ReportData) -> tuple[str, str]:
    """Clusters and pairs as JSON, with texts cut so that the page stays small."""
    exemplars = [text for cluster in data.clusters for text in cluster.get("exemplars") or ()]
    texts = [*exemplars, *(pair[name] for pair in data.pairs for name in ("text_a", "text_b"))]
    for limit in _possible_limits(texts, TABLE_TEXT_CHARS, MAX_TABLE_BYTES):
        clusters = _json([_cluster(cluster, limit) for cluster in data.clusters])
        pairs = _json([_pair(pair, limit) for pair in data.pairs])
        if _size(clusters) + _size(pairs) <= MAX_TABLE_BYTES:
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
    """Differences between two texts that their score does not show."""
    return [mark for name, mark in _MARKS.items() if pair.get(name)]


def _group(group: Mapping[str, Any]) -> dict[str, Any]:
    """A group of duplicates, as the template needs it."""
    rows = [
        {"id": row["id"], "text": _cut(row["text"], DUPLICATE_TEXT_CHARS), "score": row["score"], "marks": _marks(row)}
        for row in group["rows"]
    ]
    kept = {"id": group["kept"]["id"], "text": _cut(group["kept"]["text"], DUPLICATE_TEXT_CHARS)}
    return {"size": int(group["size"]), "kept": kept, "rows": rows, "more": int(group["size"]) - 1 - len(rows)}


def _points(points: Mapping[str, Sequence]) -> str:
    """The points as JSON columns: scaled to the grid, both axes alike, with texts cut so that the page stays small."""
    columns = {name: points.get(name, ()) for name in POINT_COLUMNS}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"columns of the report's points differ in length: {lengths}")
    axes = {name: [float(value) for value in columns[name]] for name in "xy"}
    for name, axis in axes.items():
        for row, value in enumerate(axis):
            if not math.isfinite(value):
                raise DataError(f"point {row} of the report has {name} = {value}: leave out rows without a position")
    span = max((max(axis) - min(axis) for axis in axes.values() if axis), default=0.0) or 1.0
    starts = {name: min(axis, default=0.0) for name, axis in axes.items()}
    ready: dict[str, list] = {
        name: [round((value - starts[name]) / span * GRID_SIZE) for value in axis] for name, axis in axes.items()
    }
    ready["cluster"] = [int(cluster) for cluster in columns["cluster"]]
    ready["id"] = [str(row) for row in columns["id"]]
    for limit in _possible_limits(columns["text"], POINT_TEXT_CHARS, MAX_POINT_BYTES):
        ready["text"] = [_cut(text, limit) for text in columns["text"]]
        encoded = _json(ready)
        if _size(encoded) <= MAX_POINT_BYTES:
            break
    return encoded


def _bars(score_counts: Sequence[tuple[float, int]]) -> list[dict[str, Any]]:
    """The bars of the histogram: both edges, the count, and the height in percent of the highest bar."""
    if not score_counts:
        return []
    edges = [float(edge) for edge, _ in score_counts]
    width = min((b - a for a, b in itertools.pairwise(edges)), default=0.01)
    highest = max(count for _, count in score_counts) or 1
    return [
        # A minimum height, so that a bar with few pairs is visible.
        {"low": low, "high": low + width, "count": int(count), "height": max(100 * count / highest, 0.8 * (count > 0))}
        for low, (_, count) in zip(edges, score_counts, strict=True)
    ]
