"""Evaluations as one HTML page with plots, without network access or scripts."""

import math
from collections.abc import Sequence
from typing import Any

import jinja2
import markupsafe

from sbert_core.evaluation.render import make_tables
from sbert_core.evaluation.result import Evaluation

WIDTH, HEIGHT = 360, 200
_LEFT, _BOTTOM, _EDGE = 44, 28, 10

_STYLE = """
:root { color-scheme: light dark; --back: #fcfcfb; --ink: #1b1f24; --faint: #68707a; --line: #d9dde2;
  --c0: #2563a8; --c1: #c2571a; --c2: #2b8a57; --c3: #8b3fa0; }
@media (prefers-color-scheme: dark) { :root { --back: #15181c; --ink: #e6e8eb; --faint: #99a1ab; --line: #363c44;
  --c0: #6fb0f2; --c1: #f09a5e; --c2: #66c795; --c3: #cf8fe0; } }
body { background: var(--back); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; max-width: 70rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2.2rem; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .8rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { text-align: left; }
.main td { font-weight: 600; }
figure { display: inline-block; margin: 1rem 1.5rem 0 0; vertical-align: top; width: 22.5rem; max-width: 100%; }
figcaption { font-size: .85rem; overflow-wrap: anywhere; }
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--faint); font-size: 11px; } .axis { stroke: var(--line); fill: none; }
.diagonal { stroke: var(--faint); stroke-dasharray: 3 4; fill: none; }
.s { fill: none; stroke-width: 1.8; } .dot { stroke: none; }
.s0 { stroke: var(--c0); } .s1 { stroke: var(--c1); } .s2 { stroke: var(--c2); } .s3 { stroke: var(--c3); }
.d0 { fill: var(--c0); } .d1 { fill: var(--c1); } .d2 { fill: var(--c2); } .d3 { fill: var(--c3); }
.key { display: inline-block; width: .7rem; height: .7rem; border-radius: 2px; margin-right: .3rem; }
.k0 { background: var(--c0); } .k1 { background: var(--c1); }
.k2 { background: var(--c2); } .k3 { background: var(--c3); }
footer { color: var(--faint); margin-top: 3rem; font-size: .85rem; }
"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{{ title }}</title>
<style>{{ style }}</style>
</head>
<body>
<h1>{{ title }}</h1>
{% for table in tables %}
<section>
<h2>{{ table.title }}</h2>
<div class="wide"><table>
<thead><tr>{% for cell in table.header %}<th scope="col">{{ cell }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in table.rows %}
<tr{% if loop.first and table.header[0] == "figure" %} class="main"{% endif %}>
{%- for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}
</tbody></table></div>
</section>
{% endfor %}
{% if plots %}
<section>
<h2>Plots</h2>
{% for plot in plots %}
<figure>
<svg viewBox="0 0 {{ plot.width }} {{ plot.height }}" role="img" aria-label="{{ plot.title }}">
<path class="axis" d="{{ plot.frame }}"/>
{% if plot.diagonal %}<path class="diagonal" d="{{ plot.diagonal }}"/>{% endif %}
{% for tick in plot.ticks %}
<text x="{{ tick.x }}" y="{{ tick.y }}" text-anchor="{{ tick.anchor }}">{{ tick.text }}</text>
{% endfor %}
{% for line in plot.lines %}
<path class="s s{{ loop.index0 % 4 }}" d="{{ line.path }}"/>
{% set series = loop.index0 % 4 %}
{% for x, y in line.dots %}<circle class="dot d{{ series }}" cx="{{ x }}" cy="{{ y }}" r="2.6"/>{% endfor %}
{% endfor %}
</svg>
<figcaption>{{ plot.title }}<br>
{% for line in plot.lines %}<span class="key k{{ loop.index0 % 4 }}"></span>{{ line.name }} {% endfor %}
</figcaption>
</figure>
{% endfor %}
</section>
{% endif %}
<footer>Made by sbert-beam evaluate.</footer>
</body>
</html>
"""


def render_page(evaluations: Sequence[Evaluation], title: str = "Evaluation") -> str:
    """The page, to be written as UTF-8: tables as in `render_text`, then the curves of each evaluation and its parts.

    A curve called calibration (or calibration of ...) is drawn from 0 to 1 with the diagonal; all others of an
    evaluation are histograms, as lower edge and count, in one plot, each as shares of its own total.
    """
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    page = environment.from_string(_PAGE).render(
        title=title,
        style=markupsafe.Markup(_STYLE),
        tables=make_tables(evaluations),
        plots=[plot for evaluation in evaluations for plot in _plots(evaluation)],
    )
    return page.encode("utf-8", "replace").decode()


def _plots(evaluation: Evaluation) -> list[dict[str, Any]]:
    curves = {
        name: [point for point in points if all(map(math.isfinite, point))]
        for name, points in evaluation.curves.items()
    }
    calibration = {name: points for name, points in curves.items() if points and name.startswith("calibration")}
    counted = {name: points for name, points in curves.items() if name not in calibration and len(points) > 1}
    name = f"{evaluation.model}, {evaluation.task}, {evaluation.data}"
    plots = []
    if counted:
        plots.append(_plot(f"{name}: distribution", {key: _shares(points) for key, points in counted.items()}))
    if calibration:
        plots.append(_plot(f"{name}: calibration", calibration, calibrated=True))
    return plots + [plot for part in evaluation.parts for plot in _plots(part)]


def _shares(points: list[list[float]]) -> list[list[float]]:
    """A histogram as steps: share of all, from lower to upper edge."""
    total = sum(count for _, count in points) or 1.0
    width = points[1][0] - points[0][0]
    steps = [[x, count / total] for edge, count in points for x in (edge, edge + width)]
    return [[points[0][0], 0.0], *steps, [points[-1][0] + width, 0.0]]


def _plot(title: str, curves: dict[str, list[list[float]]], calibrated: bool = False) -> dict[str, Any]:
    points = [point for curve in curves.values() for point in curve]
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    if right <= left:
        left, right = left - 0.5, right + 0.5
    top = 1.0 if calibrated else max(y for _, y in points) or 1.0
    bottom, high = HEIGHT - _BOTTOM, HEIGHT - _BOTTOM - _EDGE

    def place(x: float, y: float) -> tuple[float, float]:
        across = _LEFT + (x - left) / (right - left) * (WIDTH - _LEFT - _EDGE)
        return round(across, 1), round(bottom - y / top * high, 1)

    def path(curve: Sequence[Sequence[float]]) -> str:
        return "M" + " L".join(f"{x} {y}" for x, y in (place(x, y) for x, y in curve))

    across = ((left, "start"), ((left + right) / 2, "middle"), (right, "end"))
    ticks = [(*place(x, 0), anchor, x, 16) for x, anchor in across]
    ticks += [(_LEFT - 6, place(left, y)[1], "end", y, 4) for y in (0, top / 2, top)]
    # On the diagonal a cosine equals the share of positives; shares are from 0 to 1.
    ends = max(left, 0.0), min(right, 1.0)
    return {
        "title": title,
        "width": WIDTH,
        "height": HEIGHT,
        "frame": f"M{_LEFT} {_EDGE} V{bottom} H{WIDTH - _EDGE}",
        "diagonal": path([(end, end) for end in ends]) if calibrated and ends[0] < ends[1] else "",
        "ticks": [
            {"x": x, "y": y + down, "anchor": anchor, "text": f"{value:.2f}"} for x, y, anchor, value, down in ticks
        ],
        "lines": [
            {"name": name, "path": path(curve), "dots": [place(*point) for point in curve] if calibrated else []}
            for name, curve in curves.items()
        ],
    }
